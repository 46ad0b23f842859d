"""A process in the fluent form: what it makes, what is refused, and how it prints back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.graphs import as_graph, graph_of
from tests.short_forms import Pipeline, ProcessPipeline

import windrow as wr
from windrow.authoring.checks import validate
from windrow.authoring.printing import to_dict, to_json, to_mermaid, to_python_file, to_text, to_yaml
from windrow.client.fluent.streams import Keyed
from windrow.errors import PipelineError
from windrow.model import (
    DecimalType,
    Field,
    ListState,
    LongType,
    MapState,
    Process,
    Punctuated,
    Records,
    StringType,
    TimestampType,
    ValueState,
)


def visit(ctx: wr.Context, record: Mapping[str, Any]) -> None:
    """Stand for a function; it is never called here."""


def ring(ctx: wr.Context, timer: wr.Timer) -> None:
    """Stand for another."""


def yields(_: wr.Context, __: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Stand for one that gives rows as no function here does."""
    yield {"n": 1}


async def waits(ctx: wr.Context, record: Mapping[str, Any]) -> None:
    """Stand for another."""


async def yields_and_waits(_: wr.Context, __: Mapping[str, Any]) -> AsyncIterator[dict[str, int]]:
    """Stand for a third."""
    yield {"n": 1}


class Yields:
    """Stand for an object that can be called."""

    def __call__(self, _: wr.Context, __: Mapping[str, Any]) -> Iterator[int]:
        """Give a row so."""
        yield 1


def keyed() -> Keyed:
    return (
        wr.log("data/clicks")
        .decode(user="string", url="string", at="timestamp_millis")
        .derive(domain="split_part(url, '/', 3)")
        .event_time("at", delay="10m", future="1h")
        .key_by("user")
    )


def whole() -> ProcessPipeline:
    pipeline = (
        keyed()
        .process(
            visit,
            state={
                "urls": wr.map_state("string", "timestamp"),
                "n": wr.value_state("long"),
                "last": wr.list_state(DecimalType(12, 2)),
            },
            returns={"urls_24h": "long", "label": "string"},
            ttl=timedelta(days=1),
            order="event_time",
            on_timer=ring,
            on_processing_timer=ring,
        )
        .to(wr.sqlite("clicks.db", table="visits"), name="clicks", key_groups=16, at_end="hold")
    )
    return graph_of(pipeline, ProcessPipeline)


def test_all_that_can_be_said() -> None:
    pipeline = whole()
    assert (pipeline.name, pipeline.key, pipeline.key_groups, pipeline.at_end) == ("clicks", ("user",), 16, "hold")
    assert [derived.name for derived in pipeline.derive] == ["domain"]
    assert pipeline.process == Process(
        visit,
        (
            MapState("urls", StringType(), TimestampType("iso")),
            ValueState("n", LongType()),
            ListState("last", DecimalType(12, 2)),
        ),
        (Field("urls_24h", LongType()), Field("label", StringType())),
        86_400_000_000,
        "event_time",
        ring,
        ring,
    )
    assert [finding for finding in validate(as_graph(pipeline)) if finding.where != "key_groups"] == []


