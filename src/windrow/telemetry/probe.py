"""The probe of runs that are reported: facts of a step, for its report alone.

A fact has a field of `StepFacts`, a line where `StepProbe` sees it, and one in the sum of facts; the report of the step
(`windrow.telemetry.reports`) takes it from there.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine.changelog import StepOutput, reason_kinds
from windrow.engine.columns import Blob, distinct, to_micros
from windrow.engine.operators.base import Judged, StepInput
from windrow.engine.operators.window.build import is_running
from windrow.engine.probe import NodeStep, OpenProbe
from windrow.engine.schema import OFFSET, PARTITION, SIDE, TIME
from windrow.expressions import spec_of, stream_of
from windrow.telemetry.histogram import Histogram, count_by_row
from windrow.telemetry.hot_keys import HotKeys, add_by_node
from windrow.telemetry.part_times import PartTime
from windrow.telemetry.samples import VERDICTS, RecordSample, VerdictRow, join_verdicts, least, limit, places_below
from windrow.telemetry.sums import add_counts, sum_by_name
from windrow.telemetry.window_counts import GroupWindows

K = TypeVar("K")
V = TypeVar("V")


class LogAges(NamedTuple):
    """How much older records of a partition are in the log than the newest that was read with them (`newest`)."""

    partition: int
    ages: Histogram
    newest: int


@dataclass
class StepFacts:
    """Facts of a step, as one probe has seen them or several.

    `read` are the good records of each partition. `ages` are those of the records of a batch, `samples` of the good
    records, `verdicts` on records that may be among them, by node. `lateness` counts by partition how far records were
    behind the clock of their partition, each once for each operator that takes it from its source. `hot_keys` are
    estimates by node, `windows` those of each node that has windows, `open_windows` those of all nodes together.
    `dead_reasons` counts dead letters by the kind of their reason, `dead_by_sink` those that each sink of several is
    given. `part_times` are those of tasks.
    """

    read: dict[int, int] = field(default_factory=dict)
    ages: list[LogAges] = field(default_factory=list)
    samples: list[RecordSample] = field(default_factory=list)
    verdicts: dict[str, list[VerdictRow]] = field(default_factory=dict)
    lateness: dict[int, Histogram] = field(default_factory=dict)
    hot_keys: dict[str, HotKeys] = field(default_factory=dict)
    windows: dict[str, GroupWindows] = field(default_factory=dict)
    open_windows: int = 0
    dead_reasons: dict[str, int] = field(default_factory=dict)
    dead_by_sink: dict[str, dict[str, int]] = field(default_factory=dict)
    part_times: list[PartTime] = field(default_factory=list)

    @staticmethod
    def sum(several: Iterable[StepFacts]) -> StepFacts:
        """Add up the facts of several probes."""
        facts = list(several)
        return StepFacts(
            read=sum_by_name([fact.read for fact in facts]),
            ages=[row for fact in facts for row in fact.ages],
            samples=[row for fact in facts for row in fact.samples],
            verdicts=join_verdicts(fact.verdicts for fact in facts),
            lateness=sum_by_name([fact.lateness for fact in facts]),
            hot_keys=add_by_node(fact.hot_keys for fact in facts),
            windows=sum_by_name([fact.windows for fact in facts], GroupWindows.plus),
            open_windows=sum(fact.open_windows for fact in facts),
            dead_reasons=sum_by_name([fact.dead_reasons for fact in facts]),
            dead_by_sink=sum_by_name([fact.dead_by_sink for fact in facts], add_counts),
            part_times=[time for fact in facts for time in fact.part_times],
        )

    def encode(self) -> bytes:
        """Pack for the way to the report, which is read by the same version."""
        return zlib.compress(pickle.dumps(self, pickle.HIGHEST_PROTOCOL), 1)

    @staticmethod
    def decode(blob: Blob) -> StepFacts:
        """Read what `encode` wrote."""
        facts: StepFacts = pickle.loads(zlib.decompress(blob))  # noqa: S301 - tasks of the same run wrote it
        return facts


def observe_times(times: Iterable[PartTime]) -> bytes:
    """Return the blob of a probe that has seen only the times of a task."""
    return StepFacts(part_times=list(times)).encode()


def step_probe(graph: m.Graph) -> OpenProbe:
    """Return what opens the probe of a step of a graph that is reported."""
    nodes = {place.node.name: _Node.of(graph, place.node) for level in graph.levels for place in level}
    names = [node.name or graph.name for node in graph.keyed if nodes[node.name].windows is not None]
    return partial(StepProbe, nodes, names)


@dataclass(frozen=True)
class _Node:
    """What facts of a node depend on.

    The worst verdicts of its records are sampled if it `is_sampled`. `windows` is its name in a report if it has some.
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
    """Gathers the facts of a step of a task."""

    def __init__(self, nodes: Mapping[str, _Node], windowed: Sequence[str]) -> None:
        self._nodes = nodes
        self._windowed = windowed
        self._records = 0
        self._facts = StepFacts()

    def read(self, batch: pa.RecordBatch, records: pa.Table) -> None:
        """Add the ages of a batch in the log, and sample its good records."""
        self._records += records.num_rows
        self._facts.ages += _log_ages(batch)
        self._facts.samples += _sampled(batch, records, self._records)

    def step(self, step: NodeStep) -> None:
        """Add the lateness, keys, verdicts and windows of an operator."""
        node, facts = self._nodes[step.node], self._facts
        if not facts.windows:
            # of all levels: their order is that of the graph
            facts.windows = dict.fromkeys(self._windowed, GroupWindows())
        _count_lateness(node, step, facts.lateness)
        keys = HotKeys.of(step.given, node.key)
        if keys.records:
            facts.hot_keys[step.node] = keys
        if node.is_sampled and (verdicts := _sampled_verdicts(step)):
            facts.verdicts[step.node] = verdicts
        made = step.made
        facts.open_windows += made.open_windows
        if node.windows is not None:
            windows = GroupWindows(made.open_windows, made.fired_windows, made.closed_windows)
            facts.windows[node.windows] = windows

    def output(self, group: int, given: StepInput, rows: Mapping[str, StepOutput]) -> None:
        """Count records, which all key groups know, in the first; and dead letters."""
        facts = self._facts
        facts.read = {} if group else {one.partition: one.records for one in given.progress}
        facts.dead_reasons = reason_kinds(given.dead.values())
        # of a single sink the counts of all say it
        by_sink = {sink: reason_kinds([one.dead]) for sink, one in rows.items()} if len(rows) > 1 else {}
        facts.dead_by_sink = {sink: counts for sink, counts in by_sink.items() if counts}

    def blob(self) -> bytes | None:
        """Return the facts, packed."""
        facts = self._facts
        facts.samples = list(least(facts.samples))
        return None if facts == StepFacts() else facts.encode()


