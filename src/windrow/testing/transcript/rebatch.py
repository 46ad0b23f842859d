"""Cuts of one log: other steps, the same order within each partition, and ticks where they were."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from windrow.engine.tick import Crash, PlayStep, Tick

Record = tuple[int, bytes]


@dataclass(frozen=True)
class Cut:
    """A log in steps of (partition, value), and ticks; `name` says how it was cut."""

    name: str
    steps: tuple[PlayStep, ...]


def cuts(feed: Sequence[PlayStep | Crash], number: int, seed: int) -> Iterator[Cut]:
    """Yield the log all in one step, one record a step, and cut at random `number` times.

    What is between two ticks is cut by itself, so that ticks stay where they are between the records.
    """
    rng = _random(f"{seed}")
    yield Cut("all in one step", _recut(feed, lambda records: [tuple(sorted(records, key=lambda one: one[0]))]))
    yield Cut("one record a step", _recut(feed, lambda records: [(record,) for record in _interleaved(records, rng)]))
    for count in range(1, number + 1):
        yield Cut(f"cut {count} of seed {seed}", _random_cut(feed, _random(f"{seed}/{count}")))


def _random_cut(feed: Sequence[PlayStep | Crash], rng: random.Random) -> tuple[PlayStep, ...]:
    return _recut(feed, lambda records: _steps(_interleaved(records, rng), rng))


def _recut(
    feed: Sequence[PlayStep | Crash], cut: Callable[[list[Record]], Sequence[tuple[Record, ...]]]
) -> tuple[PlayStep, ...]:
    """Cut every stretch of records between ticks; crashes have no place in another cut."""
    steps: list[PlayStep] = []
    records: list[Record] = []
    for step in feed:
        if isinstance(step, Tick):
            steps += [*(cut(records) if records else []), step]
            records = []
        elif not isinstance(step, Crash):
            records += step
    return (*steps, *(cut(records) if records else []))


def _interleaved(records: list[Record], rng: random.Random) -> list[Record]:
    """Mix the partitions, each in its own order."""
    turns = sorted(partition for partition, _ in records)
    rng.shuffle(turns)
    values = {turn: iter([value for partition, value in records if partition == turn]) for turn in turns}
    return [(partition, next(values[partition])) for partition in turns]


def _steps(records: list[Record], rng: random.Random) -> list[tuple[Record, ...]]:
    """Cut at random places; how often is random too."""
    places = range(1, len(records))
    at = sorted(rng.sample(places, rng.randint(0, len(places))))
    return [tuple(records[start:end]) for start, end in zip([0, *at], [*at, len(records)], strict=True)]


def _random(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - cuts of a story are no secret
