"""Judgements of a step: which records are judged at which moments, and the history of each.

Records are numbered by their place in the order of key, event time and id: those of a key in a partition (a `card`) are
neighbours. A moment is an offset: a judgement sees the records with an offset below it. So all judgements of a step are
known at once, however many of its records are of one card: each record at its own offset, and, right after a record
that came late, those behind it in event time that were there before it. Where rules see the record after, each record
also has the one before it judged again. What each sees depends on nothing but the log.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Cards:
    """Records in order: the card of each (a number), event time, offset, and whether it is new in this step."""

    card: Places
    time: Places
    offset: Places
    is_new: Mask

    def judgements(self, within: int, *, revise: bool, sees_next: bool) -> Judgements:
        """Return the judgements of a step: records look back `within` microseconds, with `sees_next` also ahead."""
        new = np.flatnonzero(self.is_new)
        if not revise:
            return Judgements(new, self.offset[new], new)
        late = new[self._least_offset_behind()[new] < self.offset[new]]
        ends = _lower_bound(self.time, late + 1, self._ends()[late], self.time[late] + within + 1)
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
        """Return the history of each judgement: the newest `last` records of the card before it in `within`.

        With `sees_next` it has the record after it too.
        """
        records, moments = judged.records, judged.moments
        after = self._followers(judged, within) if sees_next else np.full(len(records), -1)
        begins = _lower_bound(self.time, self._starts()[records], records, self.time[records] - within)
        firsts = np.maximum(begins, records - last)
        is_gapped = self._greatest_offset_before()[records] >= moments
        if not is_gapped.any():
            places, counts = ranges(firsts, records)
            return Histories(places, counts, after)
        # some records before it in event time were read after the moment: look further back until there are enough
        open_, width = np.flatnonzero(is_gapped), 2 * last
        while len(open_):
            firsts[open_] = np.maximum(begins[open_], records[open_] - width)
            places, counts = ranges(firsts[open_], records[open_])
            seen = _sums(self.offset[places] < np.repeat(moments[open_], counts), counts)
            open_, width = open_[(seen < last) & (firsts[open_] > begins[open_])], 2 * width
        places, counts = ranges(firsts, records)
        is_seen = self.offset[places] < np.repeat(moments, counts)
        seen = _sums(is_seen, counts)
        places, excess = places[is_seen], np.maximum(seen - last, 0)
        numbers, _ = ranges(np.zeros(len(seen), dtype=np.int64), seen)
        return Histories(places[numbers >= np.repeat(excess, seen)], seen - excess, after)

    def _followers(self, judged: Judgements, within: int) -> Places:
        """Return the place of the record after that of each judgement, at most `within` newer; -1 if there is none."""
        found = np.full(len(judged.records), -1)
        is_followed = self._least_offset_behind()[judged.records] < judged.moments
        records, moments = judged.records[is_followed], judged.moments[is_followed]
        found[is_followed] = self._nearest(records, moments, within, 1)
        return found

    def _nearest(self, records: Places, moments: Places, within: int, step: int) -> Places:
        """Return the place of the nearest record of the card that was read before a moment, or -1.

        It is before (`step` -1) or behind (1) each of some records in event time, by at most `within`. Few records are
        passed over: they were read after the moment, and are of times between those of two that were read before it.
        """
        found = np.full(len(records), -1)
        open_, places = np.arange(len(records)), records + step
        while len(open_):
            of, at = records[open_], np.clip(places, 0, len(self.card) - 1)
            is_near = (at == places) & (self.card[at] == self.card[of])
            is_near &= np.abs(self.time[at] - self.time[of]) <= within
            is_known = self.offset[at] < moments[open_]
            found[open_[is_near & is_known]] = at[is_near & is_known]
            open_, places = open_[is_near & ~is_known], places[is_near & ~is_known] + step
        return found

    def _starts(self) -> Places:
        """Return the place of the first record of each record's card."""
        return np.searchsorted(self.card, self.card, side="left")

    def _ends(self) -> Places:
        return np.searchsorted(self.card, self.card, side="right")

    def _least_offset_behind(self) -> Places:
        """Return the least offset among the records of a card behind each in event time."""
        found = np.full(len(self.offset), _NO_OFFSET)
        keys, span = self._offsets_by_card()
        least = np.minimum.accumulate(keys[::-1])[::-1]
        is_followed = self.card[:-1] == self.card[1:]
        found[:-1][is_followed] = least[1:][is_followed] % span + self._first_offset()
        return found

    def _greatest_offset_before(self) -> Places:
        """Return the greatest offset among the records of a card before each in event time, or -1."""
        found = np.full(len(self.offset), -1)
        keys, span = self._offsets_by_card()
        greatest = np.maximum.accumulate(keys)
        follows = self.card[:-1] == self.card[1:]
        found[1:][follows] = greatest[:-1][follows] % span + self._first_offset()
        return found

    def _offsets_by_card(self) -> tuple[Places, int]:
        """Return offsets as numbers that grow from card to card, and the factor of the card's number in them."""
        above = self.offset - self._first_offset()
        span = int(above.max(initial=0)) + 1
        return self.card * span + above, span

    def _first_offset(self) -> int:
        return int(self.offset.min(initial=_NO_OFFSET))


_NO_OFFSET = 2**63 - 1


@dataclass(frozen=True)
class Judgements:
    """Records that are judged, at which moments, and the record of the step that is the cause of each."""

    records: Places
    moments: Places
    causes: Places

    def take(self, numbers: Places) -> Judgements:
        """Return those with some numbers."""
        return Judgements(self.records[numbers], self.moments[numbers], self.causes[numbers])


@dataclass(frozen=True)
class Histories:
    """Histories of judgements: the places of records, oldest first, those of each judgement together, and how many.

    `after` is the place of the record after that of each judgement, -1 for none.
    """

    places: Places
    counts: Places
    after: Places

    @property
    def ends(self) -> Places:
        """The number of records up to the end of each history."""
        return np.cumsum(self.counts)

    def count(self, which: Mask) -> Places:
        """Return how many records of each history are in a mask of them."""
        return _sums(which, self.counts)


def ranges(firsts: Places, ends: Places) -> tuple[Places, Places]:
    """Return the numbers of some ranges, one after the other, and the length of each."""
    counts = np.maximum(ends - firsts, 0)
    before = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) + np.repeat(firsts - before, counts), counts


def _sums(which: Mask, counts: Places) -> Places:
    """Return how many are in a mask in each of some ranges that follow one another."""
    totals = np.concatenate([[0], np.cumsum(which)])
    ends = np.cumsum(counts)
    return totals[ends] - totals[ends - counts]  # type: ignore[no-any-return]


def _lower_bound(values: Places, firsts: Places, ends: Places, wanted: Places) -> Places:
    """Return for each of some ranges of ascending values the first place whose value is not below the wanted one."""
    low, high = firsts.copy(), np.maximum(ends, firsts)
    while (is_open := low < high).any():
        middle = (low + high) // 2
        is_below = is_open & (values[np.minimum(middle, len(values) - 1)] < wanted)
        low = np.where(is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low