def _count_lateness(node: _Node, step: NodeStep, into: dict[int, Histogram]) -> None:
    """Add by partition how far the records of sources are behind the clocks.

    The versions of a broadcast lookup, which all key groups have, are counted in the first.
    """
    records = step.raw
    if records.num_rows and step.group and node.is_broadcast:
        records = records.filter(pc.equal(records.column(SIDE), 0))
    if not records.num_rows:
        return
    # each partition that has records is known
    partitions = np.array(sorted(step.clocks.known), dtype=np.int64)
    rows = np.searchsorted(partitions, records.column(PARTITION).to_numpy())
    counts = count_by_row(step.clocks.behind(records), rows, len(partitions))
    for partition, row in zip(partitions.tolist(), counts, strict=True):
        if any(row):
            into[partition] = into.get(partition, Histogram()) + Histogram.trimmed(row)


def _sampled_verdicts(step: NodeStep) -> list[VerdictRow]:
    """Return the verdicts on the records that may be in the sample of the step."""
    most = limit(sum(one.records for one in step.input.progress))
    return [row for judged in step.judged if judged.records.num_rows for row in _verdicts_below(most, judged)]


def _verdicts_below(most: int, judged: Judged) -> Iterator[VerdictRow]:
    partitions, offsets = judged.places
    for place in places_below(most, partitions, offsets)[0]:
        number = 2 if judged.expired[place] else 0 if judged.on_time[place] else 1
        yield int(partitions[place]), int(offsets[place]), VERDICTS[number]


def _sampled(batch: pa.RecordBatch, records: pa.Table, read: int) -> Iterator[RecordSample]:
    """Yield records of a batch that may be in the sample of the step, of which so many were read with them."""
    partitions, offsets = (to_micros(records.column(name)) for name in (PARTITION, OFFSET))
    places, ranks = places_below(limit(read), partitions, offsets)
    if not places:
        return
    its_partitions, its_offsets = (to_micros(batch.column(name)) for name in ("partition", "offset"))
    log_times = batch.column("log_time")
    times = to_micros(records.column(TIME))
    own = distinct(its_partitions)
    rows = {number: np.flatnonzero(its_partitions == number) for number in own} if len(own) > 1 else {}
    for place, rank in zip(places, ranks, strict=True):
        partition, offset = int(partitions[place]), int(offsets[place])
        at = rows.get(partition)
        row = int(np.searchsorted(its_offsets if at is None else its_offsets[at], offset))
        log_time = log_times[row if at is None else int(at[row])]
        yield RecordSample(partition, offset, int(times[place]), log_time.value, rank)


def _log_ages(batch: pa.RecordBatch) -> Iterator[LogAges]:
    """Count the ages of records by partition, if the log has timestamps."""
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
