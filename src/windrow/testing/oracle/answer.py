"""What goes into the oracle and what comes out of it, as plain Python values."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

Value = str | bool | int | float | Decimal
"""A field or a result; times are microseconds since the epoch, UTC."""

WindowKey = tuple[Value, ...]
"""Window start and end in microseconds, then the key's fields."""


@dataclass(frozen=True)
class LogRecord:
    """A record as it lies in a partition of the log.

    `log_time` is the broker's timestamp in microseconds; a log source has it in the JSON (``_log_time``) instead.
    `value` is None for a tombstone.
    """

    offset: int
    log_time: int | None
    value: bytes | None


class Change(NamedTuple):
    """One entry of the changelog of a window and key."""

    op: str
    pane: str
    revision: int
    values: tuple[Value, ...]


class Missed(NamedTuple):
    """An expired record and the window that it missed; times are microseconds, `lateness_ms` is rounded down."""

    partition: int
    offset: int
    window_start: int
    window_end: int
    lateness_ms: int


@dataclass(frozen=True)
class Answer:
    """All that a pipeline says of a log.

    `table` has ``(*values, pane, revision)`` of the last change; `on_time` the values of the on-time panes that fired;
    `dead` the first word or words of the reason, up to the colon, by (partition, offset); `changelog` is as ``late:
    each`` writes it, with late records in (partition, offset) order. Decimals compare by value, whatever their scale.
    """

    table: dict[WindowKey, tuple[Value, ...]]
    on_time: dict[WindowKey, tuple[Value, ...]]
    late: set[Missed]
    dead: dict[tuple[int, int], str]
    changelog: dict[WindowKey, list[Change]]
