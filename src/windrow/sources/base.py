"""The contract of a source: its partitions and records, how Spark tails it, lost records, and fair shares of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

from windrow.model import MAX_PARTITIONS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.sources.stream_reader import StreamReader


Cut = Mapping[int, int]
"""Where a step ends: the next offset of each partition. A partition that is left out stays where the cut before it
left it."""

Stage = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""A function that a Spark task applies to its batches."""

Offset = Mapping[str, Any]
"""The position of a stream as Spark records it: JSON in the source's own form."""


class Source(Protocol):
    """A partitioned log; records come in the schema `windrow.core.schema.RAW`."""

    @property
    def name(self) -> str:
        """The name of the log in messages: the topic, or the folder."""
        ...

    def partitions(self) -> list[int]:
        """Return the partitions in order; raise InputError or SourceError if the log cannot be read."""
        ...

    def read_all(self) -> Iterator[pa.RecordBatch]:
        """Read all that is in the log now: one partition after the other, each in the order of its offsets."""
        ...

    def read_from(self, partition: int, begin: int) -> Iterator[pa.RecordBatch]:
        """Read a partition from an offset, or the first that there still is, to the end as of now, in RAW batches."""
        ...

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return the first offset that still exists and the end (the next offset) of each partition, as of now.

        Raises the errors of `partitions`.
        """
        ...

    def incomplete(self) -> list[str]:
        """Return the names of files or partitions that end in an incomplete record, as of now.

        Raises the errors of `partitions`.
        """
        ...

    def beginning(self, start: Cut | None = None) -> Offset:
        """Return where a run begins: the next offsets `start`, and for partitions left out, where the source begins.

        Raises the errors of `partitions`.
        """
        ...

    def reader(
        self,
        stage: Stage,
        begin: Offset,
        *,
        tasks: int,
        max_records: int | None = None,
        cuts: Sequence[Cut] | None = None,
    ) -> StreamReader[Any]:
        """Return the stream reader with which Spark reads the records through a stage, from `begin` on in a new query.

        The stage receives a step's records as RAW batches, each partition's in the order of its offsets and in one
        Spark task; there are at most `tasks` tasks. A step has at most `max_records` records, or ends at the next of
        `cuts` if those are given (after the last of them, the next step has all the rest).
        """
        ...

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        """Return a frame, in the schema `ddl`, of a stage's output for the records between two cuts.

        The stage receives RAW batches: one Spark task a partition, in the order of its offsets. A partition that `end`
        leaves out is not read; one that `begin` leaves out is read from its beginning.
        """
        ...

    def identity(self, seconds: float = ...) -> str | None:
        """Return an id that distinguishes this log from another of the same name, or None.

        Waits at most so many seconds for a server's answer. Raises the errors of `partitions`.
        """
        ...

    def find_losses(self, offset: Offset, identity: str | None) -> FoundLosses:
        """Return which records from an offset on were lost.

        `identity` is that of the log when Spark recorded the offset, None if the log had none. Raises the errors of
        `partitions`.
        """
        ...


@dataclass(frozen=True)
class NewRecord:
    """A record to append: its key, None if it has none, and its value."""

    key: bytes | None
    value: bytes


class Appender(Protocol):
    """Appends records to a log, within a block. One at a time: in the block, what earlier ones appended can be read."""

    def __enter__(self) -> Self:
        """Open it; raise SourceError if another one is open or the log cannot be reached, InputError if it is none."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Leave the log."""
        ...

    def append(self, records: Mapping[int, Sequence[NewRecord]]) -> dict[int, list[int]]:
        """Append records to their partitions; return their offsets.

        Raise SourceError if that failed, or if it is not known whether it did: some of them may be in the log then.
        """
        ...


@dataclass(frozen=True)
class SlotLag:
    """How far a log is behind the table that it follows.

    Of what the replication slot `slot` has, `bytes` of the database's log (WAL) are not in the log yet, which has all
    that was committed `seconds` ago. None: the database does not answer.
    """

    slot: str
    bytes: int | None
    seconds: float | None


class Follower(Protocol):
    """Appends the changes of a file or a table to the embedded log of its source."""

    @property
    def lag(self) -> SlotLag | None:
        """How far the log is behind, as of about now; None for a file."""
        ...

    def preflight(self) -> None:
        """Raise InputError or SourceError if the file or the table cannot be followed; nothing is appended."""
        ...

    def update(self) -> None:
        """Append all that there is now; raise InputError or SourceError if that is not possible."""
        ...

    def follow(self, stop: Event, warn: Callable[[str], None]) -> None:
        """Append what there is, as it comes, until `stop` is set; `warn` of what mends itself.

        Raise SourceError for what does not, or may pass (`passes`).
        """
        ...


OnDataLoss = Literal["stop", "continue"]
"""What a run does if records were lost: it stops, or continues with what is left and writes the loss to the journal."""


@dataclass(frozen=True)
class Loss:
    """A loss in a partition that was read up to the offset `stood`; `goes_on` is the next offset that exists.

    `what` describes the loss; `name` is the partition's if that is not its number. `restore` is what the user can do to
    have the records again, empty if they are gone for good.
    """

    partition: int
    stood: int
    goes_on: int
    what: str
    name: str = ""
    restore: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"partition {self.name or self.partition}: {self.what}; the next record is at offset {self.goes_on}"


@dataclass(frozen=True)
class FoundLosses:
    """The `losses` of a log since a run's position, and the position (as Spark records it) after them."""

    losses: tuple[Loss, ...]
    offset: Any


def numbered_batches(source: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield RAW batches of a source with the numbers that its partitions have in a graph with several sources."""
    import pyarrow as pa  # noqa: PLC0415 - who plans the steps of a stream does not load it
    import pyarrow.compute as pc  # noqa: PLC0415 - the same

    first = pa.scalar(source * MAX_PARTITIONS, pa.int32())
    for batch in batches:
        yield batch.set_column(0, batch.schema.field(0), pc.add(batch.column(0), first))


def another_log(name: str) -> str:
    """Return the message for a log that was replaced while a run read it."""
    return f"the log {name} lost records: it is another one of the same name now"


def restoring(losses: Iterable[Loss]) -> list[str]:
    """Return what the user can do to have lost records again."""
    return list(dict.fromkeys(loss.restore for loss in losses if loss.restore))


def listed(losses: Iterable[Loss]) -> str:
    """Write losses in a line."""
    return "; ".join(map(str, losses))


def fair_shares(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide a limit, all of it, among partitions in which more or less waits.

    A partition with more waiting records gets more, so that partitions of one topic stay abreast in time and few
    windows are open at once. Each gets at least a sixteenth of an equal share, and at least one record if the limit
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
    """Return where a step ends that has at most `max_records` records.

    Partitions with a backlog share them by its size, which `left` returns (in any unit: bytes), and what one leaves
    over goes to the others; each gives a record at the least, whatever the limit. `advance` returns the place so many
    records further on, or the end.
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
            if end.line - at.line < portion:  # what is left is no record yet
                behind.remove(partition)
    return ends


def portions(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide a limit as `fair_shares` does, but for what a partition does not have: the others get that."""
    found, left = dict.fromkeys(waiting, 0), min(limit, sum(waiting.values()))
    while left:
        rest = {partition: count - found[partition] for partition, count in waiting.items() if count > found[partition]}
        for partition, share in fair_shares(rest, left).items():
            taken = min(share, rest[partition])
            found[partition] += taken
            left -= taken
    return found
