"""Fragments of sessions: records of a key that no later record can separate, stored as one row of a structured array.

The accumulators of fragments are in an Arrow table in the same order. `coalesce` creates fragments from on-time records
and explains why this is correct. `cluster_fragments` finds the groups that can be merged independently. Times are in
microseconds UTC, and keys are numbered within a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.engine.columns import Micros
from windrow.engine.keys import key_numbers

Mask = npt.NDArray[np.bool_]

ON_TIME: Final = 0
"""Role: on-time records. It is known that no session ends with any of them but the last (see `coalesce`)."""
JOINED: Final = 1
"""Role: late records in a row of the table."""
WAITING: Final = 2
"""Role: late records in no row, either a new record or records that wait together for a session to fire."""
SETTLED: Final = 3
"""Role: on-time records and late records in their row, if no on-time record can extend them any more."""

UNSEEN: Final = 0
EARLY: Final = 1
FIRED: Final = 2
"""Seen: whether a pane has shown the fragment and, for on-time records, whether it was an early or on-time pane."""

FRAGMENT_FIELDS: Final = (
    "key",  # the number of its key in this step
    "first",  # least event time
    "last",  # greatest event time or, if each record has its own gap, the greatest end of a record
    "closes",  # on time: the last time of its session, as far as it is known; a session fires as a whole
    "cover",  # on time: no session ends at a time between this and `closes`; waiting: the watermark at the first record
    "role",
    "seen",
    "start",  # the window of its row in the table, if it is seen
    "end",
    "revision",
    "since",  # processing time of the first record that is not seen, if early panes need it
    "partition",  # late: the first record's coordinates
    "offset",
    "count",  # number of records
)
_FRAGMENT = np.dtype([(name, "<i8") for name in FRAGMENT_FIELDS])

Fragments = npt.NDArray[Any]
"""A structured array with the fields of a fragment."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SessionRecords:
    """The records of a step that have not expired, as columns: key numbers, times, verdicts and coordinates.

    `since` is the processing time at which the records arrived. `lasts` are the event times or, if each record has its
    own gap, the ends of the records.
    """

    keys: Numbers
    times: Micros
    watermarks: Micros
    late: Mask
    partitions: Numbers
    offsets: Numbers
    since: int
    lasts: Micros

    def take(self, rows: Numbers) -> SessionRecords:
        """Return the records in the given rows."""
        return replace(self, **{name: column[rows] for name, column in vars(self).items() if name != "since"})


def make_fragments(length: int, **values: Micros | int) -> Fragments:
    """Return an array of fragments; fields without a value are 0."""
    fragments = np.zeros(length, dtype=_FRAGMENT)
    for name, value in values.items():
        fragments[name] = value
    return fragments


def order_by_key_and_time(keys: Numbers, times: Micros) -> Numbers:
    """Return the row numbers in stable order by key, then time."""
    order = np.argsort(times, kind="stable")
    shift, highest = 0, int(keys.max(initial=0))
    while shift == 0 or highest >> shift:
        # a stable sort of 16 bits at a time is a radix sort, several times faster than any by two columns
        order = order[np.argsort((keys[order] >> shift).astype(np.uint16), kind="stable")]
        shift += 16
    return order


def coalesce(records: SessionRecords, gap: int) -> tuple[Fragments, Numbers]:
    """Coalesce on-time records into fragments; return these by (key, time), and the fragment of each record.

    A session ends at t + gap if no record has an event time in (t, t + gap) and a watermark below t + gap. So a record
    with event time u and watermark w rules out such an end for each t in (c, u), where c = max(u, w) - gap. If each
    record's time, in order of time, is in the interval (c, u) of the next record, no later record can separate the
    records, and they form one fragment. The fragment rules out every end that any of its records rules out, so its
    interval starts at the smallest c.

    If each record has its own gap, the same holds for ends: `lasts` are the ends of the records, and `gap` is 0. A
    record with end e rules out the ends in (max(u, w), e).
    """
    order = order_by_key_and_time(records.keys, records.lasts)
    key, time = records.keys[order], records.lasts[order]
    times = records.times[order]
    cover = np.maximum(times, records.watermarks[order]) - gap
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (key[1:] != key[:-1]) | (cover[1:] >= time[:-1])
    starts = np.flatnonzero(begins)
    fragment_of = np.empty(len(order), dtype=np.int64)
    fragment_of[order] = np.cumsum(begins) - 1
    if len(starts) == 0:
        return make_fragments(0), fragment_of
    ends = np.append(starts[1:], len(order)) - 1
    return make_fragments(
        len(starts),
        key=key[starts],
        first=np.minimum.reduceat(times, starts),
        last=time[ends],
        closes=time[ends],
        cover=np.minimum.reduceat(cover, starts),
        since=records.since,
        count=np.diff(starts, append=len(order)),
    ), fragment_of


