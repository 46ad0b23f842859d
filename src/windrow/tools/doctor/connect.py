"""Connection checks: the logs, registries, tables, checkpoint, Java and Spark that a pipeline needs in order to run.

Nothing is created, written or locked, and Spark is not started. A finding is `serious` if a run would fail, and
`advice` if a run would start but its results are unlikely to be the intended ones.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from windrow import model as m
from windrow.errors import CheckpointError, WindrowError
from windrow.model.references import mask_url
from windrow.runtime.settings import SparkOptions, is_local
from windrow.runtime.spark.jars import java
from windrow.telemetry.folders import Folder
from windrow.telemetry.numbers import format_time, short_bytes
from windrow.telemetry.reports import counted
from windrow.tools.doctor.examine import disk, log_facts, machine_facts
from windrow.tools.doctor.facts import LEAST_FREE, Finding, Machine, Unknown, advice, fine, serious, unknown

if TYPE_CHECKING:
    from windrow.connectors.sink import Follows, Run, Sink
    from windrow.runtime.run import HostName

_REACH: Final = 3.0
"""Seconds to connect to a cluster."""
_MOST_PARTITIONS: Final = 16
"""Partitions whose newest record is read, at most."""
_PORTS: Final = {"http": 80, "https": 443}


def connect(graph: m.Graph, checkpoint: Folder, host: HostName, spark: SparkOptions) -> Iterator[Finding]:
    """Yield findings in the order in which a run opens its connections; the `title` names the connection.

    A run on the memory or batch host has no checkpoint. On the memory host it needs neither Java nor Spark.
    """
    for node in graph.sources:
        title = "source" if graph.is_short else f"source {node.name}"
        yield from _about(title, partial(_source, graph, node))
        if isinstance(node.source, m.KafkaSource):
            for registry in dict.fromkeys(node.source.registries.values()):
                yield from _about("registry", partial(_reach, registry))
    run: Run | None = None
    follows: Follows | None = None
    if host in {"stream", "realtime"}:
        found, run, follows = _checkpoint(checkpoint, graph)
        yield replace(found, title="checkpoint")
    yield from _about("sink", partial(_sinks, graph, run, follows))
    if host != "memory":
        machine = machine_facts()
        yield from _about("Java", partial(_java, machine))
        yield from _about("Spark", partial(_spark, machine))
        yield from _about("master", partial(_master, spark))


def _about(title: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield findings, with `title` where they have none; turn a WindrowError or OSError into a serious finding."""
    try:
        for finding in look():
            yield replace(finding, title=finding.title or title)
    except (WindrowError, OSError) as exc:
        yield replace(serious(str(exc), ""), title=title)


def _source(graph: m.Graph, node: m.SourceNode) -> Iterator[Finding]:
    from windrow.connectors.open_sources import followers  # noqa: PLC0415 - Arrow only where there is a pipeline

    place = mask_url(node.source.place)
    follower = followers(graph).get(node.name)
    if follower is not None:
        follower.preflight()
        what = "file" if isinstance(node.source, m.FileSource) else "table"
        what += "s" * (isinstance(node.source, m.PostgresCdcSource) and len(node.source.names) > 1)
        yield fine(f"{place}: the {what} can be followed")
        return
    facts = log_facts(node)
    if isinstance(facts, Unknown):
        yield serious(f"{place}: {facts.why}" if place not in facts.why else facts.why, "")
        return
    size = f"{counted(facts.partitions, 'partition')}"
    if facts.records is None:
        yield fine(f"{place}: {size}; its records were not counted, because there are many")
    elif not facts.records:
        yield advice(f"{place}: {size} without records", "a run has nothing to read yet")
    else:
        yield from _newest(node, f"{place}: {size}, {counted(facts.records, 'record')}")


def _newest(node: m.SourceNode, what: str) -> Iterator[Finding]:
    """Read and decode the newest record of each partition, which shows that the run is permitted to read records."""
    from windrow.connectors.open_sources import open_decoded  # noqa: PLC0415 - the same
    from windrow.engine.columns import to_micros  # noqa: PLC0415 - Arrow only where there is a log
    from windrow.engine.decode.decoder import Decoder  # noqa: PLC0415 - the same

    source = open_decoded(node)
    ends = source.ends()
    decoder = Decoder(node, truncations="applied" if len(ends) == 1 else "refused")
    times, logged, dead = list[int](), list[int](), list[str]()
    filled = [(partition, end) for partition, (first, end) in ends.items() if first < end]
    for partition, end in filled[:_MOST_PARTITIONS]:
        for batch in source.read_from(partition, end - 1):
            decoded = decoder.decode(batch)
            times += decoded.good.column(2).to_pylist()
            logged += to_micros(batch.column("log_time").drop_null()).tolist()
            reasons = decoded.dead.column("reason").to_pylist()
            dead += [f"partition {partition}, offset {end - 1}: {reason}" for reason in reasons]
    newest = [f"has the event time {format_time(max(times))}"] if times else []
    newest += [f"was logged at {format_time(max(logged))}"] if logged else []
    yield fine(f"{what}; the newest {' and '.join(newest)}" if newest else what)
    if dead:
        yield advice(
            f"the newest record is a dead letter: {dead[0]}" + (f" (and {len(dead) - 1} more)" if dead[1:] else ""),
            "the fields of the pipeline may not match those of the records",
            "compare `decode` with a record of the log",
        )


