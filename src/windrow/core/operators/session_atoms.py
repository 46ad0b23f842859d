"""Atoms: the pieces of sessions that a key group remembers, one row each.

The accumulators of an atom stand beside it in an Arrow table; here is where it lies and what has become of it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from windrow.core.micros import BEFORE_ALL, Micros

Mask = npt.NDArray[np.bool_]

ON_TIME: Final = 0
"""Role: on-time records. Each but the last of them is known not to end a session (see `melt`)."""
JOINED: Final = 1
"""Role: late records, in a row of the table."""
WAITING: Final = 2
"""Role: late records that are in no row: a new one, or what waits together for an on-time session to fire."""
SETTLED: Final = 3
"""Role: on-time records, and late ones in their row, that no on-time record can go on from any more."""

UNSEEN: Final = 0
EARLY: Final = 1
FIRED: Final = 2
"""Seen: whether the table has the atom, and for on-time records whether by an early or an on-time pane."""

FIELDS: Final = (
    "key",  # the number of its key in this step
    "first",  # least event time
    "last",  # greatest event time
    "closes",  # on time: that of its session, as far as it is known; all of a session fires together
    "cover",  # on time: no session ends at a time between this and `closes`; waiting: the watermark at the first record
    "role",
    "seen",
    "start",  # the window of its row in the table, if it is seen
    "end",
    "revision",
    "since",  # processing time of the first record that is not seen, if early panes need it
    "partition",  # late: the first record's coordinates
    "offset",
)
_ATOM = np.dtype([(name, "<i8") for name in FIELDS])

Atoms = npt.NDArray[Any]
"""A structured array with the fields of an atom."""


def atoms(length: int, **values: Micros | int) -> Atoms:
    """Make atoms; fields without a value are 0."""
    made = np.zeros(length, dtype=_ATOM)
    for name, value in values.items():
        made[name] = value
    return made


def by_key_and(keys: npt.NDArray[np.int64], times: Micros) -> npt.NDArray[np.int64]:
    """Return the order by key, then time; what is equal stays in its order."""
    order = np.argsort(times, kind="stable")
    shift, highest = 0, int(keys.max(initial=0))
    while shift == 0 or highest >> shift:
        # a stable sort of 16 bits at a time is a radix sort, several times faster than any by two columns
        order = order[np.argsort((keys[order] >> shift).astype(np.uint16), kind="stable")]
        shift += 16
    return order


def melt(
    keys: npt.NDArray[np.int64], times: Micros, watermarks: Micros, gap: int
) -> tuple[Atoms, npt.NDArray[np.int64]]:
    """Melt on-time records into atoms; return these in the order of (key, time), and the atom of each record.

    A session ends at t + gap if no record has an event time in (t, t + gap) and a watermark below t + gap. So a record
    with event time u and watermark w ends that for each t in (c, u), c = max(u, w) - gap. Records of which each one's
    time is in the next one's (c, u) can never be told apart again, whatever else comes: they are one atom, and it
    does to others what all of them do, with the least c.
    """
    order = by_key_and(keys, times)
    key, time = keys[order], times[order]
    cover = np.maximum(time, watermarks[order]) - gap
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (key[1:] != key[:-1]) | (cover[1:] >= time[:-1])
    starts = np.flatnonzero(begins)
    of = np.empty(len(order), dtype=np.int64)
    of[order] = np.cumsum(begins) - 1
    if len(starts) == 0:
        return atoms(0), of
    ends = np.append(starts[1:], len(order)) - 1
    return atoms(
        len(starts),
        key=key[starts],
        first=time[starts],
        last=time[ends],
        closes=time[ends],
        cover=np.minimum.reduceat(cover, starts),
        since=BEFORE_ALL,
    ), of


def clusters(parts: Atoms, gap: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the order of atoms by key and start, that by key and end, and where clusters begin in both.

    What is in different clusters does not touch, so whatever happens to one concerns no other. An atom reaches as far
    as its row if it has one, else from its first record to its last + gap.
    """
    starts, ends = reach(parts, gap)
    key = np.ascontiguousarray(parts["key"])
    by_start = by_key_and(key, starts)
    by_end = by_key_and(key, ends)
    begins = np.ones(len(parts), dtype=np.bool_)
    # a new one begins at the n-th start of a key if n ends are not after it: they are those of the n before
    begins[1:] = (key[by_start[1:]] != key[by_start[:-1]]) | (ends[by_end[:-1]] <= starts[by_start[1:]])
    return by_start, by_end, np.flatnonzero(begins)


def reach(parts: Atoms, gap: int) -> tuple[Micros, Micros]:
    """Return from when to when atoms touch others."""
    seen = parts["seen"] != UNSEEN
    return np.where(seen, parts["start"], parts["first"]), np.where(seen, parts["end"], parts["last"] + gap)
