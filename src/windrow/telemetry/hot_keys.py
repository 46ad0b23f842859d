"""Hot keys: estimates of the keys with most records, from a sample of each step.

For reports alone. A key group samples at most `SAMPLE` of a step's records, so the cost does not grow with the load. It
takes a record at random from each of `SAMPLE` equal parts, by numbers that are always the same: a sample at equal
distances would follow a period of the records. Estimates add up; after each sum the `KEPT` greatest are kept (those of
key groups are of different keys, unless keys are salted). A key with a share well above 1 / `KEPT` stays among them,
and its estimate is off by at most a few per cent of all records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE: Final = 256
"""Records that a key group samples in a step."""
LEAST: Final = 32
"""With fewer records in a step, a key group only counts them: they are no load."""
KEPT: Final = 20
"""Keys that are kept."""
TIMES: Final = 2.0
"""A key is hot if it has this multiple of the records that the other kept keys have on average."""


@dataclass(frozen=True)
class HotKeys:
    """Estimated counts of the keys with most records, the greatest first; `records` is the number of all records.

    A key is the text of its columns' values, separated by commas. `records` includes those of key groups that have
    sampled none: without them a share would be that of the busy key groups alone.
    """

    records: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(records: pa.Table, key: Sequence[str]) -> HotKeys:
        """Estimate the keys of records; few records are only counted, and without a key there is nothing to count."""
        rows = records.num_rows
        if not key or not set(key) <= set(records.column_names):
            return _NONE
        if rows < LEAST:
            return HotKeys(rows)
        sample = records.select(list(key))
        if rows > SAMPLE:
            sample = sample.take([int(share * rows) for share in _PLACES])
        texts = zip(*(map(_text, column.to_pylist()) for column in sample.columns), strict=True)
        counts, each = Counter(map(", ".join, texts)), max(1.0, rows / SAMPLE)
        return HotKeys(rows, _greatest({text: round(count * each) for text, count in counts.items()}))

    def __add__(self, other: HotKeys) -> HotKeys:
        if not self.records or not other.records:
            return other if other.records else self
        return HotKeys(self.records + other.records, _greatest(Counter(self.counts) + Counter(other.counts)))

    @property
    def shares(self) -> dict[str, float]:
        """The share of all records that each key has."""
        return {key: min(1.0, count / self.records) for key, count in self.counts.items()}

    @property
    def hot(self) -> dict[str, float]:
        """The share of all records that each hot key has; a few keys with equal shares are not hot."""
        total, others = sum(self.counts.values()), max(1, len(self.counts) - 1)
        return {
            key: share
            for key, share in self.shares.items()
            if self.counts[key] >= TIMES * (total - self.counts[key]) / others
        }


_NONE: Final = HotKeys()
_RANDOM: Final = Random(SAMPLE)  # noqa: S311 - places in a sample
_PLACES: Final = tuple((number + _RANDOM.random()) / SAMPLE for number in range(SAMPLE))
"""The places of a sample, as shares of the records."""


def _text(value: object) -> str:
    return "null" if value is None else str(value)


def _greatest(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:KEPT])
