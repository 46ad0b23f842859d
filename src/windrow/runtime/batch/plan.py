"""The plan of a batch run: its settings, the range of the log to read, and the division of this range into steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.cuts import Cut, Offset
from windrow.connectors.sink import Run
from windrow.connectors.source import Source
from windrow.engine.changelog import StepOutput
from windrow.engine.messages import EndOfInput, Message, PartitionIdle
from windrow.engine.operators.base import GroupOutput
from windrow.engine.schema import MICROS
from windrow.engine.watermarks.journal import NO_BOUNDS, NO_IDLE, IdleAtEnd, WatermarkBounds
from windrow.errors import SourceError
from windrow.runtime.run import MAX_BYTES
from windrow.runtime.savepoint import Savepoint, fingerprint
from windrow.runtime.settings import AS_GIVEN, SparkOptions
from windrow.telemetry.folders import Folder


@dataclass(frozen=True)
class BatchPlan:
    """The offsets at which a batch starts, and its steps.

    `at` is the position after the last step, in the source's own form. `identity` distinguishes the log from another
    log of the same name. Both are None unless a savepoint is written.
    """

    begin: Cut
    cut: StepPlan
    at: Offset | None = None
    identity: str | None = None

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that the batch reads."""
        return tuple(sorted(self.begin))

    @property
    def end(self) -> Cut:
        """The offsets after the last step."""
        return self.cut.upto[-1] if len(self.cut) else self.begin

    def savepoint(self, graph: m.Graph, run: Run, epoch: int) -> Savepoint:
        """Return the savepoint of a run as it stands after the last step."""
        return Savepoint(
            run=run,
            epoch=epoch,
            offsets=dict(self.end),
            partitions=self.partitions,
            key_groups=graph.key_groups,
            meaning=fingerprint(graph),
            at=self.at,
            identity=self.identity,
        )


def batch_plan(graph: m.Graph, source: Source, settings: BatchSettings) -> BatchPlan:
    """Plan a batch over the current contents of the log; raise SourceError if requested offsets are not in the log."""
    identity = None if settings.savepoint is None else source.identity()
    begin, end = _range(graph, source, settings)
    at = None if settings.savepoint is None else source.beginning(end)
    last: list[Message] = [PartitionIdle(*low) for low in settings.idle_at_end.lows]
    if (settings.at_end or graph.at_end) == "fire":
        last.append(EndOfInput())
    most = _most_records(source, begin, end, settings)
    return BatchPlan(begin, slices(begin, end, settings.ends, most, tuple(last)), at, identity)


