"""Checks of real-time pipelines: one topic as the source, topics as sinks, one key, and no processing time."""

from __future__ import annotations

from collections.abc import Iterator

from windrow import model as m
from windrow.authoring.checks.base import sink_path
from windrow.authoring.checks.places import place
from windrow.declare.findings import Finding, error
from windrow.model.triggers import has_every

_MOST_COMMIT = 5_000_000
_STREAM = "remove `mode`: the stream host supports this, with a latency of about a second"


def realtime(graph: m.Graph) -> Iterator[Finding]:
    """Find settings that the real-time host does not support; for other hosts, find settings that only it supports."""
    if graph.mode != "realtime":
        for sink in graph.sinks:
            if isinstance(sink.sink, m.KafkaSink) and sink.sink.commit != m.KafkaSink.commit:
                message = "applies to `mode: realtime`; other hosts write one transaction per step: remove it"
                yield error(f"{place(graph, sink, sink_path(sink.sink))}.commit", message)
        return
    first, *others = graph.sources
    for source in others:
        message = f"`mode: realtime` supports a single source, because partitions run independently; {_STREAM}"
        yield error(place(graph, source), message)
    yield from _source(graph, first)
    for sink in graph.sinks:
        yield from _sink(graph, sink, first)
    yield from _keys(graph)
    for node in graph.nodes:
        yield from _node(graph, node)


def _source(graph: m.Graph, node: m.SourceNode) -> Iterator[Finding]:
    if not isinstance(node.source, m.KafkaSource):
        message = f"`mode: realtime` reads a Kafka topic, because its transactions hold the position too; {_STREAM}"
        yield error(place(graph, node, "source"), message)
    if node.time.idle is not None and node.time.all_idle == "advance":
        message = (
            "with `mode: realtime` the clock of a partition is that of its own records, so `advance` does not apply; "
            f"remove it, or {_STREAM}"
        )
        yield error(place(graph, node, "time.all_idle"), message)


def _sink(graph: m.Graph, node: m.SinkNode, source: m.SourceNode) -> Iterator[Finding]:
    sink, where = node.sink, place(graph, node, sink_path(node.sink))
    if not isinstance(sink, m.KafkaSink):
        message = (
            "`mode: realtime` writes only to Kafka (sink: {kafka: ...}), in one transaction with the position; a "
            f"second pipeline can write the topic to a table. Or {_STREAM}"
        )
        yield error(where, message)
        return
    if sink.options:
        yield error(f"{where}.options", "`mode: realtime` uses the options of the source: remove them here")
    if not 0 < sink.commit <= _MOST_COMMIT:
        yield error(f"{where}.commit", "must be longer than 0 and at most 5s: uncommitted changes are invisible")
    if isinstance(source.source, m.KafkaSource):
        if _brokers(sink.servers) != _brokers(source.source.servers):
            message = (
                f"{sink.servers!r} are not the brokers of the source, {source.source.servers!r}: a transaction with "
                "changes and positions needs both topics in one cluster"
            )
            yield error(f"{where}.servers", message)
        if sink.topic == source.source.topic:
            yield error(f"{where}.topic", "is the topic of the source: use a different one")


def _brokers(servers: str) -> set[str]:
    return {server.strip() for server in servers.split(",")}


def _keys(graph: m.Graph) -> Iterator[Finding]:
    """Check that all nodes with state have the same key.

    There is no exchange between partitions, so the topic must be partitioned by this key.
    """
    keyed = [node for node in graph.keyed if not isinstance(node, m.DeduplicateNode)]
    for node in keyed:
        if not node.key:
            message = (
                "is missing, but with `mode: realtime` partitions do not share records: give the field by which the "
                f"topic is partitioned, or {_STREAM}"
            )
            yield error(place(graph, node, "key"), message)
        elif _keys_of(node) != _keys_of(keyed[0]):
            message = (
                f"is {', '.join(node.key)}, but the key of {keyed[0].name!r} is {', '.join(keyed[0].key)}: with `mode: "
                "realtime` records stay in their partition, so all keys must be the one by which the topic is "
                f"partitioned; or {_STREAM}"
            )
            yield error(place(graph, node, "key"), message)
        elif isinstance(node, m.AnyJoinNode) and {*node.key} != {*node.right_key}:
            message = (
                f"joins {', '.join(node.key)} and {', '.join(node.right_key)}: with `mode: realtime` records stay in "
                f"their partition, so both sides must have the key by which the topic is partitioned; or {_STREAM}"
            )
            yield error(place(graph, node, "join"), message)


def _keys_of(node: m.KeyedNode) -> set[str]:
    """Return the key fields of a node; for a join, those of both sides."""
    return {*node.key, *(node.right_key if isinstance(node, m.AnyJoinNode) else ())}


def _node(graph: m.Graph, node: m.Node) -> Iterator[Finding]:
    match node:
        case m.DeduplicateNode(scope="stream"):
            message = (
                "`mode: realtime` finds copies of a record only in its own partition: set `scope: partition`, which "
                "is correct if the topic is partitioned by a field that all copies have in common"
            )
            yield error(place(graph, node, "deduplicate.scope"), message)
        case m.WindowNode():
            if node.emit.late == "batch":
                message = (
                    "`batch` writes one revision per step, but in real time the steps are polls: remove it, to write "
                    "one revision per late record"
                )
                yield error(place(graph, node, "emit.late"), message)
            if has_every(node.emit.early):
                message = (
                    "early panes by processing time need ticks, which `mode: realtime` does not have: use "
                    f"`event_time` or `count`, or {_STREAM}"
                )
                yield error(place(graph, node, "emit.early"), message)
            if node.salt > 1:
                message = "spreads records over key groups, but in real time a partition has only one: remove it"
                yield error(place(graph, node, "salt"), message)
        case m.ProcessNode() if node.process.on_processing_timer is not None:
            message = (
                "needs ticks of processing time, which `mode: realtime` does not have: use timers of event time "
                f"(on_timer), or {_STREAM}"
            )
            yield error(place(graph, node, "process.on_processing_timer"), message)
        case _:
            pass
