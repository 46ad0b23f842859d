"""A story: a log in steps, and what is expected of it. Times are microseconds since the epoch, UTC."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from windrow.errors import Place
from windrow.model import Pipeline

Value = str | bool | int | float | Decimal
"""A key's field or a result; times are microseconds."""

AtEnd = Literal["fire", "hold"]


@dataclass(frozen=True)
class Records:
    """One step: records as (partition, value)."""

    records: tuple[tuple[int, bytes], ...]
    place: Place


@dataclass(frozen=True)
class MarkWatermark:
    """One step: a punctuation mark in some partitions, as (partition, value)."""

    records: tuple[tuple[int, bytes], ...]
    place: Place


@dataclass(frozen=True)
class ChangeRow:
    """An entry of the changelog."""

    op: str
    pane: str
    window: tuple[int, int]
    key: tuple[Value, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class LateRow:
    """An expired record and the window that it missed."""

    partition: int
    offset: int
    window: tuple[int, int]


@dataclass(frozen=True)
class DeadRow:
    """A dead letter; of an expected one, `reason` is how its reason begins."""

    partition: int
    offset: int
    reason: str


@dataclass(frozen=True)
class TableRow:
    """A row of the final table."""

    window: tuple[int, int]
    key: tuple[Value, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Expect:
    """All changes since the last `Expect`."""

    rows: tuple[ChangeRow, ...]
    place: Place


@dataclass(frozen=True)
class ExpectLate:
    """All expired records since the last `ExpectLate`."""

    rows: tuple[LateRow, ...]
    place: Place


@dataclass(frozen=True)
class ExpectDead:
    """All dead letters since the last `ExpectDead`."""

    rows: tuple[DeadRow, ...]
    place: Place


@dataclass(frozen=True)
class End:
    """The end of the input: open windows fire, or are held."""

    at_end: AtEnd
    place: Place


Step = Records | MarkWatermark | Expect | ExpectLate | ExpectDead | End


@dataclass(frozen=True)
class Final:
    """The whole table at the end."""

    rows: tuple[TableRow, ...]
    place: Place


@dataclass(frozen=True)
class Story:
    """A whole story; `pipeline` has the types of the story's records, and its `at_end`."""

    name: str
    file: str
    pipeline: Pipeline
    steps: tuple[Step, ...]
    final: Final

    @property
    def log(self) -> dict[int, list[bytes]]:
        """The values of each partition, in offset order from 0."""
        log: dict[int, list[bytes]] = {}
        for records in self.feed:
            for partition, value in records:
                log.setdefault(partition, []).append(value)
        return log

    @property
    def feed(self) -> list[tuple[tuple[int, bytes], ...]]:
        """The log as it is fed: a tuple of (partition, value) for each step that has records."""
        return [step.records for step in self.steps if isinstance(step, Records | MarkWatermark)]
