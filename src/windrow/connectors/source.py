"""The interface of a source: its partitions and records, how Spark follows it, and how lost records are found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from windrow.connectors.cuts import Cut, Offset, Stage, StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.connectors.stream_reader import StreamReader


class Source(Protocol):
    """A partitioned log. Its records are read as batches in the schema `windrow.engine.schema.RAW`."""

    @property
    def name(self) -> str:
        """What messages call the log: the topic, or the folder."""
        ...

    def partitions(self) -> list[int]:
        """Return the partitions in order; raise InputError or SourceError if the log cannot be read."""
        ...

    def read_all(self) -> Iterator[pa.RecordBatch]:
        """Read the whole log as it is now, one partition after the other, each in offset order."""
        ...

    def read_from(self, partition: int, begin: int) -> Iterator[pa.RecordBatch]:
        """Read a partition to its current end, in RAW batches.

        Reading starts at the offset `begin` or, if records there no longer exist, at the first existing record.
        """
        ...

    def read_as(self, at: Offset) -> Source:  # noqa: ARG002 - for logs without an order of their own
        """Return the log with its records in the order in which a run has read them up to a position.

        The order of files differs in runs that older versions began.
        """
        return self

    def with_headers(self) -> Source:
        """Return the log with the column `windrow.engine.schema.HEADERS`, if its records have headers."""
        return self

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return the first existing offset and the current end (the next offset) of each partition.

        Raises the errors of `partitions`.
        """
        ...

    def estimate_bytes(self, begin: Cut, end: Cut) -> int:  # noqa: ARG002 - for sources that know more
        """Estimate the bytes of the records between two cuts, after `ends` was called; 0 if that is unknown.

        The estimate only decides how a batch run is divided into steps.
        """
        return 0

    def incomplete(self) -> list[str]:
        """Return the names of files or partitions that currently end with an incomplete record.

        Raises the errors of `partitions`.
        """
        ...

    def beginning(self, start: Cut | None = None) -> Offset:
        """Return the position at which a run begins.

        It is given by the next offsets in `start`; partitions not in `start` begin where the source is configured to
        begin. Raises the errors of `partitions`.
        """
        ...

    def reader(self, plan: StreamPlan) -> StreamReader[Any]:
        """Return the stream reader with which Spark reads the log.

        Raise InputError if `plan` has cuts but the log does not support them.
        """
        ...

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        """Return a frame, in the schema `ddl`, with a stage's output for the records between two cuts.

        The stage receives RAW batches; each partition is a Spark task and is read in offset order. A partition missing
        in `end` is not read, and a partition missing in `begin` is read from its beginning.
        """
        ...

    def identity(self, seconds: float = ...) -> str | None:
        """Return an id that distinguishes this log from others of the same name, or None if the log has no id.

        Waits at most `seconds` for a server's answer. Raises the errors of `partitions`.
        """
        ...

    def find_losses(self, offset: Offset, identity: str | None) -> FoundLosses:
        """Find the records after an offset that were lost.

        `identity` is the identity of the log when Spark recorded the offset, None if the log had none. Raises the
        errors of `partitions`.
        """
        ...


@dataclass(frozen=True)
class NewRecord:
    """A record to append, with its key (None if it has none), its value and its headers, for logs that have some."""

    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes | None]] = ()


class Appender(Protocol):
    """Appends records to a log, within a `with` block.

    A log has only one appender at a time, which can read what earlier appenders have appended.
    """

    def __enter__(self) -> Self:
        """Open the log for appending.

        Raise SourceError if another appender is open or the log cannot be reached, and InputError if the log does not
        exist.
        """
        ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Close the log."""
        ...

    def append(self, records: Mapping[int, Sequence[NewRecord]]) -> dict[int, list[int]]:
        """Append records to their partitions; return their offsets.

        Raise SourceError if appending failed or may have failed. In this case, some of the records may be in the log.
        """
        ...


OnDataLoss = Literal["stop", "continue"]
"""What to do if records were lost: stop, or record the loss in the journal and continue with the remaining records."""


@dataclass(frozen=True)
class Loss:
    """Lost records in a partition that was read up to the offset `stood`. `goes_on` is the next offset to read.

    `what` describes the loss. `name` is what messages call the partition, if that is not its number. `restore` tells
    the user how to restore the records; it is empty if they are lost for good.
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
    """The records that a log has lost since a run's position.

    `offset` is the position after the losses, as Spark records it.
    """

    losses: tuple[Loss, ...]
    offset: Any


def another_log(name: str) -> str:
    """Return the message for a log that was replaced by another log while a run was reading it."""
    return f"the log {name} lost records: another log of the same name has replaced it"


def restoring(losses: Iterable[Loss]) -> list[str]:
    """Return the distinct instructions on how the user can restore lost records."""
    return list(dict.fromkeys(loss.restore for loss in losses if loss.restore))


def listed(losses: Iterable[Loss]) -> str:
    """Describe losses in a single line."""
    return "; ".join(map(str, losses))
