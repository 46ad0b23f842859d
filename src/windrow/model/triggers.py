"""Emission: when the panes of a window are written, and how late records change them.

The watermark triggers the on-time pane, `Emit.early` the panes before it. An early trigger counts on-time records and
processing time since the last pane of its window and key, and begins anew with each pane; or it goes by event time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, assert_never

Mode = Literal["retract", "accumulate", "discard"]


@dataclass(frozen=True)
class Emit:
    """A window fires at the watermark; records up to `lateness` microseconds late revise it.

    `early` writes panes before that. `late` is one revision for each late record, one a step, or one for so many of
    them (and one for those that are left when the window is forgotten or the input ends). `mode` says what a pane
    holds: all records of its window, with the row it replaces taken back (retract) or not (accumulate), or only what is
    new since the last pane (discard). `at_end` says what a bounded run does with windows that are still open when the
    input ends.
    """

    lateness: int = 0
    late: Late = "each"
    mode: Mode = "retract"
    at_end: Literal["fire", "hold"] = "fire"
    early: Trigger | None = None


@dataclass(frozen=True)
class Every:
    """At the first tick that is `micros` of processing time or more after the window's first unseen record came."""

    micros: int


@dataclass(frozen=True)
class EveryEventTime:
    """Whenever the watermark has advanced by `micros` within the window: at its start + `micros`, + 2 * `micros` ...

    A pane at such a time holds the on-time records whose own watermark is below it; it is left out if it would be equal
    to the one before. So panes are a function of the log, whatever partitions a key is in.
    """

    micros: int


@dataclass(frozen=True)
class Records:
    """At every `number`-th record of a window and key, in log order: on-time ones if early, or late ones."""

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
    """Another trigger, at most `times` times for a window and key."""

    trigger: Trigger
    times: int


@dataclass(frozen=True)
class PaneSoFar:
    """A window of a key that a `When` looks at after each on-time record; times are microseconds, UTC.

    `records` is how many the window has had, `since` how many of them since its last pane, `panes` how many panes it
    has had, `event_time` that of the record.
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


def counts_records(trigger: Trigger | None) -> bool:
    """Return whether some part of a trigger looks at each record."""
    match trigger:
        case None | Every() | EveryEventTime():
            return False
        case Records() | When():
            return True
        case Repeat(part, _):
            return counts_records(part)
        case AnyOf(parts) | AllOf(parts):
            return any(map(counts_records, parts))
        case _:
            assert_never(trigger)


def has_every(trigger: Trigger | None) -> bool:
    """Whether a part of a trigger looks at processing time, which comes as ticks."""
    match trigger:
        case Every():
            return True
        case AnyOf(triggers) | AllOf(triggers):
            return any(map(has_every, triggers))
        case Repeat(inner):
            return has_every(inner)
        case EveryEventTime() | Records() | When() | None:
            return False
        case _:
            assert_never(trigger)
