"""What makes an early pane: a window's result before the watermark has passed its end.

A trigger counts on-time records and processing time since the last pane of its window and key, and begins anew with
each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Every:
    """At the first tick that is `micros` of processing time or more after the window's first unseen record came."""

    micros: int


@dataclass(frozen=True)
class Records:
    """At every `number`-th on-time record of a window and key, in log order."""

    number: int


@dataclass(frozen=True)
class AnyOf:
    """As soon as one of the triggers says so."""

    triggers: tuple[Trigger, ...]


@dataclass(frozen=True)
class AllOf:
    """When each of the triggers has said so since the last pane."""

    triggers: tuple[Trigger, ...]


@dataclass(frozen=True)
class Repeat:
    """Another trigger, `times` times at the most for a window and key."""

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
    """After each on-time record for which a Python function says true; only the fluent form has it."""

    predicate: Callable[[PaneSoFar], bool]


Trigger = Every | Records | AnyOf | AllOf | Repeat | When
