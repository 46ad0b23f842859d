"""The contract of a source: its partitions and records, how Spark tails it, lost records, and fair shares of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.sources.stream_reader import StreamReader


Cut = Mapping[int, int]
"""Where a step ends: for each partition the number of records up to there (the next offset), counted from the
beginning of the log. A partition that is left out stays where the cut before it left it."""

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

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return the first offset that is still there and the end (the next offset) of each partition, as of now.

        Raise as `partitions` does.
        """
        ...

    def incomplete(self) -> list[str]:
        """Return the names of what holds the beginning of a record behind its last whole one, as of now.

        Raise as `partitions` does.
        """
        ...

    def beginning(self, start: Cut | None = None) -> Offset:
        """Return where a run begins: at the next offsets `start`, and of a partition that is left out, where it begins.

        Raise as `partitions` does.
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
        """Return what gives Spark what a stage makes of the records, from `begin` on where a query has no checkpoint.

        The stage is given what a step reads of some partitions in RAW batches, of each in the order of its offsets: a
        partition is in one Spark task, and there are at most so many `tasks`. A step has at most `max_records`
        records; `cuts` prescribes where steps end instead (after the last of them everything comes).
        """
        ...

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        """Return a frame, in the schema `ddl`, of what a stage makes of the records between two cuts.

        The stage is given RAW batches: one Spark task a partition, in the order of its offsets. Nothing is read of a
        partition that `end` leaves out; one that `begin` leaves out is read from its beginning.
        """
        ...

    def identity(self, seconds: float = ...) -> str | None:
        """Return what distinguishes this log from another of the same name, or None; raise as `partitions`.

        Who is asked for it is waited for at most so many seconds.
        """
        ...

    def find_losses(self, offset: Offset, identity: str | None) -> FoundLosses:
        """Return which records from an offset on were lost.

        `identity` is that of the log when Spark recorded the offset, None if the log had none. Raise as
        `partitions` does.
        """
        ...


OnDataLoss = Literal["stop", "continue"]
"""What a run does if records were lost: it stops, or continues with what is left and writes the loss to the journal."""


@dataclass(frozen=True)
class Loss:
    """A loss in a partition that was read up to the offset `stood`; `goes_on` is the next offset that exists.

    `what` describes the loss.
    """

    partition: int
    stood: int
    goes_on: int
    what: str

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.what}; what is there goes on at offset {self.goes_on}"


@dataclass(frozen=True)
class FoundLosses:
    """The `losses` of a log since a run's position, and the position (as Spark records it) after them."""

    losses: tuple[Loss, ...]
    offset: Any


def listed(losses: Iterable[Loss]) -> str:
    """Write losses in a line."""
    return "; ".join(map(str, losses))


def fair_shares(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide a limit, all of it, among partitions in which more or less waits.

    Who has more gets more, so that partitions of one topic stay abreast in time, and few windows are open at once. Each
    gets a sixteenth of an equal share, and one at the least unless there are more partitions than that: a partition of
    which nothing is read for long could be taken for idle.
    """
    least = max(1, limit // (16 * len(waiting))) if limit >= len(waiting) else 0
    left, total = limit - least * len(waiting), sum(waiting.values())
    found, passed = {}, 0
    for partition in sorted(waiting):
        before, passed = passed, passed + waiting[partition]
        found[partition] = least + left * passed // total - left * before // total
    return found
