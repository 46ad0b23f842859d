"""Checks of a pipeline that runs in real time: one topic in and topics out, one key, and no clock but the log's."""

from __future__ import annotations

from collections.abc import Iterator

from windrow import model as m
from windrow.authoring.checks.base import sink_path
from windrow.authoring.checks.streams import place
from windrow.declare.findings import Finding, error
from windrow.model.triggers import has_every

_MOST_COMMIT = 5_000_000
_STREAM = "leave `mode` out: the stream host does that, about a second behind"


def realtime(graph: m.Graph) -> Iterator[Finding]:
    """Refuse what the realtime host cannot run, and on the other hosts a setting that is only for it."""
    if graph.mode != "realtime":
        for sink in graph.sinks:
            if isinstance(sink.sink, m.KafkaSink) and sink.sink.commit != m.KafkaSink.commit:
                message = "is for `mode: realtime`; other hosts write a transaction a step: leave it out"
                yield error(f"{place(graph, sink, sink_path(sink.sink))}.commit", message)
        return
    first, *others = graph.sources
    for source in others:
        message = f"with `mode: realtime` there is one source, as a partition is run by itself; {_STREAM}"
        yield error(place(graph, source), message)
    yield from _source(graph, first)
    for sink in graph.sinks:
        yield from _sink(graph, sink, first)
    yield from _keys(graph)
    for node in graph.nodes:
        yield from _node(graph, node)


def _source(graph: m.Graph, node: m.SourceNode) -> Iterator[Finding]:
    if not isinstance(node.source, m.KafkaSource):
        message = f"`mode: realtime` reads a Kafka topic, as its transactions hold the position too; {_STREAM}"
        yield error(place(graph, node, "source"), message)
    if node.time.idle is not None and node.time.all_idle == "advance":
        message = (
            "with `mode: realtime` a partition has the clock of its own records: `advance` would let the wall clock "
            f"decide; leave it out, or {_STREAM}"
        )
        yield error(place(graph, node, "time.all_idle"), message)


def _sink(graph: m.Graph, node: m.SinkNode, source: m.SourceNode) -> Iterator[Finding]:
    sink, where = node.sink, place(graph, node, sink_path(node.sink))
    if not isinstance(sink, m.KafkaSink):
        message = (
            "`mode: realtime` writes to Kafka alone (sink: {kafka: ...}), in one transaction with the position; a "
            f"second pipeline brings the topic into a table. Or {_STREAM}"
        )
        yield error(where, message)
        return
    if sink.options:
        yield error(f"{where}.options", "with `mode: realtime` the options of the source hold: leave them out here")
    if not 0 < sink.commit <= _MOST_COMMIT:
        yield error(f"{where}.commit", "must be longer than 0 and 5s at most: what is not committed yet is not seen")
    if isinstance(source.source, m.KafkaSource):
        if _brokers(sink.servers) != _brokers(source.source.servers):
            message = (
                f"{sink.servers!r} are not the brokers of the source, {source.source.servers!r}: one transaction holds "
                "changes and positions, so both topics are in one cluster"
            )
            yield error(f"{where}.servers", message)
        if sink.topic == source.source.topic:
            yield error(f"{where}.topic", "is the topic that is read: name another one")


def _brokers(servers: str) -> set[str]:
    return {server.strip() for server in servers.split(",")}


def _keys(graph: m.Graph) -> Iterator[Finding]:
    """Records are not exchanged: all nodes with state have one key, by which the topic is partitioned."""
    keyed = [node for node in graph.keyed if not isinstance(node, m.DeduplicateNode)]
    for node in keyed:
        if not node.key:
            message = (
                "is missing, and with `mode: realtime` no partition sees the records of another: give the field by "
                f"which the topic is partitioned, or {_STREAM}"
            )
            yield error(place(graph, node, "key"), message)
        elif _keys_of(node) != _keys_of(keyed[0]):
            message = (
                f"is {', '.join(node.key)}, and that of {keyed[0].name!r} {', '.join(keyed[0].key)}: with `mode: "
                "realtime` records stay in their partition, so there is one key, by which the topic is partitioned; "
                f"else {_STREAM}"
            )
            yield error(place(graph, node, "key"), message)
        elif isinstance(node, m.AnyJoinNode) and {*node.key} != {*node.right_key}:
            message = (
                f"brings {', '.join(node.key)} and {', '.join(node.right_key)} together: with `mode: realtime` records "
                f"stay in their partition, so both sides have the key by which the topic is partitioned; else {_STREAM}"
            )
            yield error(place(graph, node, "join"), message)


def _keys_of(node: m.KeyedNode) -> set[str]:
    """Return the fields of a node's key, of both sides of a join."""
    return {*node.key, *(node.right_key if isinstance(node, m.AnyJoinNode) else ())}


def _node(graph: m.Graph, node: m.Node) -> Iterator[Finding]:
    match node:
        case m.DeduplicateNode(scope="stream"):
            message = (
                "copies of a record are looked for in its partition alone with `mode: realtime`: set `scope: "
                "partition`, which is right if the topic is partitioned by a field that all copies have in common"
            )
            yield error(place(graph, node, "deduplicate.scope"), message)
        case m.WindowNode():
            if node.emit.late == "batch":
                message = (
                    "`batch` makes a revision a step, and in real time the polls are the steps: leave it out, for a "
                    "revision a late record"
                )
                yield error(place(graph, node, "emit.late"), message)
            if has_every(node.emit.early):
                message = (
                    "early panes by processing time need ticks, which `mode: realtime` has none of: take "
                    f"`event_time` or `records`, or {_STREAM}"
                )
                yield error(place(graph, node, "emit.early"), message)
            if node.salt > 1:
                message = "spreads records over key groups, and a partition has one in real time: leave it out"
                yield error(place(graph, node, "salt"), message)
        case m.ProcessNode() if node.process.on_processing_timer is not None:
            message = (
                "needs ticks of processing time, which `mode: realtime` has none of: use timers of event time "
                f"(on_timer), or {_STREAM}"
            )
            yield error(place(graph, node, "process.on_processing_timer"), message)
        case _:
            pass
