"""Emission: when the panes of a window are written, and how late records revise them.

The watermark triggers the on-time pane, `Emit.early` the panes before it. An early trigger counts on-time records or
processing time since the last pane of its window and key, and is reset by each pane; or it depends on event time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, assert_never

Mode = Literal["retract", "accumulate", "discard"]


@dataclass(frozen=True)
class Emit:
    """When the panes of a window are written, and how late records revise them.

    A window fires when the watermark reaches its end. Records up to `lateness` microseconds late revise it. `early`
    writes panes before it fires. `late` is one revision for each late record, one for each step, or one for every N
    late records (and one for the rest when the window is dropped or the input ends). `mode` decides what a pane holds:
    all records of its window, with the row that it replaces retracted (retract) or not (accumulate), or only the
    records since the last pane (discard). `at_end` is what a bounded run does with windows that are still open at the
    end of its input.
    """

    lateness: int = 0
    late: Late = "each"
    mode: Mode = "retract"
    at_end: Literal["fire", "hold"] = "fire"
    early: Trigger | None = None


@dataclass(frozen=True)
class Every:
    """Fires at the first tick at least `micros` of processing time after the first record since the last pane."""

    micros: int


@dataclass(frozen=True)
class EveryEventTime:
    """Fires when the watermark has advanced by `micros` within the window: at its start + `micros`, + 2 * `micros` ...

    The pane for such a time holds the on-time records whose own watermark is below that time. It is omitted if it would
    equal the previous pane. So panes depend only on the log, whichever partitions hold the records of a key.
    """

    micros: int


@dataclass(frozen=True)
class Records:
    """Fires at every `number`-th record of a window and key, in log order.

    As an early trigger, it counts on-time records; for revisions, it counts late ones.
    """

    number: int


Late = Literal["each", "batch"] | Records


@dataclass(frozen=True)
class AnyOf:
    """Fires as soon as one of the triggers does."""

    triggers: tuple[Trigger, ...]


@dataclass(frozen=True)
class AllOf:
    """Fires once each of the triggers has fired since the last pane."""

    triggers: tuple[Trigger, ...]


@dataclass(frozen=True)
class Repeat:
    """Fires when `trigger` fires, but at most `times` times for a window and key."""

    trigger: Trigger
    times: int


@dataclass(frozen=True)
class PaneSoFar:
    """The state of a key's window that a `When` trigger sees after each on-time record; times are in microseconds, UTC.

    It counts the window's `records`, those `since` its last pane, and its `panes`. `event_time` belongs to the record.
    """

    window_start: int
    window_end: int
    records: int
    since: int
    panes: int
    event_time: int


@dataclass(frozen=True)
class When:
    """Fires after each on-time record for which a Python function returns True; not available in YAML."""

    predicate: Callable[[PaneSoFar], bool]


Trigger = Every | EveryEventTime | Records | AnyOf | AllOf | Repeat | When


def each_part(trigger: Trigger | None) -> Iterator[Trigger]:
    """Yield a trigger and all triggers that are combined in it."""
    if trigger is None:
        return
    yield trigger
    match trigger:
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from each_part(part)
        case Repeat(part, _):
            yield from each_part(part)
        case Every() | EveryEventTime() | Records() | When():
            return
        case _:
            assert_never(trigger)


def counts_records(trigger: Trigger | None) -> bool:
    """Return True if some part of a trigger looks at each record."""
    return any(isinstance(part, Records | When) for part in each_part(trigger))


def has_every(trigger: Trigger | None) -> bool:
    """Return True if some part of a trigger needs ticks of processing time."""
    return any(isinstance(part, Every) for part in each_part(trigger))
