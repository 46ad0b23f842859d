"""The contract of a source: its partitions and records, how Spark tails it, and lost records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from windrow.connectors.cuts import Cut, Offset, Stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.connectors.stream_reader import StreamReader


class Source(Protocol):
    """A partitioned log; records come in the schema `windrow.engine.schema.RAW`."""

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


def another_log(name: str) -> str:
    """Return the message for a log that was replaced while a run read it."""
    return f"the log {name} lost records: it is another one of the same name now"


def restoring(losses: Iterable[Loss]) -> list[str]:
    """Return what the user can do to have lost records again."""
    return list(dict.fromkeys(loss.restore for loss in losses if loss.restore))


def listed(losses: Iterable[Loss]) -> str:
    """Write losses in a line."""
    return "; ".join(map(str, losses))
