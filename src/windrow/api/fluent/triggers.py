"""What `emit` takes as `early`: when a window's result is written before the watermark has passed its end.

Triggers look at a window's on-time records and at processing time since its last pane, and begin anew with each.
"""

from __future__ import annotations

from collections.abc import Callable

from windrow.api.fluent.length import Length, micros
from windrow.errors import PipelineError
from windrow.model import AllOf, AnyOf, Every, PaneSoFar, Records, Repeat, Trigger, When


def every(length: Length) -> Every:
    """So much processing time after a record that no pane has shown yet; such panes repeat in no replay."""
    return Every(micros(length, "emit.early.every"))


def every_count(number: int) -> Records:
    """After every `number`-th on-time record; in YAML, `count`."""
    return Records(number)


def any_of(*triggers: Trigger) -> AnyOf:
    """As soon as one of the triggers says so."""
    return AnyOf(tuple(map(as_trigger, triggers)))


def all_of(*triggers: Trigger) -> AllOf:
    """When each of the triggers has said so."""
    return AllOf(tuple(map(as_trigger, triggers)))


def repeat(trigger: Trigger, *, times: int) -> Repeat:
    """As another trigger says, for at most so many panes of a window and key."""
    return Repeat(as_trigger(trigger), times)


def when(predicate: Callable[[PaneSoFar], bool]) -> When:
    """After each on-time record for which a function of `windrow.PaneSoFar` says true; YAML has none."""
    if not callable(predicate):
        msg = f"emit.early: wr.when takes a function of a windrow.PaneSoFar, not {predicate!r}"
        raise PipelineError(msg)
    return When(predicate)


def as_trigger(given: Trigger) -> Trigger:
    """Return what was given as a trigger; raise PipelineError if it is none."""
    if not isinstance(given, Trigger):
        msg = f"emit.early: {given!r} is no trigger; give one, such as wr.every('30s') or wr.every_count(100)"
        raise PipelineError(msg)
    return given
