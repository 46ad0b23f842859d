"""The contract of a source: its partitions and records, how Spark tails it, and lost records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from windrow.connectors.cuts import Cut, Offset, Stage, StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.connectors.stream_reader import StreamReader


class Source(Protocol):
    """A partitioned log, whose records are read in the schema `windrow.engine.schema.RAW`."""

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
        """Read a partition from an offset, or the first that still exists, to the end as of now, in RAW batches."""
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

    def reader(self, plan: StreamPlan) -> StreamReader[Any]:
        """Return the stream reader with which Spark reads the records; InputError for `cuts` of an uncuttable log."""
        ...

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        """Return a frame, in the schema `ddl`, of a stage's output for the records between two cuts.

        The stage receives RAW batches: one Spark task a partition, in the order of its offsets. A partition that `end`
        leaves out is not read; one that `begin` leaves out is read from its beginning.
        """
        ...

    def identity(self, seconds: float = ...) -> str | None:
        """Return an id that distinguishes this log from another of the same name, or None.

        Waits at most `seconds` for a server's answer. Raises the errors of `partitions`.
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
    """Appends records to a log, within a block; one appender at a time, which can read what earlier ones appended."""

    def __enter__(self) -> Self:
        """Open the log; raise SourceError if another appender is open or no log is reached, InputError for no log."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Leave the log."""
        ...

    def append(self, records: Mapping[int, Sequence[NewRecord]]) -> dict[int, list[int]]:
        """Append records to their partitions; return their offsets.

        Raise SourceError if appending failed or may have failed: some of the records may be in the log then.
        """
        ...


@dataclass(frozen=True)
class SlotLag:
    """The lag of a log behind the table that it follows.

    `bytes` of the database's log (WAL) that the replication slot `slot` retains are not in the log yet; the log has
    everything that was committed `seconds` ago. None: the database does not answer.
    """

    slot: str
    bytes: int | None
    seconds: float | None


class Follower(Protocol):
    """Appends the changes of a file or a table to the embedded log of its source."""

    @property
    def lag(self) -> SlotLag | None:
        """The current lag of the log; None for a file."""
        ...

    def preflight(self) -> None:
        """Raise InputError or SourceError if the file or the table cannot be followed; nothing is appended."""
        ...

    def update(self) -> None:
        """Append all changes up to now; raise InputError or SourceError if that is not possible."""
        ...

    def follow(self, stop: Event, warn: Callable[[str], None]) -> None:
        """Append changes as they come until `stop` is set; call `warn` for a problem that ends by itself.

        Raise SourceError for others; one that may be transient has `passes` set.
        """
        ...


OnDataLoss = Literal["stop", "continue"]
"""The reaction to lost records: stop, or continue with the rest and write the loss to the journal."""


@dataclass(frozen=True)
class Loss:
    """A loss in a partition that was read up to the offset `stood`; `goes_on` is the next offset that exists.

    `what` describes the loss; `name` is the partition's if that is not its number. `restore` tells the user how to
    restore the records, empty if they are lost for good.
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
    return f"the log {name} lost records: another log of the same name has replaced it"


def restoring(losses: Iterable[Loss]) -> list[str]:
    """Return how the user can restore lost records."""
    return list(dict.fromkeys(loss.restore for loss in losses if loss.restore))


def listed(losses: Iterable[Loss]) -> str:
    """Write losses in a line."""
    return "; ".join(map(str, losses))
