"""Values that are one of a few, in pipelines that Python makes: YAML and SQL read no others."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import windrow as wr
import windrow.model
from windrow.client.fluent.graph import GraphBuilder, Named
from windrow.client.fluent.streams import Keyed, Stream, Timed
from windrow.errors import PipelineError
from windrow.model import Sink


def timed(**time: Any) -> Timed:  # noqa: ANN401 - any setting
    return wr.log("data").decode(user="string", t="timestamp", n="long").event_time("t", delay="1m", **time)


def written(
    keyed: Keyed | None = None,
    sink: Sink | None = None,
    emit: dict[str, Any] | None = None,
    **to: Any,  # noqa: ANN401
) -> object:
    made = (keyed or timed().key_by("user")).window(wr.tumbling("5m")).aggregate(n=wr.count()).emit(**emit or {})
    return made.to(sink or wr.sqlite("a.db", table="t"), **to)


def of(stream: Stream) -> Keyed:
    return stream.decode(user="string", t="timestamp").event_time("t", delay="1m").key_by("user")


def in_graph(make: Callable[[GraphBuilder, Named], object], **settings: Any) -> object:  # noqa: ANN401
    graph = wr.graph("g", **settings)
    stream = graph.stream("made", make(graph, graph.source("spend", timed())))  # type: ignore[arg-type]
    graph.sink("out", stream, wr.sqlite("a.db", table="t"))
    return graph.build()


def nothing(ctx: wr.Context, record: Any) -> None:  # noqa: ANN401
    del ctx, record


SINK = wr.sqlite("a.db", table="t")
CALLS: dict[str, Callable[[Any], object]] = {
    "time.all_idle": lambda bad: written(timed(all_idle=bad, idle="1m").key_by("user")),
    "emit.mode": lambda bad: written(emit={"mode": bad}),
    "emit.late": lambda bad: written(emit={"late": bad}),
    "emit.at_end": lambda bad: written(emit={"at_end": bad}),
    "mode": lambda bad: written(mode=bad),
    "sink.sqlite.decimals": lambda bad: written(sink=wr.sqlite("a.db", table="t", decimals=bad)),
    "sink.kafka.format": lambda bad: written(sink=wr.kafka_sink("a", servers="a:1", format=bad)),
    "source.log.format": lambda bad: written(of(wr.log("data", format=bad))),
    "source.files.format": lambda bad: written(of(wr.files("*.csv", format=bad))),
    "source.kafka.format": lambda bad: written(of(wr.kafka("a", servers="a:1", format=bad))),
    "source.kafka.start": lambda bad: written(of(wr.kafka("a", servers="a:1", start=bad))),
    "process.order": lambda bad: timed().key_by("user").process(nothing, returns={"n": "long"}, order=bad).to(SINK),
    "at_end": lambda bad: timed().key_by("user").process(nothing, returns={"n": "long"}).to(SINK, at_end=bad),
    "rules.large.severity": lambda bad: (
        timed()
        .key_by("user")
        .rules(wr.rule("large", when="n > 1", severity=bad), recent=wr.recent(last=2, within="1h"))
        .to(SINK)
    ),
    "graph mode": lambda bad: in_graph(lambda _, spend: spend.where("n > 1"), mode=bad),
    "streams.made.scope": lambda bad: in_graph(lambda _, spend: spend.deduplicate("user", within="1h", scope=bad)),
    "streams.made.how": lambda bad: in_graph(lambda _, spend: spend.join(spend, by="user", after="1h", how=bad)),
    "streams.made.as_of": lambda bad: in_graph(
        lambda graph, spend: spend.lookup(graph.stream("users", spend.table("user")), by="user", as_of=bad)
    ),
    "streams.made.emit.mode": lambda bad: in_graph(
        lambda _, spend: spend.key_by("user").window(wr.tumbling("5m")).aggregate(n=wr.count()).emit(mode=bad)
    ),
}


@pytest.mark.parametrize("where", CALLS)
@pytest.mark.parametrize("bad", ["nonsense", None, 3])
def test_another_value_is_refused_with_those_that_can_be(where: str, bad: object) -> None:
    with pytest.raises(PipelineError, match=rf"^{where.removeprefix('graph ')}: must be '.+' or '.+', not {bad!r}"):
        CALLS[where](bad)


def test_one_that_is_near_is_named_whatever_its_case() -> None:
    with pytest.raises(PipelineError, match="not 'Acumulate'; did you mean 'accumulate'"):
        CALLS["emit.mode"]("Acumulate")
    with pytest.raises(PipelineError, match=r"not 'nonsense'$"):
        CALLS["emit.mode"]("nonsense")


def test_the_types_of_the_model_can_be_read_when_a_pipeline_is_checked() -> None:
    modules = [
        importlib.import_module(f"windrow.model.{one.name}") for one in pkgutil.iter_modules(windrow.model.__path__)
    ]
    kinds = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    hints = [hint for kind in kinds if is_dataclass(kind) for hint in get_type_hints(kind).values()]
    assert sum(get_origin(part) is Literal for hint in hints for part in (hint, *get_args(hint))) > 10