def _most_records(source: Source, begin: Cut, end: Cut, settings: BatchSettings) -> int:
    """Return the maximum number of records of a step, given the mean size of the records."""
    size = source.estimate_bytes(begin, end)
    if size <= settings.max_bytes:
        return settings.max_records
    records = sum(last - begin.get(partition, 0) for partition, last in end.items())
    return min(settings.max_records, max(1, records * settings.max_bytes // size))


def _range(graph: m.Graph, source: Source, settings: BatchSettings) -> tuple[dict[int, int], dict[int, int]]:
    """Return the first offset to read and the end offset of each partition; raise SourceError if the log lacks them."""
    there = source.ends()
    begin = {partition: first for partition, (first, _) in there.items()}
    end = {partition: last for partition, (_, last) in there.items()}
    if settings.begin is not None:
        begin |= _within(settings.begin, there)
    else:
        begin |= {
            partition: last for partition, last in end.items() if starts_at_latest(graph.source_of(partition).source)
        }
    if settings.end is not None:
        end = begin | _within(settings.end, there)
    return begin, end


def starts_at_latest(source: m.Source) -> bool:
    """Return True if a new run skips the records that the source already holds."""
    return isinstance(source, m.KafkaSource) and source.start == "latest"


def _within(asked: Cut, there: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Return the requested cut; raise SourceError if one of its offsets is not in the log."""
    for partition, offset in asked.items():
        first, end = there.get(partition, (0, 0))
        if not first <= offset <= end:
            msg = (
                f"offset {offset} of partition {partition} is not in the log, which now holds {first} to {end}: "
                "records were lost, or this is a different log"
            )
            raise SourceError(msg)
    return dict(asked)


@dataclass(frozen=True)
class StepPlan:
    """The steps of a run, numbered from 0.

    `upto` has a cut for each step: the next offset of every partition after that step. `control` maps step numbers to
    the control messages that every key group receives in that step, in addition to its records.
    """

    upto: tuple[Cut, ...]
    control: Mapping[int, tuple[Message, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.upto)

    def ends_of(self, partition: int) -> list[int]:
        """Return the offset in a partition at which each step ends."""
        return [upto[partition] for upto in self.upto]


def slices(begin: Cut, end: Cut, ends: Sequence[Cut], max_records: int, last: tuple[Message, ...]) -> StepPlan:
    """Divide the range between two cuts into steps of about `max_records` offsets.

    In each step, a partition advances in proportion to its share of the range, so that partitions of one topic stay
    close in time and few windows are open at once. A step ends at each cut of `ends` within the range, with an end of
    the input. The last step has the messages `last`, and exists for them even if there is nothing to read.
    """
    upto: list[Cut] = []
    control: dict[int, tuple[Message, ...]] = {}
    at: Cut = {partition: begin.get(partition, 0) for partition in sorted(end)}
    for cut in ends:
        to = {partition: max(offset, cut.get(partition, offset)) for partition, offset in at.items()}
        if to == at:
            continue  # the step before has the message already
        if any(offset > end[partition] for partition, offset in to.items()):
            break
        upto += _steps(at, to, max_records)
        control[len(upto) - 1] = (EndOfInput(),)
        at = to
    upto += _steps(at, end, max_records)
    if last and not upto:
        upto.append(at)
    if last:
        control[len(upto) - 1] = (*control.get(len(upto) - 1, ()), *last)
    return StepPlan(tuple(upto), control)


def _steps(start: Cut, end: Cut, max_records: int) -> Iterator[Cut]:
    """Yield the end of each step between two cuts; yield nothing if the cuts are equal."""
    records = sum(end[partition] - offset for partition, offset in start.items())
    count = -(-records // max_records)
    at = start
    for number in range(1, count + 1):
        to = {partition: offset + (end[partition] - offset) * number // count for partition, offset in start.items()}
        if to != at:  # shares of less than a record are rounded to zero
            yield to
        at = to


MAX_RECORDS = 1_000_000
"""Default number of records in a step of a bounded run; it is large because each step has a fixed cost."""


@dataclass(frozen=True)
class BatchSettings:
    """Settings of a batch from `begin` (default: the start of the source) to `end` (default: the end of the log).

    To repeat another run, `bounds` holds the watermark moves of its clock journal, `ends` the offsets at which its
    input ended, in order, `idle_at_end` the partitions that were idle at the end, and `journal` the journal rows to
    copy. `at_end` overrides the pipeline's setting. All windows are computed, but only those that end after `since`
    (microseconds) are written.

    A step reads at most `max_records` offsets of about `max_bytes` bytes in total. The final state of the key groups is
    written to the folder `savepoint`, Spark's log to the file `log` (default: stderr). Rows are written as rows of
    `run` (default: a new run). The records are in the order in which a run has read them up to the position `read_as`.
    """

    begin: Cut | None = None
    end: Cut | None = None
    bounds: WatermarkBounds = NO_BOUNDS
    ends: tuple[Cut, ...] = ()
    idle_at_end: IdleAtEnd = NO_IDLE
    journal: pa.Table | None = None
    at_end: Literal["fire", "hold"] | None = None
    since: int | None = None
    max_records: int = MAX_RECORDS
    max_bytes: int = MAX_BYTES
    spark: SparkOptions = AS_GIVEN
    savepoint: Folder | None = None
    log: Path | None = None
    run: Run | None = None
    read_as: Offset | None = None


def first_outputs(nothing: Mapping[str, StepOutput], journal: pa.Table | None) -> dict[str, StepOutput]:
    """Return the outputs that precede those of the first step: the rows of a journal, or empty outputs."""
    return {name: rows if journal is None else replace(rows, clocks=journal) for name, rows in nothing.items()}


def ending_after(since: int, output: GroupOutput) -> GroupOutput:
    """Remove the rows of windows that end at or before `since`, and adjust the counts."""
    by_sink = {
        name: replace(rows, changes=_after(since, rows.changes), late=_after(since, rows.late))
        for name, rows in output.by_sink.items()
    }
    operations = pa.concat_tables([rows.changes.select(["op"]) for rows in by_sink.values()]).column("op")
    stats = replace(
        output.stats,
        expired=sum(rows.late.num_rows for rows in by_sink.values()),
        inserts=pc.sum(pc.equal(operations, "insert")).as_py() or 0,
        revisions=pc.sum(pc.equal(operations, "update_after")).as_py() or 0,
    )
    return replace(output, by_sink=by_sink, stats=stats)


def _after(since: int, table: pa.Table) -> pa.Table:
    if "window_end" not in table.column_names:
        return table  # records have no windows
    return table.filter(pc.greater(table.column("window_end"), pa.scalar(since, pa.int64()).cast(MICROS)))
