"""The probe that collects facts about the steps of a run, for reports only.

A fact is a field of `StepFacts` and a line of `StepProbe` that sets it; the step's report (`windrow.telemetry.reports`)
has a field of the same name.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine.changelog import StepOutput, reason_kinds
from windrow.engine.columns import Blob, distinct, to_micros
from windrow.engine.operators.base import StepInput
from windrow.engine.operators.window.build import is_running
from windrow.engine.probe import NodeStep, OpenProbe
from windrow.engine.schema import OFFSET, PARTITION, SIDE, TIME
from windrow.engine.truncations import split_truncations
from windrow.expressions import spec_of, stream_of
from windrow.telemetry import facts
from windrow.telemetry.facts import Count, CountsByName, CountsBySink
from windrow.telemetry.histogram import Histogram, count_by_row
from windrow.telemetry.hot_keys import HotKeys
from windrow.telemetry.part_times import PartTime
from windrow.telemetry.samples import VERDICTS, RecordSample, VerdictRow, least, limit, places_below
from windrow.telemetry.window_counts import GroupWindows


class LogAges(NamedTuple):
    """How much older the log timestamps of a partition's records are than the newest one read with them (`newest`)."""

    partition: int
    ages: Histogram
    newest: int


@dataclass
class StepFacts:
    """Facts about a step, collected by one probe or summed over several.

    The annotation of a field is its kind (`windrow.telemetry.facts`, which explains how to add a fact). `read` is the
    number of good records of each partition, and `leaps` the number of those that are too far ahead of a guarded clock.
    `ages` are the ages of the records of each batch, `samples` a sample of the good records, and `verdicts` the
    verdicts of each node on records that may be in that sample. `lateness` counts for each partition how far records
    were behind the partition's clock; a record counts once for each operator that takes it from its source. `hot_keys`
    are estimates for each node, `windows` are counts for each node that has windows, and `open_windows` is the count
    for all nodes together. `dead_reasons` counts dead letters by the kind of their reason; `dead_by_sink` counts them
    for each sink if there are several. `part_times` are the timings of tasks.
    """

    read: Annotated[dict[int, int], facts.COUNTS] = field(default_factory=dict)
    leaps: Annotated[dict[int, int], facts.COUNTS] = field(default_factory=dict)
    ages: Annotated[list[LogAges], facts.LISTED] = field(default_factory=list)
    samples: Annotated[list[RecordSample], facts.LISTED] = field(default_factory=list)
    verdicts: Annotated[dict[str, list[VerdictRow]], facts.COUNTS] = field(default_factory=dict)
    lateness: Annotated[dict[int, Histogram], facts.COUNTS] = field(default_factory=dict)
    hot_keys: Annotated[dict[str, HotKeys], facts.COUNTS] = field(default_factory=dict)
    windows: Annotated[dict[str, GroupWindows], facts.GROUP_WINDOWS] = field(default_factory=dict)
    open_windows: Count = 0
    dead_reasons: CountsByName = field(default_factory=dict)
    dead_by_sink: CountsBySink = field(default_factory=dict)
    part_times: Annotated[list[PartTime], facts.LISTED] = field(default_factory=list)

    @staticmethod
    def sum(several: Iterable[StepFacts]) -> StepFacts:
        """Return the sum of the facts from several probes."""
        return StepFacts(**facts.sum_facts(StepFacts, list(several)))

    def encode(self) -> bytes:
        """Serialize the facts for the driver, which runs the same version."""
        return zlib.compress(pickle.dumps(self, pickle.HIGHEST_PROTOCOL), 1)

    @staticmethod
    def decode(blob: Blob) -> StepFacts:
        """Deserialize the result of `encode`."""
        unpacked: StepFacts = pickle.loads(zlib.decompress(blob))  # noqa: S301 - tasks of the same run wrote it
        return unpacked


def observe_times(times: Iterable[PartTime]) -> bytes:
    """Return the encoded facts of a task that reports only its timings."""
    return StepFacts(part_times=list(times)).encode()


def step_probe(graph: m.Graph) -> OpenProbe:
    """Return a factory of probes for a graph whose steps are reported."""
    nodes = {place.node.name: _Node.of(graph, place.node) for level in graph.levels for place in level}
    names = [node.name or graph.name for node in graph.keyed if nodes[node.name].windows is not None]
    return partial(StepProbe, nodes, names)


@dataclass(frozen=True)
class _Node:
    """The properties of a node that its facts depend on.

    If `is_sampled`, the worst verdict on each sampled record is reported. `windows` is the node's name in reports, or
    None if the node has no windows.
    """

    key: tuple[str, ...]
    is_broadcast: bool
    is_sampled: bool
    windows: str | None

    @staticmethod
    def of(graph: m.Graph, node: m.KeyedNode | m.SinkNode) -> _Node:
        has_windows = isinstance(node, m.WindowNode) and not is_running(graph, node)
        return _Node(
            key=spec_of(graph, node).key,
            is_broadcast=isinstance(node, m.LookupNode) and node.broadcast,
            # a row of a join is no record of a log
            is_sampled=not any(stream_of(graph, name).has_id for name in node.inputs),
            windows=(node.name or graph.name) if has_windows else None,
        )