def _reach(registry: m.Registry) -> Iterator[Finding]:
    from windrow.engine.decode.registry import Schemas  # noqa: PLC0415 - Arrow only where there is a registry

    Schemas(registry, "", str).reach()
    yield fine(f"{mask_url(registry.url)} answers")


def _checkpoint(folder: Folder, graph: m.Graph) -> tuple[Finding, Run | None, Follows | None]:
    """Return a finding about the checkpoint, the run that wrote it, and the run that this one continues."""
    from windrow.runtime.stream.checkpoint import Checkpoint  # noqa: PLC0415 - Arrow only where there may be one

    try:
        # a realtime run has its checkpoints in a topic, and its history alone in the folder
        known = None if graph.mode == "realtime" else Checkpoint.open(folder, graph)
    except (CheckpointError, OSError) as exc:
        return serious(str(exc), ""), None, None
    has_room = True
    if not isinstance(folder, Path):
        where = f"{folder} answers"
    else:
        there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            what = f"{folder} cannot be written: {there} is not a folder that this user can write to"
            return serious(what, "", "choose another folder with --checkpoint, or change its permissions"), None, None
        free = disk(folder).free
        where = f"{folder} can be written, {short_bytes(free)} are free"
        has_room = free >= LEAST_FREE
    if known is None:
        stands = "no run has left a checkpoint there"
    elif known.committed is None:
        stands = "its run has not committed a step"
    else:
        stands = f"its run has committed the epochs 0 to {known.committed}"
    found = f"{where}; {stands}"
    finding = fine(found) if has_room else advice(found, "a run ends when its disk is full", "make room")
    return (finding, None, None) if known is None else (finding, known.run, known.follows)


def _sinks(graph: m.Graph, run: Run | None, follows: Follows | None) -> Iterator[Finding]:
    from windrow.connectors.open_sinks import open_sinks  # noqa: PLC0415 - Arrow only where there is a pipeline
    from windrow.connectors.sink import Run as Owner  # noqa: PLC0415 - the same

    if graph.mode == "realtime":
        from windrow.runtime.realtime.topics import missing_topics  # noqa: PLC0415 - librdkafka only where it is needed

        missing = missing_topics(graph)
        yield fine(f"the run will create {', '.join(missing)}" if missing else "all topics exist")
        return
    models = {node.name: node.sink for node in graph.sinks}
    for names, sink in open_sinks(graph):
        tables = ", ".join(models[name].table for name in names)
        what = f"{mask_url(models[names[0]].place)}: {tables}"
        title = f"sink {', '.join(names)}".rstrip()
        yield from _about(title, partial(_tables, sink, what, run or Owner.new(graph.name), follows))


def _tables(sink: Sink, what: str, run: Run, follows: Follows | None) -> Iterator[Finding]:
    sink.preflight(run, follows)
    yield fine(f"{what} can be written, and no other run owns them")


def _java(machine: Machine) -> Iterator[Finding]:
    path = java()  # raises without Java
    yield fine(f"{machine.versions['java'] or 'of an unknown version'} ({path})")


def _spark(machine: Machine) -> Iterator[Finding]:
    unmet = [requirement for requirement in machine.unmet if requirement.startswith("pyspark ")]
    if unmet:
        yield serious(f"installed in an unsupported version: {unmet[0]}", "", "pip install windrow")
    else:
        yield fine(f"pyspark {machine.versions['pyspark']} (not started)")


def _master(spark: SparkOptions) -> Iterator[Finding]:
    master = spark.settings()["spark.master"]
    if is_local(master):
        yield fine(f"{master}: Spark runs on this machine")
        return
    scheme, _, rest = master.partition("://")
    if scheme == "yarn":
        yield unknown("yarn: its address is in the Hadoop configuration")
        return
    if scheme == "k8s":
        url = urlsplit(rest if "://" in rest else f"https://{rest}")
        places = [(url.hostname or "", url.port or _PORTS.get(url.scheme, 443))]
    else:
        found = [re.fullmatch(r"\[?([^\]]+?)\]?:(\d+)", address) for address in rest.split(",")]
        places = [(match[1], int(match[2])) for match in found if match is not None]
    for host, port in places:
        with suppress(OSError), socket.create_connection((host, port), timeout=_REACH):
            yield fine(f"{master} accepts connections")
            return
    what = f"nothing accepts connections at {master}"
    yield serious(what, "", "start the cluster, or correct --master; --master 'local[*]' needs none")
