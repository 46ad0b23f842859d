"""Hot keys: estimates of the keys with most records, from samples that are taken in each step.

For reports alone. A key group looks at no more than `SAMPLE` of a step's records, so the cost does not grow with
them. One is taken at random from each of `SAMPLE` equal parts, by numbers that are always the same: at equal
distances, a sample would go along with a period of the records. Estimates add up; after each sum the
`KEPT` greatest are kept (those of key groups are of different keys, unless keys are salted). A key with a share well
above 1 / `KEPT` stays among them, and its estimate is at most a few per cent of all records off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE: Final = 256
"""Records that a key group looks at in a step."""
LEAST: Final = 32
"""A key group that has fewer records in a step counts them, and looks at none: they are no load."""
KEPT: Final = 20
"""Keys that are kept."""
TIMES: Final = 2.0
"""A key is hot if it has so many times the records that the other keys that are kept have on average."""


@dataclass(frozen=True)
class HotKeys:
    """About how many of a number of `records` have each of the keys with most of them, the first with most.

    A key is the text of its columns' values, separated by commas. The records of key groups that have looked at none
    are counted, too: else a share would be that of the busy key groups alone.
    """

    records: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(records: pa.Table, key: Sequence[str]) -> HotKeys:
        """Estimate the keys of records; of few of them their number alone, and nothing where there is no key."""
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

    @staticmethod
    def sum(found: Iterable[HotKeys]) -> HotKeys:
        """Add up estimates."""
        return reduce(HotKeys.__add__, found, _NONE)

    @property
    def shares(self) -> dict[str, float]:
        """The share of all records that each key has."""
        return {key: min(1.0, count / self.records) for key, count in self.counts.items()}

    @property
    def hot(self) -> dict[str, float]:
        """The share of all records that each hot key has: few keys that have equal shares are not hot."""
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


def add_by_node(several: Iterable[Mapping[str, HotKeys]]) -> dict[str, HotKeys]:
    """Add up estimates by node."""
    found: dict[str, HotKeys] = {}
    for one in several:
        for node, keys in one.items():
            if keys.records:
                found[node] = found.get(node, _NONE) + keys
    return found


def _text(value: object) -> str:
    return "null" if value is None else str(value)


def _greatest(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:KEPT])
