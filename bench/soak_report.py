"""What a soak has seen, whether that is well, and both as a table in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import linear_regression

from bench.verdict import Verdict

from windrow.telemetry.history import ALERTS, FULL, RUNS, SUMS

WARM = 1800.0
"""Seconds, or a quarter of a shorter soak, that are not judged: Spark's JVM warms up, and the state fills."""
JUDGED = 1200.0
"""Seconds from which on a soak is judged by what it takes; in a shorter one the JVM still warms up."""
MEMORY, BOUND = 1.10, 1.25
"""By how much the level of memory, and that of anything else, may be higher in the last half than in the one before.

A level is what nine of ten samples are below, as each kill begins anew.
"""
HISTORY = FULL + 10 * SUMS + RUNS + ALERTS
EPOCHS = 2_000


@dataclass(frozen=True)
class Sample:
    """What a run takes at some seconds since the beginning: MiB, numbers of things, rows; None if it cannot be seen."""

    seconds: float
    driver: float
    jvm: float
    workers: float
    descriptors: int
    threads: int
    checkpoint: float
    files: int
    history: int | None
    epochs: int | None

    @property
    def memory(self) -> float:
        """MiB of all processes."""
        return self.driver + self.jvm + self.workers


@dataclass(frozen=True)
class Struck:
    """A fault, at so many seconds; `committed` is how many later the run had committed two steps, if it had."""

    seconds: float
    kind: str
    committed: float | None


@dataclass(frozen=True)
class End:
    """An end of the run that nobody asked for; `is_fair` if the fault named may end it."""

    seconds: float
    after: str | None
    is_fair: bool
    said: str


@dataclass(frozen=True)
class Criterion:
    """What was asked, whether it is met (None: not judged in so short a soak), and by what figures."""

    name: str
    is_met: bool | None
    said: str


def judge(
    samples: Sequence[Sample],
    struck: Sequence[Struck],
    ends: Sequence[End],
    kinds: Sequence[str],
    found: Verdict,
) -> list[Criterion]:
    """Return all criteria of a soak with such faults."""
    stalled = [f"{one.kind} at {one.seconds:.0f} s" for one in struck if one.committed is None]
    unfair = [f"after {one.after or 'no fault'} at {one.seconds:.0f} s: {one.said}" for one in ends if not one.is_fair]
    missing = [kind for kind in kinds if all(one.kind != kind for one in struck)]
    slowest = max((one.committed or 0.0 for one in struck), default=0.0)
    return [
        Criterion("answers equal to the definition", found.is_right, found.said),
        Criterion("each kind of fault has struck", not missing, ", ".join(missing) or f"{len(struck)} faults"),
        Criterion("the run went on after each", not stalled, ", ".join(stalled) or f"within {slowest:.0f} s"),
        Criterion("it ended of no other", not unfair, "; ".join(unfair) or f"{len(ends)} times of those that may"),
        _level("memory, MiB", samples, [one.memory for one in samples], MEMORY),
        _level("descriptors", samples, [one.descriptors for one in samples], BOUND),
        _level("threads", samples, [one.threads for one in samples], BOUND),
        _level("checkpoint, MiB", samples, [one.checkpoint for one in samples], BOUND),
        _level("files of the checkpoint", samples, [one.files for one in samples], BOUND),
        _most("rows of the history", [one.history for one in samples], HISTORY),
        _most("rows of windrow_epochs", [one.epochs for one in samples], EPOCHS),
    ]


def _level(name: str, samples: Sequence[Sample], values: Sequence[float], most: float) -> Criterion:
    """Compare the levels of the two halves after the soak has warmed up."""
    last = samples[-1].seconds if samples else 0.0
    warm = min(WARM, last / 4)
    judged = [(one.seconds, value) for one, value in zip(samples, values, strict=True) if one.seconds >= warm]
    middle = (warm + last) / 2
    halves = [[value for at, value in judged if (at < middle) is is_first] for is_first in (True, False)]
    if not all(halves):
        return Criterion(name, is_met=False, said="too few samples")
    before, after = map(_ninth, halves)
    slope = linear_regression(*zip(*judged, strict=True)).slope * 3600
    said = f"{before:,.0f}, then {after:,.0f} ({after / before:.2f} times; slope {slope:+,.0f} an hour)"
    return Criterion(name, after <= most * before if last >= JUDGED else None, said)


def _ninth(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) * 9 // 10]


def _most(name: str, values: Sequence[int | None], most: int) -> Criterion:
    seen = [value for value in values if value is not None]
    return Criterion(name, bool(seen) and max(seen) <= most, f"at most {max(seen, default=0):,} of {most:,}")


def markdown(title: str, criteria: Sequence[Criterion], struck: Sequence[Struck], samples: Sequence[Sample]) -> str:
    """Return a page with the criteria, the faults by kind, and a sample of each tenth of the time."""
    return "\n".join([f"# {title}", "", *_criteria(criteria), "", *_faults(struck), "", *_samples(samples), ""])


def _criteria(criteria: Sequence[Criterion]) -> Iterator[str]:
    yield "| criterion | | figures |"
    yield "| --- | --- | --- |"
    words = {True: "met", False: "**not met**", None: "not judged"}
    for one in criteria:
        said = " ".join(one.said.split()).replace("|", "\\|")
        yield f"| {one.name} | {words[one.is_met]} | {said} |"


def _faults(struck: Sequence[Struck]) -> Iterator[str]:
    yield "| fault | times | slowest until two steps were committed, s |"
    yield "| --- | ---: | ---: |"
    for kind in dict.fromkeys(one.kind for one in struck):
        times = [one.committed for one in struck if one.kind == kind]
        slowest = "never" if None in times else f"{max(time or 0.0 for time in times):.1f}"
        yield f"| {kind} | {len(times)} | {slowest} |"


def _samples(samples: Sequence[Sample]) -> Iterator[str]:
    yield "| minute | driver | JVM | workers, MiB | descriptors | threads | checkpoint, MiB | files | history, rows |"
    yield "| ---: |" + " ---: |" * 8
    for number in range(11 if samples else 0):
        one = samples[(len(samples) - 1) * number // 10]
        history = "" if one.history is None else f"{one.history:,}"
        yield (
            f"| {one.seconds / 60:.0f} | {one.driver:,.0f} | {one.jvm:,.0f} | {one.workers:,.0f} | "
            f"{one.descriptors:,} | {one.threads:,} | {one.checkpoint:,.1f} | {one.files:,} | {history} |"
        )
