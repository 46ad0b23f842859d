"""Keys by number: each different key of a step has one, in the order in which they first come."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]


def number_keys(keys: pa.Table) -> tuple[Numbers, pa.Table]:
    """Return the number of each row's key, and the different keys in the order of their numbers."""
    numbers: Numbers | None = None
    for column in keys.columns:
        coded = column.combine_chunks().dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64)
        numbers = codes if numbers is None else _number(numbers * len(coded.dictionary) + codes)
    if numbers is None:
        msg = "a session needs a key"
        raise ValueError(msg)
    firsts = np.full(int(numbers.max(initial=-1)) + 1, keys.num_rows, dtype=np.int64)
    np.minimum.at(firsts, numbers, np.arange(keys.num_rows))
    return numbers, keys.take(pa.array(firsts))


def _number(values: Numbers) -> Numbers:
    """Number whole numbers by where they first come."""
    _, firsts, numbers = np.unique(values, return_index=True, return_inverse=True)
    ranks = np.empty(len(firsts), dtype=np.int64)
    ranks[np.argsort(firsts)] = np.arange(len(firsts))
    return ranks[numbers]
