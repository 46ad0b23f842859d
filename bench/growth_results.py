"""The points of ``bench/growth.py``, what was measured of them, and what that says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.laws import Judgement, judge

STATE_GOAL = 40.0
"""Bytes of a window and key's row on disk, in a compacted snapshot."""
ENOUGH = 100_000
"""With fewer rows open at the end, what the state takes by itself counts for more than the rows: it is not judged."""


@dataclass(frozen=True)
class Point:
    """One value of a thing that is varied; `times` are the events, as a multiple of the base's."""

    thing: str
    value: str
    times: float = 1.0
    users: int = 10_000
    partitions: int = 4
    window: str = "{tumbling: 5m}"
    lateness: str = "1h"
    hot: float = 0.0
    salt: int = 1


BASE = Point("base", "")


@dataclass(frozen=True)
class Measured:
    """A point and its figures: microseconds of the clock and of the processors, and results, an event.

    They are medians of its runs; memory is the greatest MiB of all. At the end so many rows were held, with the bytes
    of their blobs; `left` are those of the state's last version on disk as the run left it, `compacted` those of one
    compacted snapshot.
    """

    point: Point
    wall: float
    cpu: float
    results: float
    memory: float
    jvm: float
    workers: float
    steps: int
    events: int
    rows: int
    blobs: int
    left: int
    compacted: int

    @staticmethod
    def of(point: Point, told: dict[str, Any]) -> Measured:
        """Read what ``bench/growth_point.py`` printed."""
        runs, held = told["runs"], told["held"]
        events = runs[0]["events"]

        def middle(name: str) -> float:
            return median(float(run[name]) for run in runs)

        return Measured(
            point=point,
            wall=1e6 * middle("seconds") / events,
            cpu=1e6 * middle("cpu") / events,
            results=middle("results") / events,
            memory=max(run["memory"] for run in runs),
            jvm=max(run["jvm"] for run in runs),
            workers=max(run["workers"] for run in runs),
            steps=runs[0]["steps"],
            events=events,
            rows=sum(held["rows"].values()),
            blobs=held["blobs"],
            left=held["left"],
            compacted=held["compacted"],
        )

    @property
    def row_bytes(self) -> float:
        """Bytes of the compacted state for each row that is held."""
        return self.compacted / self.rows if self.rows else float("nan")

    @property
    def told(self) -> str:
        """All in one line."""
        return (
            f"{self.wall:6.2f} us/event, {self.cpu:6.2f} of CPU, {self.memory:6,.0f} MiB at most, {self.rows:9,} rows "
            f"held in {self.compacted / 1024:,.0f} KiB ({self.row_bytes:.1f} bytes each; {self.left / 1024:,.0f} KiB "
            "as the run left it)"
        )


@dataclass(frozen=True)
class Thing:
    """What is varied, what the cost may go by, and the points beside the base."""

    title: str
    by: Callable[[Measured], float]
    of: str
    points: tuple[Point, ...]
    base: str
    """The value that the base has."""


def _points(thing: str, name: str, values: dict[str, Any]) -> tuple[Point, ...]:
    return tuple(replace(BASE, thing=thing, value=value, **{name: given}) for value, given in values.items())


def _results(one: Measured) -> float:
    return one.results


def _by_run(one: Measured) -> float:
    return 1e6 / one.events


def _by_partition(one: Measured) -> float:
    return one.point.partitions * one.steps * 1e6 / one.events


def _by_row(one: Measured) -> float:
    return one.rows / one.events


_KEYS = {"1,000": 1_000, "100,000": 100_000, "1,000,000": 1_000_000}
_WINDOWS = {
    "10 s": "{tumbling: 10s}",
    "1 min": "{tumbling: 1m}",
    "1 h": "{tumbling: 1h}",
    "1 day": "{tumbling: 24h}",
}
_HOPPING = {
    "1 slice": "{hopping: {size: 5m, slide: 5m}}",
    "4 slices": "{hopping: {size: 20m, slide: 5m}}",
    "12 slices": "{hopping: {size: 1h, slide: 5m}}",
    "60 slices": "{hopping: {size: 5h, slide: 5m}}",
}
_LATENESS = {"0": "0s", "6 h": "6h", "1 day": "24h"}
_HOT = replace(BASE, thing="hot key", hot=0.5)
THINGS = {
    "events": Thing(
        "events in ten days",
        _by_run,
        "the runs of a million events",
        _points("events", "times", {"4 times": 4.0, "16 times": 16.0}),
        "1 time",
    ),
    "keys": Thing("keys", _results, "results an event", _points("keys", "users", _KEYS), "10,000"),
    "partitions": Thing(
        "partitions",
        _by_partition,
        "partitions read, in all steps, for a million events",
        _points("partitions", "partitions", {str(n): n for n in (1, 2, 8, 16, 32)}),
        "4",
    ),
    "windows": Thing(
        "length of the windows", _results, "results an event", _points("windows", "window", _WINDOWS), "5 min"
    ),
    "hopping": Thing(
        "slices in a hopping window", _results, "results an event", _points("hopping", "window", _HOPPING), "tumbling"
    ),
    "lateness": Thing(
        "lateness", _by_row, "rows held, for each event", _points("lateness", "lateness", _LATENESS), "1 h"
    ),
    "hot-key": Thing(
        "a key with half of all events",
        _results,
        "results an event",
        (replace(_HOT, value="half in one"), replace(_HOT, value="the same, salt: 4", salt=4)),
        "none",
    ),
}


