"""Key groups: the fixed number of parts into which a pipeline's keys, and so its work and state, are divided.

The number of key groups is part of the pipeline; the group of a key depends only on the key and that number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.engine.columns import to_micros, whole
from windrow.engine.duckdb_sql import Connection, identifier, query
from windrow.engine.schema import ID, LAST_PARTITION, OFFSET, PARTITION

KeyGroups = npt.NDArray[np.int64]

MAX_KEY_BYTES: Final = 2048
"""Maximum total size of a key's texts in UTF-8 bytes, for any sink.

A row of a PostgreSQL index has at most 2,704 bytes. About 650 of them are left for the bounds of the window, the
revision, other key fields (8 bytes each, up to 25 for a decimal), and up to 7 bytes per text for its length and
alignment.
"""


def text_bytes(texts: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Return each row's total size in UTF-8 bytes across one or more string columns; nulls have size 0."""
    counts = [pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False) for column in texts]
    bytes_: npt.NDArray[np.int64] = np.sum(counts, axis=0, dtype=np.int64)
    return bytes_


def key_numbers(keys: pa.Table) -> npt.NDArray[np.int64]:
    """Return a number for each row of a table without nulls, equal for equal keys.

    The numbers are at least 0 and less than the number of rows.
    """
    numbers, is_constant = np.zeros(keys.num_rows, dtype=np.int64), True
    for column in keys.columns:
        encoded = whole(column).dictionary_encode()
        if len(encoded.dictionary) > 1:
            numbers = numbers * len(encoded.dictionary) + encoded.indices.to_numpy()
            numbers = numbers if is_constant else np.unique(numbers, return_inverse=True)[1]
            is_constant = False
    return numbers


def key_groups(connection: Connection, keys: pa.Table, groups: int, *, are_ids: bool = False) -> KeyGroups:
    """Return the key group of each row of a table of keys.

    The hash is the MD5 of the key's text. It is the same on every machine and in every version, so a key's state is
    always found in the key group that it was written for. It is computed once for each distinct key. Keys that mostly
    occur once, such as ids, use the hash of pandas, which is equally stable, because converting them to text takes
    longer than the whole step. Without a key all rows are in the first group.
    """
    if not keys.num_columns:
        return np.zeros(keys.num_rows, dtype=np.int64)
    if are_ids:
        import pandas as pd  # noqa: PLC0415 - it is heavy, and few pipelines hash ids

        frame = pd.DataFrame(dict(enumerate(map(hashable, keys.columns))), copy=False)
        numbers = pd.util.hash_pandas_object(frame, index=False, categorize=False).to_numpy()
        return (numbers % np.uint64(groups)).astype(np.int64)
    distinct = key_texts(connection, keys).combine_chunks().dictionary_encode()
    sql = f"SELECT (md5_number_lower(text) % {groups})::BIGINT AS key_group FROM texts"
    hashed = query(connection, sql, texts=pa.table({"text": distinct.dictionary})).column("key_group").to_numpy()
    return hashed[distinct.indices.to_numpy()]  # type: ignore[no-any-return]


def split_by_group(rows: pa.Table, groups: KeyGroups) -> Iterator[tuple[int, pa.Table]]:
    """Yield each key group that has rows, together with its rows."""
    for group in np.unique(groups).tolist():
        yield group, rows.filter(pa.array(groups == group))


def place_groups(connection: Connection, records: pa.Table, groups: int) -> KeyGroups:
    """Return the key group of each record, determined by its place in the log instead of its key.

    Rows without a record, such as rows emitted by timers, all have the same place, so their `ID` determines the group.
    """
    found = key_groups(connection, records.select([PARTITION, OFFSET]), groups, are_ids=True)
    is_made = to_micros(records.column(PARTITION)) == LAST_PARTITION
    if is_made.any():
        made = records.filter(pa.array(is_made)).select([ID])
        found[is_made] = key_groups(connection, made, groups, are_ids=True)
    return found


def hashable(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return whole numbers and times unchanged, and all other values as hashes of their text."""
    if pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
        return to_micros(column)
    import pandas as pd  # noqa: PLC0415 - as above

    distinct = column.cast(pa.string()).combine_chunks().dictionary_encode()
    hashed = pd.util.hash_array(distinct.dictionary.to_numpy(zero_copy_only=False), categorize=False)
    return hashed[distinct.indices.to_numpy()]  # type: ignore[no-any-return]


def key_texts(connection: Connection, keys: pa.Table) -> pa.ChunkedArray:
    """Return a text for each row that is unique to its key and the same on every machine."""
    if keys.num_columns == 1 and pa.types.is_string(keys.schema.types[0]):
        return keys.column(0)
    parts = [f"{identifier(name)}::VARCHAR" for name in keys.column_names]
    # the length before each part: ("a", "bc") and ("ab", "c") are two keys
    text = " || ".join(f"length({part}) || ':' || {part}" for part in parts)
    return query(connection, f"SELECT {text} AS text FROM keys", keys=keys).column("text")