class StepProbe:
    """Collects the facts about a step within a task."""

    def __init__(self, nodes: Mapping[str, _Node], windowed: Sequence[str]) -> None:
        self._nodes = nodes
        self._windowed = windowed
        self._records = 0
        self._leaps: dict[int, int] = {}
        self._facts = StepFacts()

    def read(self, batch: pa.RecordBatch, records: pa.Table) -> None:
        """Add the ages of a batch's records in the log, and sample its good records."""
        self._records += records.num_rows
        self._facts.ages += _log_ages(batch)
        self._facts.samples += _sample_batch(batch, records, self._records)

    def step(self, step: NodeStep) -> None:
        """Add the lateness, keys, verdicts and windows of an operator."""
        node, seen = self._nodes[step.node], self._facts
        self._leaps = step.clocks.leaps
        if not seen.windows:
            # of all levels: their order is that of the graph
            seen.windows = dict.fromkeys(self._windowed, GroupWindows())
        _count_lateness(node, step, seen.lateness)
        keys = HotKeys.of(step.given, node.key)
        if keys.records:
            seen.hot_keys[step.node] = keys
        if node.is_sampled and (verdicts := _sample_verdicts(step)):
            seen.verdicts[step.node] = verdicts
        made = step.made
        seen.open_windows += made.open_windows
        if node.windows is not None:
            windows = GroupWindows(made.open_windows, made.fired_windows, made.closed_windows)
            seen.windows[node.windows] = windows

    def output(self, group: int, given: StepInput, rows: Mapping[str, StepOutput]) -> None:
        """Count dead letters and, in the first key group, what all key groups know of each partition's records."""
        seen = self._facts
        seen.read = {} if group else {progress.partition: progress.records for progress in given.progress}
        seen.leaps = {} if group else self._leaps
        seen.dead_reasons = reason_kinds(given.dead.values())
        # the counts of a single sink are those of all
        by_sink = {sink: reason_kinds([output.dead]) for sink, output in rows.items()} if len(rows) > 1 else {}
        seen.dead_by_sink = {sink: counts for sink, counts in by_sink.items() if counts}

    def blob(self) -> bytes | None:
        """Return the encoded facts, or None if there are none."""
        seen = self._facts
        seen.samples = list(least(seen.samples))
        return None if seen == StepFacts() else seen.encode()


def _count_lateness(node: _Node, step: NodeStep, into: dict[int, Histogram]) -> None:
    """Add to `into`, for each partition, how far the records of sources are behind the partition's clock.

    All key groups read the versions of a broadcast lookup and truncations; they are counted only in the first.
    """
    records = step.raw
    if records.num_rows and step.group:
        records, _ = split_truncations(records)
        if node.is_broadcast:
            records = records.filter(pc.equal(records.column(SIDE), 0))
    if not records.num_rows:
        return
    # each partition that has records is known
    partitions = np.array(sorted(step.clocks.known), dtype=np.int64)
    rows = np.searchsorted(partitions, records.column(PARTITION).to_numpy())
    counts = count_by_row(step.clocks.behind(records), rows, len(partitions))
    for partition, row in zip(partitions.tolist(), counts, strict=True):
        if any(row):
            into[partition] = into.get(partition, Histogram()) + Histogram.of_counts(row)


def _sample_verdicts(step: NodeStep) -> list[VerdictRow]:
    """Return the verdicts on records that may be in the step's sample."""
    most = limit(sum(progress.records for progress in step.input.progress))
    rows: list[VerdictRow] = []
    for judged in step.judged:
        if judged.records.num_rows:
            partitions, offsets = judged.places
            for place in places_below(most, partitions, offsets)[0]:
                number = 2 if judged.expired[place] else 0 if judged.on_time[place] else 1
                rows.append((int(partitions[place]), int(offsets[place]), VERDICTS[number]))
    return rows


def _sample_batch(batch: pa.RecordBatch, records: pa.Table, read: int) -> Iterator[RecordSample]:
    """Yield the good records of a batch that may be in the step's sample.

    `read` is the number of records read so far, including this batch.
    """
    partitions, offsets = (to_micros(records.column(name)) for name in (PARTITION, OFFSET))
    places, ranks = places_below(limit(read), partitions, offsets)
    if not places:
        return
    all_partitions, all_offsets = (to_micros(batch.column(name)) for name in ("partition", "offset"))
    log_times = batch.column("log_time")
    times = to_micros(records.column(TIME))
    numbers = distinct(all_partitions)
    rows = {number: np.flatnonzero(all_partitions == number) for number in numbers} if len(numbers) > 1 else {}
    for place, rank in zip(places, ranks, strict=True):
        partition, offset = int(partitions[place]), int(offsets[place])
        at = rows.get(partition)
        row = int(np.searchsorted(all_offsets if at is None else all_offsets[at], offset))
        log_time = log_times[row if at is None else int(at[row])]
        yield RecordSample(partition, offset, int(times[place]), log_time.value, rank)


def _log_ages(batch: pa.RecordBatch) -> Iterator[LogAges]:
    """Count the ages of records for each partition, if the log has timestamps."""
    times = batch.column("log_time")
    if times.null_count == len(times):
        return
    numbers = batch.column("partition").to_numpy()
    if times.null_count:
        is_known = times.is_valid()
        times, numbers = times.filter(is_known), numbers[is_known.to_numpy(zero_copy_only=False)]
    micros = to_micros(times)
    for number in distinct(numbers):
        own = micros[numbers == number]
        newest = int(own.max())
        yield LogAges(number, Histogram.of(newest - own), newest)
