"""The watermark of a partition as records are read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction

from windrow import model as m

BEFORE_ALL = float("-inf")
RENEWED = 256
"""An adaptive delay is updated at every offset that is a multiple of this."""
IN_A_ROW = 5
"""So many records in a row that are too far ahead move a guarded clock."""
PER_DOUBLING = 8
"""The number of lateness buckets from one power of two to the next."""


class Clock:
    """A partition's clock (its greatest event time), and the watermark that follows from it.

    The partition's number in the source is `partition`. `floors` are pairs (offset, watermark): from that offset on,
    the watermark is at least that value. If there is a `jump`, a record that is more than that ahead of the clock
    waits, and the fifth in a row moves the clock to the least of them; before the first clock, all records wait until
    two of them are within `jump` of each other.
    """

    def __init__(
        self, watermark: m.Watermark, floors: Sequence[tuple[int, int]], partition: int, jump: int | None = None
    ) -> None:
        self._how = watermark
        self._jump = jump
        self._waiting: list[int] = []
        self._partition = partition
        self._floors = floors
        self._clock: float = BEFORE_ALL
        self._watermark: float = BEFORE_ALL
        self._latenesses: list[tuple[int, int]] = []
        self._delays: dict[int, int] = {}

    def at(self, offset: int, time: int | None = None) -> float:
        """Return the watermark with which the record at an offset is compared, which may be the next record to read.

        If the record is valid, `time` is its event time.
        """
        clock = self._seen(time)
        match self._how:
            case m.Delay(micros):
                self._watermark = max(self._watermark, clock - micros)
            case m.DelayByPartition(default, delays):
                own = [micros for partition, micros in delays if partition == self._partition]
                self._watermark = max(self._watermark, clock - (own[0] if own else default))
            case m.Adaptive():
                self._watermark = max(self._watermark, clock - self._delay(self._how, offset))
            case m.Punctuated():
                pass  # marks alone move it
        for since, floor in self._floors:
            if since <= offset:
                self._watermark = max(self._watermark, floor)
        return self._watermark

    def _seen(self, time: int | None) -> float:
        """Return the clock that a record sees: before the first clock, the greatest time that it agrees with."""
        if self._clock == BEFORE_ALL and time is not None:
            return max(self._near(time), default=BEFORE_ALL)
        return self._clock

    def _near(self, time: int) -> list[int]:
        return [other for other in self._waiting if abs(other - time) <= (self._jump or 0)]

    def data(self, offset: int, time: int, *, is_checked: bool = False) -> None:
        """Add the event time of a valid record, which moves the clock for the records after it.

        A record that `is_checked` against its log timestamp never waits.
        """
        seen, is_first = self._seen(time), self._clock == BEFORE_ALL
        is_guarded = self._jump is not None and not is_checked
        is_leap = is_guarded and not is_first and time > self._clock + (self._jump or 0)
        if not is_leap:
            self._latenesses.append((offset, 0 if seen == BEFORE_ALL else max(0, int(seen) - time)))
        if is_leap or (is_guarded and is_first and not self._near(time)):
            self._waiting.append(time)
            if len(self._waiting) == IN_A_ROW:
                self._clock, self._waiting = min(self._waiting), []
        else:
            self._clock, self._waiting = max(seen, time), []

    def mark(self, mark: int) -> None:
        """Add a punctuation, which can raise the watermark for the records after it."""
        self._watermark = max(self._watermark, mark)

    def _delay(self, adaptive: m.Adaptive, offset: int) -> int:
        renewed = offset // RENEWED * RENEWED
        if renewed not in self._delays:
            seen = sorted(bucket_bound(lateness) for at, lateness in self._latenesses if at < renewed)
            self._delays[renewed] = _delay_of(adaptive, seen)
        return self._delays[renewed]


def _delay_of(adaptive: m.Adaptive, bounds: list[int]) -> int:
    """Return the lowest bound that enough latenesses do not exceed; `bounds` are their bounds in order."""
    if not bounds:
        return adaptive.most
    enough = Fraction(str(adaptive.target)) * len(bounds)
    number = next(number for number in range(1, len(bounds) + 1) if number >= enough)
    return min(max(bounds[number - 1], adaptive.least), adaptive.most)


def _bounds() -> list[int]:
    """Return 0 and the distinct integer parts of the powers of the eighth root of 2 below 2**63."""
    roots = {0}
    for eighths in range(63 * PER_DOUBLING):
        # the greatest n with n**8 <= 2**eighths, exactly
        low, high = 0, 2 ** (eighths // PER_DOUBLING + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if middle**PER_DOUBLING <= 2**eighths else (low, middle)
        roots.add(low)
    return sorted(roots)


BOUNDS = _bounds()


def bucket_bound(lateness: int) -> int:
    """Return the upper bound of the bucket that a lateness falls into."""
    return BOUNDS[bisect_left(BOUNDS, lateness)]
