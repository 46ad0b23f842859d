"""Pipelines in real time as they are written and printed, and graphs and process functions that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.graphs import as_graph, graph_of, parse_short, python_of
from tests.short_forms import Pipeline

import windrow as wr
from windrow.authoring.checks import validate
from windrow.authoring.pipeline_file import read_document
from windrow.authoring.printing import to_mermaid, to_text, to_yaml
from windrow.client.fluent.streams import Timed
from windrow.errors import PipelineError
from windrow.model import Graph

OUT = wr.kafka_sink("alerts", servers="h:9092", commit="50ms")


def records(topic: str = "cards") -> Timed:
    source = wr.kafka(topic, servers="h:9092").decode(id="string", card="string", t="timestamp_millis")
    return source.event_time("t", delay="10s", future="1m")


def counting() -> Pipeline:
    counted = records().key_by("card").window(wr.tumbling("1m")).aggregate(n=wr.count()).emit(lateness="1m")
    return graph_of(counted.to(OUT, mode="realtime"), Pipeline)


def nothing(ctx: Any, record: Any) -> None:  # noqa: ANN401 - the public context
    """Emit nothing."""


def test_it_reads_back_as_it_is_printed() -> None:
    pipeline = counting()
    assert parse_short(to_yaml(as_graph(pipeline))) == pipeline
    assert eval(python_of(pipeline), {"wr": wr}).graph == as_graph(pipeline)  # noqa: S307 - our own text
    assert "alerts in h:9092" in to_mermaid(as_graph(pipeline))


def test_explain_says_what_to_expect_and_what_it_needs() -> None:
    text = to_text(as_graph(counting()))
    assert "about 35 to 90 ms after its record, with a transaction every 50ms" in text
    assert "cards must be partitioned by card" in text
    assert "beside it alerts.late and alerts.dead" in text


RULES = """\
name: fraud
mode: realtime
source: {kafka: {servers: "h:9092", topic: cards}}
decode: {id: string, card: string, t: timestamp_millis, amount: "decimal(12,2)", home: boolean}
time: {field: t, delay: 10s}
key: [card]
recent: {last: 64, within: 24h}
rules: [{name: many, when: "count(recent) >= 8"}]
sink: {kafka: {servers: "h:9092", topic: alerts}}
"""


def test_explain_says_how_large_the_state_of_rules_becomes() -> None:
    text = to_text(read_document(RULES, "fraud.yaml").pipeline)
    assert "64 records of about 81 bytes for each key; for a million such keys about 5.2 GB" in text


def found(graph: Graph) -> list[str]:
    return [f"{one.where}: {one.message}" for one in validate(replace(graph, mode="realtime")) if one.level == "error"]


def built(add: Callable[[Any, Any], Any]) -> Graph:
    graph = wr.graph("cards", mode="realtime")
    graph.sink("out", add(graph, graph.source("source", records(), lateness="1h")), OUT)
    return graph_of(graph.build(), Graph)


def test_a_deduplication_looks_into_its_partition_alone() -> None:
    def over(scope: Any) -> Graph:  # noqa: ANN401 - a case
        return built(lambda graph, cards: graph.stream("once", cards.deduplicate("id", within="1h", scope=scope)))

    assert found(over("partition")) == []
    with pytest.raises(PipelineError, match=r"streams.once.deduplicate.scope: .*set `scope: partition`"):
        over("stream")


def test_records_stay_in_their_partition() -> None:
    def two_keys(graph: Any, cards: Any) -> Any:  # noqa: ANN401 - stages of the fluent API
        by_card = cards.key_by("card").window(wr.tumbling("1m")).aggregate(n=wr.count()).emit(lateness="1m")
        counts = graph.stream("counts", by_card)
        total = counts.key_by("n").window(wr.tumbling("1h")).aggregate(cards=wr.count())
        return graph.stream("total", total)

    with pytest.raises(
        PipelineError, match=r"streams.total.key: is n, but the key of 'counts' is card: .* so all keys"
    ):
        built(two_keys)


def test_both_sides_of_a_join_have_the_key_of_the_topic() -> None:
    def over(by: Any) -> Graph:  # noqa: ANN401 - a case
        return built(lambda graph, cards: graph.stream("pairs", cards.join(cards, by=by, before="1m", after="1m")))

    assert found(over("card")) == []
    with pytest.raises(PipelineError, match=r"streams.pairs.join: joins card and id"):
        over({"card": "id"})


def test_there_is_one_source() -> None:
    graph = wr.graph("cards", mode="realtime")
    first = graph.source("source", records())
    other = graph.source("other", records("others"))
    graph.sink("out", graph.stream("all", first.union(other)), OUT)
    with pytest.raises(PipelineError, match=r"sources.other: `mode: realtime` supports a single source"):
        graph.build()


def test_there_are_no_timers_of_processing_time() -> None:
    with pytest.raises(PipelineError, match=r"process.on_processing_timer: needs ticks"):
        records().key_by("card").process(nothing, returns={"id": "string"}, on_processing_timer=nothing).to(
            OUT, mode="realtime"
        )
