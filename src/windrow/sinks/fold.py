"""From changes to the table that they make."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def last_changes(changes: pa.Table, key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Mark the last change of each key, which decides what the table holds.

    An ``update_before`` decides nothing: it only tells what was there.
    """
    mask = np.zeros(changes.num_rows, dtype=np.bool_)
    # `seq` is no name of a key.
    numbered = changes.select(["op", *key]).append_column("seq", pa.array(np.arange(changes.num_rows)))
    deciding = numbered.filter(pc.not_equal(numbered["op"], "update_before"))
    last = deciding.group_by(list(key), use_threads=False).aggregate([("seq", "max")])
    mask[last["seq_max"].to_numpy()] = True
    return mask


def fold(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows that are left when all changes have been applied, in the order of their last change."""
    last = changes.filter(pa.array(last_changes(changes, key)))
    return last.filter(pc.not_equal(last["op"], "delete"))