@dataclass
class Growth:
    """All that was measured, in the order in which it was, and what failed."""

    date: str
    machine: str
    events: int
    step: int
    runs: int
    measured: list[Measured]
    failed: list[str] = field(default_factory=list)

    def save(self, file: Path) -> None:
        """Write it as JSON."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(file: Path) -> Growth:
        """Read what `save` wrote."""
        kept = json.loads(file.read_text(encoding="utf-8"))
        measured = [Measured(**{**one, "point": Point(**one["point"])}) for one in kept.pop("measured")]
        return Growth(**kept, measured=measured)

    @property
    def bases(self) -> list[Measured]:
        """The base, each time that it was measured."""
        return [one for one in self.measured if one.point == BASE]

    @property
    def things(self) -> list[str]:
        """The names of what was varied."""
        return [name for name in THINGS if self.of(name)]

    def of(self, thing: str) -> list[Measured]:
        """Return the points of a thing, without the base."""
        return [one for one in self.measured if one.point in THINGS[thing].points]

    def base(self, figure: str) -> float:
        """Return the median of a figure over all measurements of the base."""
        return median(float(getattr(one, figure)) for one in self.bases)

    @property
    def drift(self) -> float:
        """By which part the base's clock was off its median, at the most."""
        return judge([one.wall for one in self.bases], self.base("wall")).off

    def judgement(self, thing: str, figure: str) -> Judgement:
        """Hold a thing's figure, `wall` or `cpu`, to the base's, and to the thing's law."""
        points = [*self.of(thing), *self.bases]
        by = THINGS[thing].by
        # the base counts once, by its median
        x = [*(by(one) for one in self.of(thing)), median(by(one) for one in self.bases)]
        costs = [*(float(getattr(one, figure)) for one in self.of(thing)), self.base(figure)]
        return judge(costs, self.base(figure), x if points else None)

    @property
    def state_bytes(self) -> float | None:
        """The bytes of a row of the point that holds most rows, None if all hold few."""
        most = max(self.measured, key=lambda one: one.rows)
        return most.row_bytes if most.rows >= ENOUGH else None

    def verdicts(self) -> Iterator[str]:
        """Say of each thing, and of the state, whether it is as it should be."""
        for name in self.things:
            clock, cpu = (self.judgement(name, figure) for figure in ("wall", "cpu"))
            of = THINGS[name].of
            if clock.is_flat and cpu.is_flat:
                yield f"{THINGS[name].title}: flat, at most {clock.off:.0%} off the base (of CPU: {cpu.off:.0%})"
            else:
                yield f"{THINGS[name].title}: {clock.words(of)}; of CPU: {cpu.words(of)}"
        yield from (f"FAILED: {one}" for one in self.failed)
        yield f"the base was measured {len(self.bases)} times, at most {self.drift:.0%} off its median"
        if self.state_bytes is not None:
            met = "met" if self.state_bytes <= STATE_GOAL else "MISSED"
            taken = f"where most rows are held, one takes {self.state_bytes:.1f} bytes on disk"
            yield f"{taken}; the goal is {STATE_GOAL:.0f}: {met}"

    @property
    def is_well(self) -> bool:
        """Whether nothing failed, each curve is flat or by a law, and the state meets its goal."""
        judged = [self.judgement(name, figure) for name in self.things for figure in ("wall", "cpu")]
        small = self.state_bytes is None or self.state_bytes <= STATE_GOAL
        return small and not self.failed and all(one.is_flat or one.is_explained for one in judged)
