"""From changes to the table that they make."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def last_changes(changes: pa.Table, key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Mark the last change of each key: those that decide what the table holds, in the changelog's order."""
    mask = np.zeros(changes.num_rows, dtype=np.bool_)
    numbered = changes.select(list(key)).append_column("_seq", pa.array(np.arange(changes.num_rows)))
    last = numbered.group_by(list(key), use_threads=False).aggregate([("_seq", "max")])
    mask[last["_seq_max"].to_numpy()] = True
    return mask


def fold(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows that are left when all changes have been applied, in the order of their last change."""
    last = changes.filter(pa.array(last_changes(changes, key)))
    return last.filter(pc.is_in(last["op"], pa.array(["insert", "update_after"])))
