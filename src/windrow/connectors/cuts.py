"""Where the steps of a log end: cuts, positions, a fair division of a step, and how Spark reads a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from windrow import model as m

if TYPE_CHECKING:
    import pyarrow as pa

Cut = Mapping[int, int]
"""The end of a step: the next offset of each partition. A missing partition stays at the previous cut."""

Stage = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""A function that a Spark task applies to its batches."""

Offset = Mapping[str, Any]
"""The position of a stream as Spark records it, in JSON: ``{partition: {"line": next offset, ...}}``, to which a source
may add details of the partition, or ``{topic: {partition: next offset}}``."""


@dataclass(frozen=True)
class StreamPlan:
    """How Spark reads a log and passes it through a stage; a new query starts at `begin`.

    The stage receives a step's records as RAW batches. Each partition is read in offset order by a single Spark task,
    and a step has at most `tasks` tasks. A step has at most `max_records` records of about `max_bytes` bytes in total.
    If `cuts` are set, each step ends at the next cut instead, and the step after the last cut reads the remaining
    records.
    """

    stage: Stage
    begin: Offset
    tasks: int
    max_records: int | None = None
    max_bytes: int | None = None
    cuts: Sequence[Cut] | None = None


def numbered_batches(source: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the RAW batches of a source, renumbering its partitions for a graph with several sources."""
    import pyarrow as pa  # noqa: PLC0415 - not needed to plan the steps of a stream
    import pyarrow.compute as pc  # noqa: PLC0415 - the same

    first = pa.scalar(source * m.MAX_PARTITIONS, pa.int32())
    for batch in batches:
        yield batch.set_column(0, batch.schema.field(0), pc.add(batch.column(0), first))


def fair_shares(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide a limit on records among partitions in proportion to the records that are waiting in each.

    A partition with more waiting records gets more, so that the partitions of a topic advance together in event time
    and few windows are open at once. Each partition gets at least a sixteenth of an equal share, and at least one
    record if the limit allows it, because a partition that is not read for a long time could be mistaken for an idle
    one.
    """
    least = max(1, limit // (16 * len(waiting))) if limit >= len(waiting) else 0
    left, total = limit - least * len(waiting), sum(waiting.values())
    found, passed = {}, 0
    for partition in sorted(waiting):
        before, passed = passed, passed + waiting[partition]
        found[partition] = least + left * passed // total - left * before // total
    return found


class Counted(Protocol):
    """A position in a partition that knows how many records precede it."""

    @property
    def line(self) -> int:
        """Number of records before the position."""
        ...


At = TypeVar("At", bound=Counted)


def limited_ends(
    start: Mapping[int, At], left: Callable[[int, At], int], advance: Callable[[int, At, int], At], max_records: int
) -> dict[int, At]:
    """Return the position in each partition at which a step of at most `max_records` records ends.

    The partitions share the limit in proportion to their backlogs. `left` returns a partition's backlog, in any unit
    (such as bytes). If a partition cannot use its whole share, the rest goes to the other partitions. Each partition
    with a backlog contributes at least one record, even if that exceeds the limit. `advance` returns the position a
    given number of records further on, or the end of the partition.
    """
    ends = dict(start)
    behind = {partition for partition, at in ends.items() if left(partition, at) > 0}
    limit = max(max_records, len(behind))
    while limit > 0:
        waiting = {partition: size for partition in behind if (size := left(partition, ends[partition])) > 0}
        if not waiting:
            break
        for partition, portion in fair_shares(waiting, limit).items():
            at = ends[partition]
            ends[partition] = end = advance(partition, at, portion)
            limit -= end.line - at.line
            if end.line - at.line < portion:  # the rest is an incomplete record
                behind.remove(partition)
    return ends


def portions(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide a limit as `fair_shares` does, and redistribute what a partition cannot use."""
    found, left = dict.fromkeys(waiting, 0), min(limit, sum(waiting.values()))
    while left:
        rest = {partition: count - found[partition] for partition, count in waiting.items() if count > found[partition]}
        for partition, share in fair_shares(rest, left).items():
            taken = min(share, rest[partition])
            found[partition] += taken
            left -= taken
    return found
