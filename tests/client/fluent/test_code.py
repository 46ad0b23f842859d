"""Pipelines with Python code in them: in the fluent form only, and told by a name that is the same in every run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.graphs import as_graph, graph_of
from tests.short_forms import Pipeline

import windrow as wr
from windrow.authoring.checks import validate
from windrow.authoring.printing import to_dict, to_json, to_mermaid, to_python_file, to_text, to_yaml
from windrow.declare.python_code import code_name
from windrow.errors import PipelineError
from windrow.model import AnyOf, Custom, DataType, LongType, Records, When

LONG = LongType()


@dataclass(frozen=True)
class Product:
    """The product of whole numbers, modulo a prime."""

    modulo: int
    returns: DataType = LONG

    def zero(self) -> int:
        return 1

    def step(self, state: int, columns: Mapping[str, Any]) -> int:
        for value in columns["amount"].to_pylist():
            state = state * value % self.modulo
        return state

    def merge(self, one: int, other: int) -> int:
        return one * other % self.modulo

    def finish(self, state: int) -> int:
        return state


class Bare:
    def zero(self) -> int:
        return 0


def at_a_round_number(pane: wr.PaneSoFar) -> bool:
    return pane.records % 10 == 0


def at_a_multiple(number: int, pane: wr.PaneSoFar) -> bool:
    return pane.records % number == 0


class Lazy(Product):
    async def finish(self, state: int) -> int:  # type: ignore[override]
        return state


async def at_last(pane: wr.PaneSoFar) -> bool:
    return pane.records > 1


def pipeline(trigger: Any = None, **results: Any) -> Pipeline:  # noqa: ANN401 what a test passes on
    made = (
        wr.log("data")
        .decode(user="string", t="timestamp", amount="long")
        .event_time("t", delay="1m")
        .key_by("user")
        .window(wr.tumbling("5m"))
        .aggregate(**(results or {"n": wr.count()}))
        .emit(early=trigger)
        .to(wr.sqlite("a.db", table="t"))
    )
    return graph_of(made, Pipeline)


def test_an_aggregate_of_ones_own() -> None:
    made = pipeline(p=wr.custom(Product(7), "amount", where="amount > 0")).aggregates[0]
    assert made.function == Custom(Product(7), ("amount",))
    assert made.where == "amount > 0"


def test_a_trigger_of_ones_own() -> None:
    assert pipeline(wr.any_of(wr.every_count(3), wr.when(at_a_round_number))).emit.early == AnyOf(
        (Records(3), When(at_a_round_number))
    )


def test_code_is_told_by_its_name() -> None:
    here = __name__
    made = pipeline(wr.when(at_a_round_number), p=wr.custom(Product(7), "amount", where="amount > 0"))
    assert to_dict(as_graph(made))["aggregate"] == {
        "p": f"custom({here}.Product(modulo=7, returns=windrow.model.types.LongType()), amount) where amount > 0"
    }
    assert to_dict(as_graph(made))["emit"]["early"] == {"when": f"{here}.at_a_round_number"}
    for print_ in (to_json, to_text, to_mermaid):
        assert f"{here}.at_a_round_number" in print_(as_graph(made))
        assert f"{here}.Product(modulo=7" in print_(as_graph(made))


@pytest.mark.parametrize(("print_", "form"), [(to_yaml, "YAML"), (to_python_file, "a print-out")])
def test_what_no_file_can_hold_is_not_printed_to_one(print_: Any, form: str) -> None:  # noqa: ANN401
    made = pipeline(
        wr.all_of(wr.every("1s"), wr.repeat(wr.when(at_a_round_number), times=2)), p=wr.custom(Product(7), "amount")
    )
    with pytest.raises(PipelineError, match=rf"Python code, which {form} cannot contain") as refused:
        print_(as_graph(made))
    assert f"emit.early calls {__name__}.at_a_round_number" in refused.value.message
    assert f"aggregate.p is {__name__}.Product(modulo=7" in refused.value.message


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (at_a_round_number, "at_a_round_number"),
        (partial(at_a_multiple, 10), "at_a_multiple(10)"),
        (partial(at_a_multiple, number=10), "at_a_multiple(number=10)"),
        (Bare(), "Bare"),
        (Bare, "Bare"),
        (Bare().zero, "Bare.zero"),
    ],
)
def test_a_name_is_the_same_in_every_run(code: object, name: str) -> None:
    assert code_name(code) == f"{__name__}.{name}"


def test_a_lambda_has_a_name() -> None:
    assert code_name(lambda pane: pane.records > 1).endswith("<lambda>")


@pytest.mark.parametrize(
    ("aggregate", "of", "found"),
    [
        (Product(7), ["amount", "amount + 1"], []),
        (Product, ["amount"], ["is a class; pass an instance of it"]),
        (Bare(), ["amount"], ["lacks step, merge, finish", "needs `returns`"]),
        (Product(7), [], ["has no arguments"]),
        (Lazy(7), ["amount"], ["aggregate.p: finish of Lazy(modulo=7", "is async, so calling it does nothing"]),
        (Product(7), ["amont"], ["'amont' is not a field of decode; did you mean 'amount'?"]),
    ],
)
def test_an_aggregate_of_ones_own_is_checked(aggregate: Any, of: list[str], found: list[str]) -> None:  # noqa: ANN401
    results = {"n": wr.count(), "p": wr.custom(aggregate, *of)}
    if not found:
        assert not [finding for finding in validate(as_graph(pipeline(**results))) if finding.where == "aggregate.p"]
        return
    with pytest.raises(PipelineError) as refused:
        pipeline(**results)
    for text in found:
        assert text in refused.value.message or text in str(refused.value)


def test_a_trigger_whose_call_does_nothing_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"emit\.early\.any_of\.1\.when: is async, so calling it does nothing"):
        pipeline(wr.any_of(wr.every_count(3), wr.when(at_last)))  # type: ignore[arg-type]


def test_sessions_take_no_function_as_a_trigger() -> None:
    with pytest.raises(PipelineError, match="sessions merge, but the state of all_of"):
        (
            wr.log("data")
            .decode(user="string", t="timestamp")
            .event_time("t", delay="1m")
            .key_by("user")
            .window(wr.session("5m"))
            .aggregate(n=wr.count())
            .emit(early=wr.when(at_a_round_number))
            .to(wr.sqlite("a.db", table="t"))
        )
