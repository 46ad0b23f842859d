"""Where the steps of a log end: cuts, positions, fair shares of a step, and how Spark reads a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from windrow import model as m

if TYPE_CHECKING:
    import pyarrow as pa

Cut = Mapping[int, int]
"""The end of a step: the next offset of each partition. A partition that is left out stays at the cut before."""

Stage = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""A function that a Spark task applies to its batches."""

Offset = Mapping[str, Any]
"""The position of a stream as Spark records it, in JSON: ``{partition: {"line": next offset, ...}}``, where a source
may note more of a partition, or ``{topic: {partition: next offset}}``."""


@dataclass(frozen=True)
class StreamPlan:
    """How Spark reads a log through a stage, from `begin` on in a new query.

    The stage receives a step's records as RAW batches, each partition's in the order of its offsets and in one Spark
    task; there are at most `tasks` tasks. A step has at most `max_records` records, or ends at the next of `cuts` if
    those are given (after the last of them, the next step has all the rest).
    """

    stage: Stage
    begin: Offset
    tasks: int
    max_records: int | None = None
    cuts: Sequence[Cut] | None = None


def numbered_batches(source: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield RAW batches of a source with the numbers that its partitions have in a graph with several sources."""
    import pyarrow as pa  # noqa: PLC0415 - not needed to plan the steps of a stream
    import pyarrow.compute as pc  # noqa: PLC0415 - the same

    first = pa.scalar(source * m.MAX_PARTITIONS, pa.int32())
    for batch in batches:
        yield batch.set_column(0, batch.schema.field(0), pc.add(batch.column(0), first))


def fair_shares(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide a whole limit among partitions by the number of records that wait in each.

    A partition with more waiting records gets more, so that partitions of one topic advance together in event time and
    few windows are open at once. Each gets at least a sixteenth of an equal share, and at least one record if the limit
    allows: a partition that is not read for long could be taken for idle.
    """
    least = max(1, limit // (16 * len(waiting))) if limit >= len(waiting) else 0
    left, total = limit - least * len(waiting), sum(waiting.values())
    found, passed = {}, 0
    for partition in sorted(waiting):
        before, passed = passed, passed + waiting[partition]
        found[partition] = least + left * passed // total - left * before // total
    return found


class Counted(Protocol):
    """A place in a partition with `line` records before it."""

    @property
    def line(self) -> int:
        """How many records are before it."""
        ...


At = TypeVar("At", bound=Counted)


def limited_ends(
    start: Mapping[int, At], left: Callable[[int, At], int], advance: Callable[[int, At, int], At], max_records: int
) -> dict[int, At]:
    """Return the end of a step of at most `max_records` records.

    Partitions with a backlog share the limit by its size, which `left` returns (in any unit: bytes), and a share that
    is not used goes to the others; each contributes at least one record, whatever the limit. `advance` returns the
    place a number of records further on, or the end.
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
    """Divide a limit as `fair_shares` does, and give the others what a partition cannot use."""
    found, left = dict.fromkeys(waiting, 0), min(limit, sum(waiting.values()))
    while left:
        rest = {partition: count - found[partition] for partition, count in waiting.items() if count > found[partition]}
        for partition, share in fair_shares(rest, left).items():
            taken = min(share, rest[partition])
            found[partition] += taken
            left -= taken
    return found
