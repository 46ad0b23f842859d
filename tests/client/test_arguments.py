"""Every argument of the Python API that is of another type than it takes is refused with what it takes."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from windrow.errors import ArgumentError, PipelineError, WindrowError
from windrow.tools.generate import LogSpec, write_log

RECORDS = wr.log("log").decode(user_id="string", event_time="timestamp_millis", amount="long")
TIMED = RECORDS.event_time("event_time", delay="1m")
KEYED = TIMED.key_by("user_id")
WINDOWED = KEYED.window(wr.tumbling("5m"))
STAGE = WINDOWED.aggregate(total="sum(amount)")
SINK = wr.sqlite("a.db", table="t")
PIPELINE = STAGE.to(SINK)


def _process(context: wr.Context, record: object) -> None:
    del context, record


GRAPH = wr.graph("g")
NAMED = GRAPH.source("orders", TIMED, lateness="1h")
PROCESSED = KEYED.process(_process, returns={"n": "long"})
RULED = KEYED.rules(wr.rule("big", when="amount > 1"), recent=wr.recent(last=2, within="1h"))
OBJECTS: Mapping[str, Any] = {
    "Stream": wr.log("log"),
    "DecodedStream": RECORDS,
    "Timed": TIMED,
    "Keyed": KEYED,
    "Windowed": WINDOWED,
    "Aggregated": STAGE,
    "Emitted": STAGE.emit(lateness="1h"),
    "Processed": PROCESSED,
    "Ruled": RULED,
    "Named": NAMED,
    "Selection": NAMED.where("amount > 1"),
    "GraphBuilder": wr.graph("g"),
    "Pipeline": PIPELINE,
}
GOOD: Mapping[str, Any] = {
    "aggregate": "count()",
    "at": 0.5,
    "by": "user_id",
    "columns": ["a", "b"],
    "condition": "amount > 1",
    "conditions": {"large": "amount > 1"},
    "delays": {0: "1m"},
    "default": "1m",
    "expressions": "amount + 1",
    "fields": "long",
    "function": _process,
    "gap": "5m",
    "given": _process,
    "graph": PIPELINE.graph,
    "here": PIPELINE,
    "host": "memory",
    "into": "a.db",
    "k": 3,
    "key": "user_id",
    "last": 3,
    "length": "1m",
    "log": "log",
    "made": NAMED.where("amount > 1"),
    "max": "1h",
    "min": "1m",
    "most": 3,
    "number": 3,
    "of": "amount",
    "other": NAMED,
    "pipeline": PIPELINE,
    "predicate": callable,
    "records": TIMED,
    "results": "count()",
    "returns": {"n": "long"},
    "recent": wr.recent(last=2, within="1h"),
    "sink": SINK,
    "size": "5m",
    "slide": "1m",
    "step": "1m",
    "stream": NAMED,
    "table": "t",
    "target": 0.9,
    "text": "SELECT 1",
    "times": 3,
    "trigger": wr.every("1m"),
    "type_": "long",
    "value": "long",
    "when": "amount > 1",
    "window": wr.tumbling("5m"),
    "within": "1h",
}
"""Arguments that are taken, by the names of their parameters; for others any text will do."""
BAD: Mapping[str, Any] = {
    "None": None,
    "a number": 5,
    "a text": "x y",
    "a stage": STAGE,
    "a pipeline": PIPELINE,
    "a source": wr.log("log"),
    "a list": [None],
    "a mapping": {"a": None},
    "an object": object(),
}
UNTRIED = {"host", "options", "conf", "master", "progress", "timeout"}
"""Options of runs that would start Spark, or go on in a thread."""


def _calls() -> dict[str, Callable[..., Any]]:
    """Return the public functions, and the methods of stages, graphs and pipelines, by name."""
    found: dict[str, Callable[..., Any]] = {
        name: one for name in wr.__all__ if inspect.isfunction(one := getattr(wr, name))
    }
    found |= {f"plot.{name}": getattr(wr.plot, name) for name in wr.plot.__all__}
    for kind, one in OBJECTS.items():
        methods = [name for name, _ in inspect.getmembers(type(one), inspect.isfunction) if name[0] != "_"]
        found |= {f"{kind}.{name}": getattr(one, name) for name in methods}
    return found


CALLS = _calls()


def _arguments(call: Callable[..., Any], changed: str, value: object) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments that a call needs, with another value for the parameter `changed`."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, one in inspect.signature(call).parameters.items():
        given = value if name == changed else GOOD.get(name, "x")
        if one.kind is one.VAR_POSITIONAL:
            args += [given] if name == changed else []
        elif one.kind is one.VAR_KEYWORD:
            kwargs |= {"some": given} if name == changed or name in {"results", "fields"} else {}
        elif name in {changed, "host"} or one.default is one.empty:
            kwargs[name] = given
    return args, kwargs


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(LogSpec(events=10, partitions=1), Path("log"))


@pytest.mark.parametrize("name", CALLS)
def test_no_argument_ends_in_an_error_from_inside(name: str) -> None:
    call = CALLS[name]
    for parameter in set(inspect.signature(call).parameters) - UNTRIED:
        for what, value in BAD.items():
            args, kwargs = _arguments(call, parameter, value)
            try:
                call(*args, **kwargs)
            except WindrowError:
                continue
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is from inside
                pytest.fail(f"{name}: {parameter} is {what}: {type(exc).__name__}: {exc}")


TYPED: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "read_table": (wr.read_table, (STAGE,), r"`pipeline` must be .*\.to\(sink\).*; it is an Aggregated \(results\)"),
    "to": (STAGE.to, (None,), r"`sink` must be a sink, such as wr.sqlite\('PATH', table='NAME'\); it is None"),
    "run": (getattr, (STAGE, "run"), r"an Aggregated .* has no method run\(\); .* end the stages with .to\(sink\)"),
    "run a graph": (getattr, (GRAPH, "run"), r"a GraphBuilder .* has no method run\(\); .*graph with .build\(\)"),
    "too early": (
        getattr,
        (TIMED, "aggregate"),
        r"aggregate\(\) is a method of windows, RECORDS.window\(wr.tumbling\('5m'\)\)",
    ),
    "misspelt": (
        getattr,
        (TIMED, "key_bye"),
        r"no method key_bye\(\); it has key_by, running, window; did you mean 'key_by'",
    ),
    "sink": (GRAPH.sink, ("a", STAGE), r"`stream` must be a source or stream of the graph, .*; it is an Aggregated"),
    "missing": (GRAPH.sink, ("a", NAMED), r"GraphBuilder.sink\(\) lacks `sink`, which must be a sink, such as"),
    "Pipeline": (wr.Pipeline, ("x",), r"Pipeline\(\): `graph` must be .*\.to\(sink\).*; it is the text 'x'"),
    "load": (wr.load, (PIPELINE,), r"`path` must be text or a path, as in load\(path\); it is a Pipeline"),
    "too many": (wr.count, ("a",), r"count\(\): too many positional arguments; the call is count\(\)"),
    "an item": (wr.csv, (["a", 3],), "`columns` must be a list, each item text, .*; it has 3"),
    "text": (wr.sum, (7,), r"`of` must be text, as in sum\(of\); it is 7"),
}


@pytest.mark.parametrize("kind", TYPED)
def test_an_argument_of_another_type_is_refused_with_what_is_taken(kind: str) -> None:
    call, args, said = TYPED[kind]
    with pytest.raises(PipelineError, match=said) as refused:
        call(*args)
    assert isinstance(refused.value, TypeError | AttributeError)


def test_what_is_wrong_in_a_mapping_or_misspelt_is_said() -> None:
    returns: Any = {"n": 3}
    with pytest.raises(ArgumentError, match=r"`returns` must be a mapping to .*; 'n' is 3"):
        KEYED.process(_process, returns=returns)
    misspelt: Any = {"wher": "x"}
    with pytest.raises(ArgumentError, match=r"'wher'; did you mean 'where'\?; the call is sum\(of\)"):
        wr.sum("a", **misspelt)


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_stage_is_a_value_as_others(kind: str) -> None:
    one = OBJECTS[kind]
    assert not hasattr(one, "_repr_png_")
    assert hasattr(one, "run") == (kind == "Pipeline")
    copied = copy.deepcopy(one)
    assert copied == one or kind == "GraphBuilder"
    if kind not in {"Processed", "GraphBuilder"}:
        assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - its own
