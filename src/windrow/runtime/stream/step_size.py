"""Step size: the number of records for which a step takes about its target time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from statistics import median

from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.telemetry.reports import OnStep, StepReport

LEAST = 1_000
"""A step with at most this number of records is not made smaller."""

SLOW = 1.25
QUICK = 0.8
"""A step is too long if it takes more than SLOW times the target. The size grows only if a step would still take at
most QUICK times the target. Between the two nothing changes, so that sizes do not oscillate."""

_FULL = 0.8
"""A step that reads at least this fraction of its size was limited by it, as there is more to read."""
_OLD = 1.5
"""A step that reads more than this multiple of the size was planned with an earlier, larger size."""
_RUNS = {"slow": 2, "quick": 3, "unknown": 6}
"""Number of consecutive steps that must agree, because a single step may have waited for something else."""
_FAR = 6.0
"""A single step that takes this multiple of the target is enough to change the size."""
_TYPICAL = 3
"""Number of steps of the same size whose median is used."""
_LIKE = 1.4
"""Largest ratio between the costs of a record at two step sizes, as long as the sink is unchanged."""

Timing = tuple[float, float]
"""Records and seconds of a step."""


@dataclass(frozen=True)
class _Cost:
    """The fixed seconds of a step, and the seconds for each record; a guess if only one step size was measured."""

    fixed: float
    each: float
    is_guess: bool = False

    def records(self, seconds: float) -> float:
        """Return the records of a step that takes `seconds`, but no fewer than take as long as the fixed part."""
        return max(seconds - self.fixed, self.fixed) / self.each if self.each else inf


class StepSizeController:
    """Chooses the size of steps: `most`, halved until a step takes about `target` seconds.

    A step has a fixed cost and a cost for each record. Halving reduces only the latter, so a step never becomes so
    small that the fixed cost is the greater part, as the backlog would grow for nothing. Comparing two sizes separates
    the two costs; if the other size was measured too long ago, a larger one is tried. The controller reads no clock:
    the same steps always result in the same sizes.
    """

    def __init__(self, most: int, target: float) -> None:
        self._most = most
        self._target = target
        self.size = most
        self._warm = False
        self._run = ("", 0)
        self._seen: list[Timing] = []
        self._other: Timing | None = None
        self._usual: float | None = None

    def after(self, records: int, seconds: float) -> bool:
        """Record a step; return True if `size` has changed for the following steps.

        Only steps that were limited by their size count, because a smaller size would not shorten other steps. The
        first step of each size is a warm-up, and counts only if it is far too long. Steps that were planned before the
        size was reduced do not count.
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
        """Forget the other size if steps of this size take a different time now, as the sink has changed."""
        if len(self._seen) < _TYPICAL:
            return
        _, seconds = self._now
        if self._usual is not None and not self._usual / _LIKE <= seconds <= self._usual * _LIKE:
            self._other, self._usual = None, None
        self._usual = self._usual or seconds

    @property
    def _now(self) -> Timing:
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
    """Writes the maximum number of records of a step to a file, which is read before each step is planned.

    No result depends on where steps end, and a step that is already planned runs as planned.
    """

    def __init__(self, pace: StepSizeController, checkpoint: Checkpoint) -> None:
        self._pace = pace
        self._checkpoint = checkpoint
        self._reached: int | None = None

    def write(self) -> None:
        """Write the size of the next steps; raise CheckpointError if that fails."""
        self._checkpoint.note_step_size(self._pace.size)

    def noting(self, on_step: OnStep) -> OnStep:
        """Wrap `on_step` so that each step is measured and the step size adjusted."""

        def note(report: StepReport) -> None:
            on_step(report)
            # offsets, as Kafka's transaction markers count in the size of a step
            reached = sum(report.offsets.values())
            read = report.events if self._reached is None else reached - self._reached
            self._reached = reached
            if self._pace.after(read, report.took):
                self.write()

        return note
