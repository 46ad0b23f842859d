"""Hot keys: estimates of the most frequent keys, from a sample of each step.

The estimates are used only in reports. A key group samples at most `SAMPLE` of a step's records, so the cost does not
grow with the load. It takes one record at random from each of `SAMPLE` equal parts of the step; the random positions
are the same every time. Sampling at equal distances instead could coincide with a periodic pattern in the records.
Estimates can be added; each sum keeps the `KEPT` greatest. (Different key groups have different keys unless keys are
salted.) A key with a share well above 1 / `KEPT` stays among those kept, and its estimate is off by at most a few
percent of all records.
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
"""Number of records that a key group samples in a step."""
LEAST: Final = 32
"""With fewer records in a step, a key group only counts them, as they cause no load."""
KEPT: Final = 20
"""Number of keys that are kept."""
TIMES: Final = 2.0
"""A key is hot if it has at least this many times the average count of the other kept keys."""


@dataclass(frozen=True)
class HotKeys:
    """Estimated counts of the most frequent keys, greatest first; `records` is the total number of records.

    A key is written as the values of its columns, separated by commas. `records` includes the records of key groups
    that took no sample. Otherwise shares would refer to the busy key groups only.
    """

    records: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(records: pa.Table, key: Sequence[str]) -> HotKeys:
        """Estimate the most frequent keys of a table.

        If the table is small, only its records are counted. Without a key, the result is empty.
        """
        rows = records.num_rows
        if not key or not set(key) <= set(records.column_names):
            return _NONE
        if rows < LEAST:
            return HotKeys(rows)
        sample = records.select(list(key))
        if rows > SAMPLE:
            sample = sample.take([int(share * rows) for share in _PLACES])
        # few keys become text, which takes long for times and decimals
        counted = sample.group_by(list(key), use_threads=False).aggregate([([], "count_all")])
        *columns, counts = counted.sort_by([("count_all", "descending")]).slice(0, KEPT).columns
        texts = zip(*(map(_text, column.to_pylist()) for column in columns), strict=True)
        found: Counter[str] = Counter()
        for text, count in zip(map(", ".join, texts), counts.to_pylist(), strict=True):
            found[text] += count
        each = max(1.0, rows / SAMPLE)
        return HotKeys(rows, _greatest({text: round(count * each) for text, count in found.items()}))

    def __add__(self, other: HotKeys) -> HotKeys:
        if not self.records or not other.records:
            return other if other.records else self
        return HotKeys(self.records + other.records, _greatest(Counter(self.counts) + Counter(other.counts)))

    @property
    def shares(self) -> dict[str, float]:
        """Each key's share of all records."""
        return {key: min(1.0, count / self.records) for key, count in self.counts.items()}

    @property
    def hot(self) -> dict[str, float]:
        """Each hot key's share of all records. If only a few keys exist and their shares are equal, no key is hot."""
        total, others = sum(self.counts.values()), max(1, len(self.counts) - 1)
        return {
            key: share
            for key, share in self.shares.items()
            if self.counts[key] >= TIMES * (total - self.counts[key]) / others
        }


_NONE: Final = HotKeys()
_RANDOM: Final = Random(SAMPLE)  # noqa: S311 - places in a sample
_PLACES: Final = tuple((number + _RANDOM.random()) / SAMPLE for number in range(SAMPLE))
"""The positions of the sampled records, as fractions of the number of records."""


def _text(value: object) -> str:
    return "null" if value is None else str(value)


def _greatest(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:KEPT])
