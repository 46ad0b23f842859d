"""From changes to the table that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Settled:
    """What changes come to: the last change of each key, in the order of the keys.

    Rows that were not there before and now are, rows that are others now, and rows that are gone, if they were there.
    """

    new: pa.Table
    changed: pa.Table
    gone: pa.Table


def settled(changes: pa.Table, key: Sequence[str]) -> Settled:
    """Settle changes, which are in their order.

    An ``update_before`` decides nothing: it only tells what was there.
    """
    places = np.flatnonzero(pc.not_equal(changes["op"], "update_before").to_numpy())
    keys = changes.select(list(key)).take(pa.array(places)).combine_chunks()
    # the sort is stable: the changes of a key stay in their order
    order = pc.sort_indices(keys, sort_keys=[(column, "ascending") for column in key])
    is_first = np.ones(len(places) + 1, dtype=np.bool_)
    if len(places):
        columns = (column.take(order) for column in keys.columns)
        is_first[1:-1] = np.logical_or.reduce([pc.not_equal(c[1:], c[:-1]).to_numpy() for c in columns])
    places = places[order.to_numpy()]
    firsts, lasts = places[is_first[:-1]], places[is_first[1:]]
    was_there = pc.not_equal(changes["op"], "insert").to_numpy()[firsts]
    is_gone = pc.equal(changes["op"], "delete").to_numpy()[lasts]
    chosen = ~was_there & ~is_gone, was_there & ~is_gone, is_gone
    return Settled(*(changes.take(pa.array(lasts[which])) for which in chosen))
