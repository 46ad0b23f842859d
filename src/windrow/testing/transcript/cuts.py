"""One log in many cuts: other steps, the same order within each partition."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """A log in steps of (partition, value); `name` says how it was cut."""

    name: str
    steps: tuple[tuple[tuple[int, bytes], ...], ...]


def cuts(log: Mapping[int, Sequence[bytes]], number: int, seed: int) -> Iterator[Cut]:
    """Yield the log all in one step, one record a step, and cut at random `number` times."""
    in_order = tuple((partition, value) for partition in sorted(log) for value in log[partition])
    yield Cut("all in one step", (in_order,))
    yield Cut("one record a step", tuple((record,) for record in _interleaved(log, _random(f"{seed}"))))
    for count in range(1, number + 1):
        rng = _random(f"{seed}/{count}")
        yield Cut(f"cut {count} of seed {seed}", tuple(_steps(_interleaved(log, rng), rng)))


def _interleaved(log: Mapping[int, Sequence[bytes]], rng: random.Random) -> list[tuple[int, bytes]]:
    """Mix the partitions, each in its own order."""
    turns = [partition for partition in sorted(log) for _ in log[partition]]
    rng.shuffle(turns)
    values = {partition: iter(log[partition]) for partition in log}
    return [(partition, next(values[partition])) for partition in turns]


def _steps(records: list[tuple[int, bytes]], rng: random.Random) -> Iterator[tuple[tuple[int, bytes], ...]]:
    """Cut at random places; how often is random too."""
    places = range(1, len(records))
    at = sorted(rng.sample(places, rng.randint(0, len(places))))
    for start, end in zip([0, *at], [*at, len(records)], strict=True):
        yield tuple(records[start:end])


def _random(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - cuts of a story are no secret