def cluster_fragments(parts: Fragments, gap: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return the order of fragments by key and start, the order by key and end, and where clusters begin in both.

    Fragments of different clusters do not overlap, so a change of one cluster does not affect another. A fragment
    covers the window of its row if it has a row. Otherwise it covers the time from its first record to its last record
    + gap.
    """
    seen = parts["seen"] != UNSEEN
    starts = np.where(seen, parts["start"], parts["first"])
    ends = np.where(seen, parts["end"], parts["last"] + gap)
    key = np.ascontiguousarray(parts["key"])
    by_start = order_by_key_and_time(key, starts)
    by_end = order_by_key_and_time(key, ends)
    begins = np.ones(len(parts), dtype=np.bool_)
    # a cluster begins at a start of a key if all fragments of the key that start earlier have ended by then
    begins[1:] = (key[by_start[1:]] != key[by_start[:-1]]) | (ends[by_end[:-1]] <= starts[by_start[1:]])
    return by_start, by_end, np.flatnonzero(begins)


def distinct_fragments(parts: Fragments, by: str) -> Numbers:
    """Return the index of the first fragment for each key and value of the field `by`."""
    order = np.lexsort((parts[by], parts["key"]))
    ordered = parts[order]
    is_first = np.ones(len(parts), dtype=np.bool_)
    is_first[1:] = (np.diff(ordered["key"]) != 0) | (np.diff(ordered[by]) != 0)
    firsts: Numbers = order[is_first]
    return firsts


@dataclass(frozen=True)
class SessionTime:
    """Time in a step: the low watermark `before` the step and after it (`low`), and whether the input has ended.

    If a session has an unseen record that arrived at the processing time `due` or earlier, an early pane is due. None
    means that no early pane is due.
    """

    before: int
    low: int
    end: bool
    due: int | None


@dataclass(frozen=True)
class SessionSpec:
    """The definition of sessions: gap and lateness in microseconds, and how late records are reported.

    With `is_traced`, records come in the merged order, and each change has the position of its cause. Records also come
    in that order if `count` is set, so that `count` unseen records make an early pane due.

    If each record has its own gap, `gap` is 0, and the ends of records replace their times. No gap is longer than
    `reach`.
    """

    gap: int
    lateness: int
    late: Literal["each", "batch"]
    is_traced: bool = False
    count: int | None = None
    most: int | None = None

    @property
    def reach(self) -> int:
        """The longest gap, in microseconds."""
        return self.gap if self.most is None else self.most

    @property
    def is_record_by_record(self) -> bool:
        """Whether each record is an event of its own, in the merged order."""
        return self.is_traced or self.count is not None

    def open(self, stored: Fragments, moment: SessionTime) -> Mask:
        """Return the mask of stored on-time fragments whose session had not finally fired before the step."""
        ends = stored["closes"] + self.gap
        fired = (ends <= moment.before) | ((stored["seen"] == FIRED) & (ends <= moment.low))
        is_open: Mask = (stored["role"] == ON_TIME) & ~fired
        return is_open

    def is_moved(self, stored: Fragments, moment: SessionTime) -> Mask:
        """Return the mask of stored fragments that fire merely because time has passed."""
        seen = stored["seen"]
        passed = stored["closes"] + self.gap <= moment.low
        fires = (seen != FIRED) & (passed | moment.end)
        if moment.due is not None:
            fires |= (seen == UNSEEN) & (stored["since"] <= moment.due)
        moved: Mask = fires & self.open(stored, moment)
        return moved

    def is_past(self, end: Any, moment: SessionTime) -> Any:  # noqa: ANN401 - a number or a column
        """Return True if no later record can touch a row with this end."""
        return end + self.reach + self.lateness <= moment.low

    def is_evictable(self, stored: Fragments, moment: SessionTime) -> Mask:
        """Return the mask of stored fragments whose row no later record can touch."""
        is_evictable: Mask = (stored["seen"] != UNSEEN) & self.is_past(stored["end"], moment)
        return is_evictable


def session_keys(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the key columns of rows; a pipeline without a key gets a constant column, to keep the number of rows."""
    if names:
        return rows.select(list(names))
    return pa.table({"__all": pa.repeat(pa.scalar("", pa.string()), rows.num_rows)})


def number_keys(keys: pa.Table) -> tuple[Numbers, pa.Table]:
    """Return the number of each row's key, and the distinct keys, numbered in order of first appearance."""
    numbers = key_numbers(keys)
    if keys.num_columns > 1:
        _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
        ranks = np.empty(len(firsts), dtype=np.int64)
        ranks[np.argsort(firsts)] = np.arange(len(firsts))
        numbers = ranks[numbers]
    firsts = np.full(int(numbers.max(initial=-1)) + 1, keys.num_rows, dtype=np.int64)
    np.minimum.at(firsts, numbers, np.arange(keys.num_rows))
    return numbers, keys.take(pa.array(firsts))
