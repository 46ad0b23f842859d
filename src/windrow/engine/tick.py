"""The steps of a transcript or test: records, processing time as data, and crashes.

No operator reads a clock: a tick in the input has the processing time. The module is apart from the other messages
because transcripts are read without numpy and Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True)
class Tick:
    """The processing time: microseconds since the epoch, UTC."""

    micros: int


@dataclass(frozen=True)
class Crash:
    """The run is killed after the previous step, which its checkpoint does not have, and is started again.

    It resumes from its checkpoint, so it runs that step again, from the same state. Where the step `is_committed`, the
    tables have its rows already, and those that it emits again are dropped.
    """

    is_committed: bool


PlayStep = Sequence[tuple[int, bytes]] | Tick
"""A step of a transcript or test: records as (partition, value), or a tick without records."""

T = TypeVar("T")


def with_crashes(steps: Sequence[PlayStep | Crash], outputs: Iterable[T], nothing: T) -> list[T]:
    """Return the new rows of the tables after each step and crash, given the outputs of the steps and the input's end.

    The output of a step that was not committed is visible after the crash, when it has been run again.
    """
    coming = iter(outputs)
    shown: list[T] = []
    for step in steps:
        if not isinstance(step, Crash):
            shown.append(next(coming))
        elif step.is_committed:
            shown.append(nothing)
        else:
            shown[-1:] = [nothing, shown[-1]]
    return [*shown, *coming]