def test_what_may_be_left_out() -> None:
    made = keyed().process(visit, returns={"n": "long"}).to(wr.sqlite("clicks.db", table="visits"))
    pipeline = graph_of(made, ProcessPipeline)
    assert pipeline.process == Process(visit, (), (Field("n", LongType()),))
    assert (pipeline.name, pipeline.at_end) == ("visits", "fire")
    (found,) = [finding for finding in validate(as_graph(pipeline)) if finding.where != "key_groups"]
    assert found.text.startswith("process: has no `ttl`, so the row and state of each key are kept forever")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"state": {"n": wr.value_state("lnog")}}, "process.state.n: 'lnog' is not a type"),
        (
            {"state": {"n": "long"}},
            "Keyed.process(): `state` must be a mapping to a state",
        ),
        ({"state": {"a b": wr.value_state("long")}}, "process.state.a b: 'a b' must be a Python name"),
        ({"state": {"__n": wr.value_state("long")}}, "process.state.__n: '__n' must be a Python name"),
        ({"state": {"m": wr.map_state("double", "long")}}, "process.state.m: has doubles as keys"),
        ({"returns": {}}, "process.returns: is empty; list the columns"),
        ({"returns": {"n": "text"}}, "process.returns.n: 'text' is not a type"),
        ({"returns": {"User": "long"}}, "process.returns.User: 'User' and 'user' are the same column in SQL"),
        ({"returns": {"revision": "long"}}, "process.returns.revision: 'revision' is a column that every result has"),
        ({"ttl": "a while"}, "process.ttl: 'a while' is not a duration"),
        ({"ttl": "0s"}, "process.ttl: must be longer than 0"),
        ({"ttl": "40000d"}, "process.ttl: is longer than a hundred years"),
        ({"order": "offset"}, "process.order: must be 'log' or 'event_time', not 'offset'"),
        (
            {"function": 1},
            "Keyed.process(): `function` must be a function",
        ),
        ({"on_timer": "ring"}, "Keyed.process(): `on_timer` must be a function"),
        ({"function": yields}, "process.function: is a generator, so calling it does nothing; write it without"),
        ({"function": partial(yields)}, "process.function: is a generator"),
        ({"function": Yields()}, "process.function: is a generator"),
        ({"function": waits}, "process.function: is async, so calling it does nothing; write a plain def; write"),
        ({"on_timer": yields_and_waits}, "process.on_timer: is async"),
        ({"on_processing_timer": yields}, "process.on_processing_timer: is a generator"),
    ],
)
def test_what_means_nothing_is_refused(given: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"function": visit, "returns": {"n": "long"}}
    with pytest.raises(PipelineError) as raised:
        keyed().process(**arguments | given).to(wr.sqlite("a.db", table="t"))
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": ()}, "key: is empty, but a process keeps its state by key"),
        ({"key": ("usr",)}, "key.0: 'usr' is not a field of decode; did you mean 'user'?"),
        ({"at_end": "stop"}, "at_end: must be 'fire' or 'hold', not 'stop'"),
        ({"key_groups": 0}, "key_groups: must be 1 to"),
        ({"name": "a b"}, "name: 'a b' must be"),
        ({"sink": wr.sqlite("a.db", table="t", key=["user", "label"])}, "sink.sqlite.key: lacks window_start"),
    ],
)
def test_the_rules_of_all_pipelines_hold(changes: dict[str, Any], message: str) -> None:
    assert any(finding.text.startswith(message) for finding in validate(as_graph(replace(whole(), **changes))))


def test_the_mark_of_a_punctuated_source_is_no_key() -> None:
    pipeline = replace(whole(), time=replace(whole().time, watermark=Punctuated("url")), key=("url",))
    found = [finding.text for finding in validate(as_graph(pipeline))]
    assert any(text.startswith("key: 'url' holds the watermark") for text in found)


def test_json_tells_functions_by_their_names() -> None:
    plain = to_dict(as_graph(whole()))
    assert list(plain) == [
        "name",
        "source",
        "decode",
        "derive",
        "time",
        "key",
        "process",
        "at_end",
        "sink",
        "key_groups",
    ]
    assert plain["process"] == {
        "function": "tests.client.fluent.test_process.visit",
        "state": {"urls": "map(string, timestamp)", "n": "value(long)", "last": "list(decimal(12,2))"},
        "returns": {"urls_24h": "long", "label": "string"},
        "order": "event_time",
        "ttl": "1d",
        "on_timer": "tests.client.fluent.test_process.ring",
        "on_processing_timer": "tests.client.fluent.test_process.ring",
    }
    assert json.loads(to_json(as_graph(whole()))) == plain


def test_text_and_chart_say_what_it_does() -> None:
    text = to_text(as_graph(whole()))
    for said in (
        "the Python function tests.client.fluent.test_process.visit for each record",
        "records are processed in order of event time, once the watermark has passed them",
        "a record that arrives later than that goes to visits_late",
        "it keeps last, list(decimal(12,2)), for each key",
        "an entry expires 1d after it is written, a key after its last call",
        "timers of event time call tests.client.fluent.test_process.ring",
        "it emits urls_24h long, label string",
        "timers stay set at the end of a bounded input",
    ):
        assert said in text
    plain = to_text(keyed().process(visit, returns={"n": "long"}).to(wr.sqlite("a.db", table="t")).graph)
    assert "a key's records are processed in the order of the log" in plain
    assert "state and row of a key are kept forever" in plain
    assert "source --> decode --> time --> key --> process --> sink" in to_mermaid(as_graph(whole()))


@pytest.mark.parametrize(("form", "named"), [(to_yaml, "YAML"), (to_python_file, "a print-out")])
def test_a_function_has_no_other_form(form: Any, named: str) -> None:  # noqa: ANN401
    with pytest.raises(PipelineError) as raised:
        form(as_graph(whole()))
    assert str(raised.value) == (
        f"the pipeline has Python code, which {named} cannot contain "
        "(process calls tests.client.fluent.test_process.visit); keep its Python file"
    )


def test_running_results_are_a_pane_for_each_record_of_all_time() -> None:
    short = keyed().running(visits=wr.count()).to(wr.sqlite("a.db", table="t"))
    long = (
        keyed()
        .window(wr.global_window())
        .aggregate(visits=wr.count())
        .emit(early=wr.every_count(1))
        .to(wr.sqlite("a.db", table="t"))
    )
    assert short == long
    assert graph_of(short, Pipeline).emit.early == Records(1)
