"""Judgements of a step: the records to judge, the moment of each judgement, and its history.

The records of a key in a partition form a `series`. Records are numbered by key, event time and id, so the records of a
series are adjacent. A moment is an offset: a judgement sees the records with lower offsets. So all judgements of a step
are known at once, however many of its records are in the same series. Each record is judged at its own offset. Right
after a late record, the records that are later in event time but were read before it are judged again. If rules see the
next record, each record also causes a new judgement of the record before it. Histories depend on nothing but the log.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class OrderedRecords:
    """Sorted records: the series number, event time and offset of each, and whether it is new in this step."""

    series: Places
    time: Places
    offset: Places
    is_new: Mask

    def judgements(self, within: int, *, revise: bool, sees_next: bool) -> Judgements:
        """Return the judgements of a step. Rules look back `within` microseconds and, with `sees_next`, also ahead."""
        new = np.flatnonzero(self.is_new)
        if not revise:
            return Judgements(new, self.offset[new], new)
        late = new[self._least_offset_behind()[new] < self.offset[new]]
        ends = np.searchsorted(self.series, self.series[late], side="right")
        ends = _lower_bound(self.time, late + 1, ends, self.time[late] + within + 1)
        records, counts = ranges(late + 1, ends)
        causes = np.repeat(late, counts)
        were_there = self.offset[records] < self.offset[causes]
        records, causes = records[were_there], causes[were_there]
        if sees_next:
            before = self._nearest(new, self.offset[new], within, -1)
            records = np.concatenate([records, before[before >= 0]])
            causes = np.concatenate([causes, new[before >= 0]])
        return Judgements(
            np.concatenate([new, records]),
            np.concatenate([self.offset[new], self.offset[causes] + 1]),
            np.concatenate([new, causes]),
        )

    def histories(self, judged: Judgements, within: int, last: int, *, sees_next: bool) -> Histories:
        """Return the history of each judgement: the newest `last` records before it in its series.

        Records that are more than `within` older are left out. With `sees_next`, the history also has the next record.
        """
        records, moments = judged.records, judged.moments
        after = self._followers(judged, within) if sees_next else np.full(len(records), -1)
        starts = np.searchsorted(self.series, self.series[records], side="left")
        begins = _lower_bound(self.time, starts, records, self.time[records] - within)
        firsts = np.maximum(begins, records - last)
        is_gapped = self._greatest_offset_before()[records] >= moments
        if not is_gapped.any():
            places, counts = ranges(firsts, records)
            return Histories(places, counts, after)
        # some earlier records in event time were read after the moment: look further back until there are enough
        open_, width = np.flatnonzero(is_gapped), 2 * last
        while len(open_):
            firsts[open_] = np.maximum(begins[open_], records[open_] - width)
            places, counts = ranges(firsts[open_], records[open_])
            seen = _count_in(self.offset[places] < np.repeat(moments[open_], counts), counts)
            open_, width = open_[(seen < last) & (firsts[open_] > begins[open_])], 2 * width
        places, counts = ranges(firsts, records)
        is_seen = self.offset[places] < np.repeat(moments, counts)
        seen = _count_in(is_seen, counts)
        places, excess = places[is_seen], np.maximum(seen - last, 0)
        numbers, _ = ranges(np.zeros(len(seen), dtype=np.int64), seen)
        return Histories(places[numbers >= np.repeat(excess, seen)], seen - excess, after)

    def _followers(self, judged: Judgements, within: int) -> Places:
        """Return the index of the record after each judged record, at most `within` newer, or -1."""
        found = np.full(len(judged.records), -1)
        is_followed = self._least_offset_behind()[judged.records] < judged.moments
        records, moments = judged.records[is_followed], judged.moments[is_followed]
        found[is_followed] = self._nearest(records, moments, within, 1)
        return found

    def _nearest(self, records: Places, moments: Places, within: int, step: int) -> Places:
        """Return, for each record, the index of the nearest record of its series that was read before a moment, or -1.

        The nearest record is before (`step` is -1) or after (1) the given record in event time, by at most `within`.
        The search skips only records that were read after the moment although their time lies between the two, which
        are few.
        """
        found = np.full(len(records), -1)
        open_, places = np.arange(len(records)), records + step
        while len(open_):
            of, at = records[open_], np.clip(places, 0, len(self.series) - 1)
            is_near = (at == places) & (self.series[at] == self.series[of])
            is_near &= np.abs(self.time[at] - self.time[of]) <= within
            is_known = self.offset[at] < moments[open_]
            found[open_[is_near & is_known]] = at[is_near & is_known]
            open_, places = open_[is_near & ~is_known], places[is_near & ~is_known] + step
        return found

    def _least_offset_behind(self) -> Places:
        """Return, for each record, the least offset among the records of its series that are later in event time."""
        found = np.full(len(self.offset), _NO_OFFSET)
        keys, span = self._offsets_by_series()
        least = np.minimum.accumulate(keys[::-1])[::-1]
        is_followed = self.series[:-1] == self.series[1:]
        found[:-1][is_followed] = least[1:][is_followed] % span + self._first_offset()
        return found

    def _greatest_offset_before(self) -> Places:
        """Return, for each record, the greatest offset among the earlier records of its series in event time, or -1."""
        found = np.full(len(self.offset), -1)
        keys, span = self._offsets_by_series()
        greatest = np.maximum.accumulate(keys)
        follows = self.series[:-1] == self.series[1:]
        found[1:][follows] = greatest[:-1][follows] % span + self._first_offset()
        return found

    def _offsets_by_series(self) -> tuple[Places, int]:
        """Return offsets as numbers that increase from series to series, and the factor of the series number."""
        above = self.offset - self._first_offset()
        span = int(above.max(initial=0)) + 1
        return self.series * span + above, span

    def _first_offset(self) -> int:
        return int(self.offset.min(initial=_NO_OFFSET))


_NO_OFFSET = 2**63 - 1


@dataclass(frozen=True)
class Judgements:
    """Judged records, the moment of each judgement, and the record of the step that causes it."""

    records: Places
    moments: Places
    causes: Places

    def take(self, numbers: Places) -> Judgements:
        """Return the judgements with the given numbers."""
        return Judgements(self.records[numbers], self.moments[numbers], self.causes[numbers])


@dataclass(frozen=True)
class Histories:
    """The histories of judgements, concatenated: the indexes of their records, oldest first, and the length of each.

    `after` has the index of the record after each judged record, or -1 if there is none.
    """

    places: Places
    counts: Places
    after: Places

    @property
    def ends(self) -> Places:
        """The cumulative number of records at the end of each history."""
        return np.cumsum(self.counts)

    def count(self, which: Mask) -> Places:
        """Return the number of records in each history for which the mask is true."""
        return _count_in(which, self.counts)


def ranges(firsts: Places, ends: Places) -> tuple[Places, Places]:
    """Return the numbers in the given ranges, concatenated, and the length of each range."""
    counts = np.maximum(ends - firsts, 0)
    before = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) + np.repeat(firsts - before, counts), counts


def _count_in(which: Mask, counts: Places) -> Places:
    """Return the number of true values in each of the consecutive ranges of a mask."""
    totals = np.concatenate([[0], np.cumsum(which)])
    ends = np.cumsum(counts)
    return totals[ends] - totals[ends - counts]  # type: ignore[no-any-return]


def _lower_bound(values: Places, firsts: Places, ends: Places, wanted: Places) -> Places:
    """Return, for each range of ascending values, the first index whose value is not below the wanted value."""
    low, high = firsts.copy(), np.maximum(ends, firsts)
    while (is_open := low < high).any():
        middle = (low + high) // 2
        is_below = is_open & (values[np.minimum(middle, len(values) - 1)] < wanted)
        low = np.where(is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low
