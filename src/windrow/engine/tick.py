"""The steps of a transcript or test: records, ticks of the processing time, and crashes.

No operator reads a clock; ticks in the input carry the processing time. This module is separate from the other messages
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
    """The run is killed after the previous step, before a checkpoint includes that step, and is started again.

    It resumes from its checkpoint, so it runs that step again from the same state. If the step `is_committed`, the
    tables already have its rows, and the rows that it emits again are dropped.
    """

    is_committed: bool


PlayStep = Sequence[tuple[int, bytes]] | Tick
"""A step of a transcript or test: records as (partition, value), or a tick without records."""

T = TypeVar("T")


def with_crashes(steps: Sequence[PlayStep | Crash], outputs: Iterable[T], nothing: T) -> list[T]:
    """Return the new rows of the tables after each step and crash, and after the end of the input.

    The `outputs` are those of the steps and of the end of the input; `nothing` is an output without rows. The output of
    a step that was not committed becomes visible after the crash, when the step has been run again.
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
