"""Truncations: records that remove all rows of a database table, such as PostgreSQL's TRUNCATE.

A truncation has a place and an event time, but no fields, and null in `DELETED`. It reaches every key group. There it
removes the rows whose last version comes from its own partition of the log: the topic of one database table has a
truncation in each partition, and the order of records is known only within a partition. So a version is removed by the
truncations that follow it in its partition. Within a partition, places are in the order of offsets.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.engine.columns import Mask, Micros, to_micros
from windrow.engine.schema import DELETED, OFFSET, PARTITION, SIDE, TIME


def are_truncations(records: pa.Table) -> pa.ChunkedArray | None:
    """Return the mask of the truncations among records, or None if there are none."""
    if DELETED not in records.column_names or not records.column(DELETED).null_count:
        return None
    is_truncation = records.column(DELETED).is_null()
    if SIDE in records.column_names:
        # only records of the right side of a lookup are versions
        is_truncation = pc.and_(is_truncation, pc.equal(records.column(SIDE), 1))
    return is_truncation


def split_truncations(records: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the records of rows, and the truncations, each in the given order."""
    mask = are_truncations(records)
    if mask is None:
        return records, records.slice(0, 0)
    return records.filter(pc.invert(mask)), records.filter(mask)


def with_truncations(records: pa.Table, truncations: pa.Table) -> pa.Table:
    """Append truncations to records; the columns that truncations lack are null."""
    if not truncations.num_rows:
        return records
    names = [name for name in records.column_names if name in truncations.column_names]
    return pa.concat_tables([records, truncations.select(names)], promote_options="default")


def are_truncated(versions: pa.Table, truncations: pa.Table, upto: pa.Table, number: str) -> Mask:
    """Return the mask of versions that are removed by a truncation that arrived before the corresponding row of `upto`.

    The column `number` has the numbers in the order of arrival. A version is removed by truncations after its place.
    """
    is_truncated = np.zeros(versions.num_rows, dtype=np.bool_)
    partitions, offsets = (to_micros(versions.column(name)) for name in (PARTITION, OFFSET))
    numbers = to_micros(upto.column(number))
    for partition, own in _by_partition(truncations, (number, OFFSET)):
        at = np.flatnonzero(partitions == partition)
        arrived, greatest = to_micros(own.column(number)), np.maximum.accumulate(to_micros(own.column(OFFSET)))
        last = np.searchsorted(arrived, numbers[at], side="right") - 1
        is_truncated[at] = (last >= 0) & (greatest[last] > offsets[at])
    return is_truncated


def truncations_between(versions: pa.Table, truncations: pa.Table, times: Micros) -> tuple[Micros, Micros]:
    """Return pairs of a version and a truncation that removes it by an event time: the rows in the two tables.

    The truncation is after the version in the order of event time and place, and at most at the version's element of
    `times`.
    """
    partitions, offsets, begins = (to_micros(versions.column(name)) for name in (PARTITION, OFFSET, TIME))
    found = [(np.zeros(0, dtype=np.int64),) * 2]
    number = "__index"
    numbered = truncations.append_column(number, pa.array(np.arange(truncations.num_rows)))
    for partition, own in _by_partition(numbered, (TIME, OFFSET)):
        at = np.flatnonzero(partitions == partition)
        own_times, own_offsets, indexes = (to_micros(own.column(name)) for name in (TIME, OFFSET, number))
        first, end = np.searchsorted(own_times, begins[at]), np.searchsorted(own_times, times[at], side="right")
        counts = np.maximum(end - first, 0)
        rows = np.repeat(np.arange(len(at)), counts)
        of = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + first[rows]
        is_after = (own_times[of] > begins[at[rows]]) | (own_offsets[of] > offsets[at[rows]])
        found.append((at[rows[is_after]], indexes[of[is_after]]))
    rows, others = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return rows, others


def _by_partition(truncations: pa.Table, order: tuple[str, str]) -> list[tuple[int, pa.Table]]:
    """Return the truncations of each partition, sorted by two columns."""
    columns = [to_micros(truncations.column(name)) for name in (*reversed(order), PARTITION)]
    ordered = truncations.take(pa.array(np.lexsort(columns)))
    partitions = to_micros(ordered.column(PARTITION))
    firsts = np.flatnonzero(np.diff(partitions, prepend=-1)).tolist()
    ends = [*firsts[1:], len(partitions)] if firsts else []
    return [(int(partitions[at]), ordered.slice(at, end - at)) for at, end in zip(firsts, ends, strict=True)]
