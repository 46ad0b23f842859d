"""Step size: how many records a step reads so that it takes about as long as it should."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from statistics import median

from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.telemetry.reports import OnStep, StepReport

LEAST = 1_000
"""A step of no more records is not made smaller."""

SLOW = 1.25
QUICK = 0.8
"""A step is too long beyond SLOW times what it should take, and grows only if it would stay within QUICK times that:
between the two nothing changes, so that the sizes do not go back and forth."""

_FULL = 0.8
"""A step with that part of its size was cut by it: there is more to read."""
_OLD = 1.5
"""A step with so many times its size was planned when that was greater: twice as great at the least."""
_RUNS = {"slow": 2, "quick": 3, "unknown": 6}
"""Number of consecutive steps that must agree: a single one may have waited for something else."""
_FAR = 6.0
"""A step that takes so many times what it should is enough by itself."""
_TYPICAL = 3
"""Of so many steps of one size the median counts."""
_LIKE = 1.4
"""Largest difference of the cost of a record between two step sizes while the sink is unchanged."""

Observed = tuple[float, float]
"""Records and seconds of a step."""


@dataclass(frozen=True)
class _Cost:
    """Seconds that a step takes by itself, and for each record; a guess if it was seen at one size only."""

    fixed: float
    each: float
    is_guess: bool = False

    def records(self, seconds: float) -> float:
        """Return how many records take so long, or as long as the step takes by itself, if those are more."""
        return max(seconds - self.fixed, self.fixed) / self.each if self.each else inf


class StepSizeController:
    """Chooses the size of steps: `most` halved so often that a step takes about `target` seconds.

    A step costs something by itself, and something for each record. Halving it saves only the latter, so a step is
    never made so small that what it costs by itself is the greater part: the backlog would grow for nothing. What
    the two are is seen by comparing two sizes; where the other size was seen too long ago to compare with, a greater
    one is tried. It reads no clock: the same steps give the same sizes.
    """

    def __init__(self, most: int, target: float) -> None:
        self._most = most
        self._target = target
        self.size = most
        self._warm = False
        self._run = ("", 0)
        self._seen: list[Observed] = []
        self._other: Observed | None = None
        self._usual: float | None = None

    def after(self, records: int, seconds: float) -> bool:
        """Record a step; return whether the following steps should have another size, which is then in `size`.

        Only steps that were cut by their size count: one that read all there was would not be shorter for a smaller
        one. The first step of a size warms up, and counts only if it is far too long. One that was planned before the
        steps became smaller does not count.
        """
        if records > _OLD * self.size:
            return False
        warm, self._warm = self._warm, True
        far = seconds > _FAR * self._target
        if records < _FULL * self.size or not (warm or far):
            self._run = ("", 0)
            return False
        self._seen = [*self._seen, (records, seconds)][-_TYPICAL:]
        self._forget_what_was()
        cost, is_smallest = self._cost(), self.size // 2 < LEAST
        if seconds > SLOW * self._target and not (cost.is_guess and is_smallest):
            return self._is_run("slow", enough=far) and self._turn(cost.records(self._target))
        fitting = cost.records(QUICK * self._target)
        larger = min(2 * self.size + 1, self._most)  # halving may have dropped one
        if fitting >= larger > self.size:
            return self._is_run("quick") and self._turn(fitting)
        if cost.is_guess and self.size < self._most:
            return self._is_run("unknown") and self._turn(larger)
        self._run = ("", 0)
        return False

    def _is_run(self, kind: str, *, enough: bool = False) -> bool:
        before, count = self._run
        self._run = (kind, count + 1 if before == kind else 1)
        return enough or self._run[1] >= _RUNS[kind]

    def _turn(self, records: float) -> bool:
        size = self._most
        while size > records and size // 2 >= LEAST:
            size //= 2
        if size == self.size:
            return False
        self._other, self._seen, self._usual = self._now, [], None
        self.size, self._warm, self._run = size, False, ("", 0)
        return True

    def _forget_what_was(self) -> None:
        """Forget the other size if steps of this one take another time than they did: it is another sink now."""
        if len(self._seen) < _TYPICAL:
            return
        _, seconds = self._now
        if self._usual is not None and not self._usual / _LIKE <= seconds <= self._usual * _LIKE:
            self._other, self._usual = None, None
        self._usual = self._usual or seconds

    @property
    def _now(self) -> Observed:
        return median(records for records, _ in self._seen), median(seconds for _, seconds in self._seen)

    def _cost(self) -> _Cost:
        records, seconds = self._now
        guess = _Cost(0.0, seconds / records, is_guess=True)
        if self._other is None:
            return guess
        (less, short), (more, long) = sorted([self._other, self._now])
        if short > _LIKE * long or long > _LIKE * short * more / less:
            return guess
        each = max(0.0, (long - short) / (more - less)) if more > less else 0.0
        return _Cost(max(0.0, seconds - each * records), each)


class StepSizeFile:
    """Writes how many records a step takes into a file, which is looked at before each step is planned.

    No answer depends on where steps end, and a step that is planned already is taken as planned.
    """

    def __init__(self, pace: StepSizeController, checkpoint: Checkpoint) -> None:
        self._pace = pace
        self._checkpoint = checkpoint
        self._reached: int | None = None

    def write(self) -> None:
        """Write the size of the next steps; raise CheckpointError if that cannot be written."""
        self._checkpoint.note_step_size(self._pace.size)

    def noting(self, on_step: OnStep) -> OnStep:
        """Return what is called with each step, and calls `on_step`."""

        def note(report: StepReport) -> None:
            on_step(report)
            # offsets, as Kafka's marks of transactions count in the size of a step
            reached = sum(report.offsets.values())
            read = report.events if self._reached is None else reached - self._reached
            self._reached = reached
            if self._pace.after(read, report.took):
                self.write()

        return note
