"""Guard of clocks: a single time that is far ahead does not advance the clock of its partition.

A good record is a leap if its event time is more than `jump` ahead of the clock of its partition. It is judged like any
other record, but the clock moves only when `IN_A_ROW` good records in a row are leaps, to the least of them: then the
partition was silent, and its clock is right. Before the first clock, every record waits like a leap; as soon as a
record is within `jump` of one that waits, the clock is the greater of the two times. Until then, the watermark is minus
infinity, except at that record itself, which sees the time that it agrees with; a log without leaps therefore has the
same watermarks with and without the guard. A record that is `ordinary` (it has a log timestamp, and passed `future`) is
no leap. The clock and the times that wait depend only on the partition's earlier records, so cuts do not matter.

A task that reads a step does not know the clocks before it, so key groups follow them. They need few of the times:
after `_ENOUGH` records, the clock is at least the least of their times, whatever it was before, as each of them either
advanced the clock to its time, or was a leap with `IN_A_ROW` in a row among them. A record at most `jump` ahead of the
least of the `_ENOUGH` times before it is therefore no leap, whatever came before the step (`TimesOfStep`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from windrow.engine.columns import MIN_TIME, Mask, Micros
from windrow.engine.messages import PackedTimes

IN_A_ROW: Final = 5
"""The number of leaps in a row that advance the clock."""
_ENOUGH: Final = 2 * IN_A_ROW - 1
"""So many leaps in a row include `IN_A_ROW` that are counted together, wherever counting began."""
_AFTER_LEAP: Final = 256
"""The number of records that are examined at once after a leap; it grows as long as there is no other."""


@dataclass(frozen=True)
class GuardedClock:
    """The clock of a partition, and the times of its last records if they are leaps (or if there is no clock yet)."""

    clock: int = MIN_TIME
    waiting: tuple[int, ...] = ()

    def after(self, jump: int, time: int, *, is_ordinary: bool) -> tuple[int, GuardedClock]:
        """Return the clock that a record sees, and the clock after it."""
        if self.clock == MIN_TIME and (near := [other for other in self.waiting if abs(time - other) <= jump]):
            return max(near), GuardedClock(max(*near, time))
        if is_ordinary or (self.clock != MIN_TIME and time <= self.clock + jump):
            return self.clock, GuardedClock(max(self.clock, time))
        waiting = (*self.waiting, time)
        moved = len(waiting) == IN_A_ROW
        return self.clock, GuardedClock(min(waiting)) if moved else GuardedClock(self.clock, waiting)

    def encode(self) -> list[int]:
        """Encode the clock as plain JSON values."""
        return [self.clock, *self.waiting]

    @staticmethod
    def decode(values: Any) -> GuardedClock:  # noqa: ANN401 - plain JSON
        """Decode the output of `encode`."""
        clock, *waiting = values
        return GuardedClock(clock, tuple(waiting))


NO_CLOCK: Final = GuardedClock()
"""The clock of a partition before its first record."""


@dataclass(frozen=True)
class GuardedClocks:
    """The clocks of a partition at its records.

    For each record, `before` is the clock before it, `seen` the clock that its watermark follows, and `is_leap` whether
    it is ahead of that clock. `after` is the clock after all of them. The number of `leaps` includes records that
    waited for the first clock and turn out to be ahead of it.
    """

    before: Micros
    seen: Micros
    is_leap: Mask
    after: GuardedClock
    leaps: int


def follow_clock(jump: int, known: GuardedClock, times: Micros, ordinary: Mask) -> GuardedClocks:
    """Advance a clock through a partition's next records; `ordinary` are known not to be leaps."""
    before, seen, is_leap = np.empty_like(times), np.empty_like(times), np.zeros(len(times), dtype=np.bool_)
    at, place, size, waited = known, 0, len(times), 0
    while place < len(times):
        if at.clock != MIN_TIME and not at.waiting:
            part = times[place : place + size]
            clocks = np.maximum.accumulate(np.concatenate(([at.clock], part)))
            ahead = np.flatnonzero((part > clocks[:-1] + jump) & ~ordinary[place : place + size])
            passed = int(ahead[0]) if len(ahead) else len(part)
            before[place : place + passed] = seen[place : place + passed] = clocks[:passed]
            at, place = GuardedClock(int(clocks[passed])), place + passed
            size = _AFTER_LEAP if len(ahead) else 4 * size
            if not len(ahead):
                continue
        time = int(times[place])
        was, before[place] = at, at.clock
        seen[place], at = was.after(jump, time, is_ordinary=bool(ordinary[place]))
        is_leap[place] = was.clock != MIN_TIME and time > was.clock + jump and not ordinary[place]
        if was.clock == MIN_TIME != at.clock:
            waited += sum(other > at.clock + jump for other in (*was.waiting, time))
        place += 1
    return GuardedClocks(before, seen, is_leap, at, int(is_leap.sum()) + waited)


class TimesOfStep:
    """Selects the event times of a partition's records in a step that determine a guarded clock, whatever it was."""

    def __init__(self, jump: int) -> None:
        self._jump = jump
        self._last: Micros = np.array([], dtype=np.int64)

    def ordinary(self, times: Micros, is_checked: Callable[[Micros], Mask]) -> Mask:
        """Return the mask of the next records that are no leaps, whatever the clock was before the step.

        `is_checked` returns which of the records with the given numbers have passed `future`.
        """
        both = np.concatenate((self._last, times))
        found = np.zeros(len(times), dtype=np.bool_)
        if len(both) > _ENOUGH:
            least = _least_of(both[:-1], _ENOUGH)
            # without overflow: times are in the years 1 to 9999, and a jump is at most a hundred years
            found[len(found) - len(least) :] = both[_ENOUGH:] <= least + self._jump
        self._last = both[-_ENOUGH:]
        rest = np.flatnonzero(~found)
        found[rest] = is_checked(rest)
        return found


def _least_of(times: Micros, number: int) -> Micros:
    """Return the least of each `number` times in a row."""
    width = 1
    while 2 * width <= number:
        times = np.minimum(times[:-width], times[width:])
        width *= 2
    rest = number - width
    return np.minimum(times[:-rest], times[rest:]) if rest else times


def group_ordinary(given: PackedTimes) -> tuple[PackedTimes, Micros]:
    """Replace each run of ordinary records by a single one with the greatest time, at the place of the first.

    The first `IN_A_ROW` records remain, because there may be no clock before them, and the first of a run may then
    agree with a record that waits. Also return, for each record, the greatest time before it in its run, which is minus
    infinity for the first.
    """
    offsets, times, ordinary = given
    begins = ~ordinary
    begins[1:] |= ~ordinary[:-1]
    begins[:IN_A_ROW] = True
    firsts = np.flatnonzero(begins)
    reached = np.full_like(times, MIN_TIME)
    lengths = np.diff(firsts, append=len(times))
    for first, length in zip(firsts[lengths > 1].tolist(), lengths[lengths > 1].tolist(), strict=True):
        reached[first + 1 : first + length] = np.maximum.accumulate(times[first : first + length - 1])
    return PackedTimes(offsets[firsts], np.maximum.reduceat(times, firsts), ordinary[firsts]), reached
