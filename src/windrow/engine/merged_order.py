"""Merged order of records: by watermark, partition and offset, then by the identity of the row.

The text of an `ID` contains numbers: offsets, and the numbers of elements. Ids are compared by these numbers first, and
as texts if the numbers are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.engine.columns import Micros, to_micros
from windrow.engine.schema import BEHIND_PARTITIONS, ID, OFFSET, PARTITION, PLACE, SIDE, TIME

Order = npt.NDArray[np.intp]


def in_merged_order(records: pa.Table) -> pa.Table:
    """Sort records by watermark, partition and offset, then by the side of a join and `ID`."""
    return _sort(records, _columns(records, (*PLACE, SIDE) if SIDE in records.column_names else PLACE))


def numbered_in_merged_order(records: pa.Table) -> pa.Table:
    """Set the partition of all records to 0, and the offset of each to its number in the merged order."""
    columns = _columns(records, PLACE)
    order = np.lexsort(columns[::-1])
    numbers = np.empty_like(order)
    numbers[order] = runs_of_equals([column[order] for column in columns])
    for name, values in ((PARTITION, np.zeros_like(numbers)), (OFFSET, numbers)):
        at = records.column_names.index(name)
        field = records.schema.field(at)
        records = records.set_column(at, field, pa.array(values).cast(field.type))
    return records


def in_log_order(records: pa.Table) -> pa.Table:
    """Sort records by partition and offset, then by `ID`."""
    return _sort(records, _columns(records, (PARTITION, OFFSET)))


def in_event_time_order(records: pa.Table) -> pa.Table:
    """Sort records by event time, partition and offset, then by `ID`."""
    times, partitions, offsets = _columns(records, (TIME, PARTITION, OFFSET))
    return _sort(records, [times, partitions | BEHIND_PARTITIONS, offsets])


def _columns(records: pa.Table, names: Sequence[str]) -> list[Micros]:
    return [to_micros(records.column(name)) for name in names]


def _sort(records: pa.Table, columns: list[Micros]) -> pa.Table:
    """Sort records by integer columns, then by `ID` if they have one."""
    if not records.num_rows:
        return records
    order = np.lexsort(columns[::-1])
    if ID in records.column_names and len(rows := tied_rows(columns, order)):
        ids = records.column(ID).take(pa.array(rows)).combine_chunks()
        for texts in (_with_whole_numbers(ids), ids):
            ranks = np.zeros(records.num_rows, dtype=np.int64)
            ranks[rows] = pc.rank(texts, tiebreaker="dense").to_numpy()
            columns.append(ranks)
        order = np.lexsort(columns[::-1])
    return records if (order[1:] > order[:-1]).all() else records.take(pa.array(order))


def runs_of_equals(columns: Sequence[Micros]) -> Micros:
    """Return, for each row, the number of its run of consecutive rows with equal values in all columns, from 0 on."""
    is_first = np.zeros(len(columns[0]), dtype=np.bool_)
    for column in columns:
        is_first[1:] |= np.diff(column) != 0
    return np.cumsum(is_first)


def is_later_sql(row: str, other: str) -> str:
    """Return an SQL condition that is true if the place of `row` is after the place of `other`."""
    watermark, partition, offset = ((f"{row}.{name}", f"{other}.{name}") for name in PLACE)
    is_later = f"{' > '.join(partition)} OR ({' = '.join(partition)} AND {' > '.join(offset)})"
    return f"({' > '.join(watermark)} OR ({' = '.join(watermark)} AND ({is_later})))"


def tied_rows(columns: Sequence[Micros], order: Order) -> Order:
    """Return, in the given order, the rows that have the same values in all columns as a neighbour in that order."""
    runs = runs_of_equals([column[order] for column in columns])
    rows: Order = order[np.bincount(runs)[runs] > 1]
    return rows


def _with_whole_numbers(ids: pa.Array) -> pa.Array:
    """Pad the numbers in ids with zeros to equal lengths, so that the ids sort by these numbers as texts."""
    padded = pc.replace_substring_regex(ids, _NUMBER, rf"\1{'0' * _DIGITS}\2")
    return pc.replace_substring_regex(padded, _PADDED, r"\1\2")


_DIGITS: Final = 19
"""Number of digits of the largest offset, which is less than 2**63."""
_NUMBER: Final = r"([/#])([0-9]+)"
_PADDED: Final = rf"([/#])[0-9]*([0-9]{{{_DIGITS}}})"
_PADDED_SQL: Final = f"regexp_replace({ID}, '{_NUMBER}', '\\1{'0' * _DIGITS}\\2', 'g')"
ID_ORDER: Final = (f"regexp_replace({_PADDED_SQL}, '{_PADDED}', '\\1\\2', 'g')", ID)
"""SQL expressions that order rows by `ID` in the same way as `in_merged_order`."""
