"""Read the rows of a Parquet file as JSON objects that have a member for each column.

DuckDB converts them in bulk, but only values whose types exist in JSON or have an exact text form. Any other value (a
time outside the years 1 to 9999, text that is not UTF-8, NaN within a struct) is converted in Python to an object with
its type and value, which no field accepts. A row with such a value becomes a dead letter only if the pipeline decodes
that value.

A few bytes of Parquet can stand for gigabytes of equal texts. Dictionaries are therefore read as such, and rows are
measured before their texts are copied. Only rows of a few megabytes in total are converted at a time.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from windrow.connectors.log.folder import BATCH_ROWS
from windrow.engine import duckdb_sql
from windrow.engine.columns import slices
from windrow.errors import SourceError

Mask: TypeAlias = npt.NDArray[np.bool_]

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970."""
_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_LONGEST_DAYS: Final = 3_652_059
"""The maximum duration, from year 1 to year 9999."""
_FINEST: Final = 2**63 - 1
"""DuckDB reads the largest and smallest number of nanoseconds as infinities."""
_CHUNK_BYTES: Final = 8 << 20
"""The most bytes of values that are converted to JSON at a time, if they are of more than one row."""
_SAMPLE_ROWS: Final = 1024
_NESTED_ROWS: Final = 512
"""Number of rows to read at a time if texts within lists or structs have a dictionary, which Arrow expands."""
_MOST_DICTIONARY: Final = 2 << 20
"""A size of a dictionary that writers do not exceed: their default is 1 MiB."""
_INDEX_BYTES: Final = 4
_NUMBER_BYTES: Final = 8
"""Bytes at which a value of a fixed size is estimated."""
_KNOWN_EXTENSIONS: Final = frozenset({"arrow.uuid", "arrow.bool8"})
"""Extension types for which DuckDB has native types."""


@dataclass(frozen=True)
class ParquetRows:
    """The rows of a Parquet file, each as a JSON object with a member for each column.

    Decimals and times are written as text, which `decode` reads exactly, and binary values as base64 text.
    """

    path: Path

    def count(self) -> int:
        """Return the number of rows."""
        with self._open() as (file, _, _):
            return int(file.metadata.num_rows)

    def size(self) -> int:
        """Estimate the bytes of the JSON objects from the first rows and the sizes in the file's metadata."""
        with self._open() as (file, _, most):
            encoded = sum(int(file.metadata.row_group(number).total_byte_size) for number in range(file.num_row_groups))
            sample = next(file.iter_batches(min(_SAMPLE_ROWS, most)), None)
            if sample is None or not sample.num_rows:
                return encoded
            return max(encoded, int(_row_bytes(sample).mean() * file.metadata.num_rows))

    def after(self, byte: int, rows: int) -> int:  # noqa: ARG002 - as of lines
        """Return 0, because Parquet rows are found by number rather than by byte."""
        return 0

    def read(self, row: int, byte: int, rows: int) -> Iterator[pa.Array]:  # noqa: ARG002 - the same
        """Yield `rows` rows as binary values, starting with row number `row`."""
        with self._open() as (file, schema, most):
            groups: list[int] = []
            skip = row
            for number in range(file.num_row_groups):
                if not groups and skip >= (there := file.metadata.row_group(number).num_rows):
                    skip -= there
                else:
                    groups.append(number)
            writer = _JsonWriter(schema.names)
            read = file.iter_batches(most, row_groups=groups, use_threads=False)
            for batch in _joined(_rows_of(read, skip, rows)):
                for part in _split(batch, schema):
                    yield writer.write(part)

    def line(self, row: int) -> int:
        """Return the number of a row, counted from 1."""
        return row + 1

    @contextmanager
    def _open(self) -> Iterator[tuple[pq.ParquetFile, pa.Schema, int]]:
        """Open the file, with dictionaries for its texts where possible.

        Also return its schema without dictionaries, and the number of rows to read at a time.
        """
        try:
            # INT96 has years outside 1677 to 2262, in which nanoseconds would overflow
            with pq.ParquetFile(self.path, coerce_int96_timestamp_unit="us") as plain:
                metadata, schema = plain.metadata, plain.schema_arrow
                names = {metadata.schema.column(number).name for number in range(metadata.num_columns)}
                paths = list(_dictionaries(metadata))
                is_nested = not names.issuperset(paths)  # Arrow cannot read these as dictionaries
                with pq.ParquetFile(
                    self.path,
                    metadata=metadata,
                    coerce_int96_timestamp_unit="us",
                    read_dictionary=[] if is_nested else paths,
                ) as file:
                    most = _batch_rows(metadata, _NESTED_ROWS if is_nested else BATCH_ROWS)
                    yield (file if _is_castable(file.schema_arrow, schema) else plain), schema, most
        except (pa.ArrowException, OSError) as exc:
            msg = f"cannot read {self.path} as Parquet: {exc}"
            raise SourceError(msg) from exc


def _rows_of(batches: Iterable[pa.RecordBatch], skip: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield `rows` rows of batches, without the first `skip`."""
    for read in batches:
        batch = read.slice(skip, rows)
        skip, rows = max(0, skip - read.num_rows), rows - batch.num_rows
        if batch.num_rows:
            yield batch
        if rows <= 0:
            return


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, because each conversion has a fixed cost."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > _CHUNK_BYTES):
            yield from _join(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    yield from _join(held)


def _join(held: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(held) > 1:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()
    else:
        yield from held


def _dictionaries(metadata: pq.FileMetaData) -> Iterator[str]:
    """Yield the paths of the columns of texts and bytes that may be larger than they are in the file.

    A column whose dictionary became too large continues without one, so that its size is about the size in the file.
    """
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        if column.physical_type == "BYTE_ARRAY" and any(
            chunk.has_dictionary_page
            and chunk.total_uncompressed_size <= _MOST_DICTIONARY + _INDEX_BYTES * chunk.num_values
            for chunk in (metadata.row_group(group).column(number) for group in range(metadata.num_row_groups))
        ):
            yield column.path


def _is_castable(given: pa.Schema, plain: pa.Schema) -> bool:
    """Return True if Arrow can convert columns with dictionaries to those without."""
    try:
        given.empty_table().cast(plain)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _batch_rows(metadata: pq.FileMetaData, most: int) -> int:
    """Return the number of rows to read at a time: `most`, or fewer if they are large."""
    columns = range(metadata.num_columns)
    lists = [number for number in columns if metadata.schema.column(number).max_repetition_level]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        values = group.num_rows * len(columns) + sum(group.column(column).num_values for column in lists)
        size = max(1, group.total_byte_size, values * _NUMBER_BYTES)
        most = min(most, group.num_rows * _CHUNK_BYTES // size)
    return max(1, most)


def _split(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Divide a batch into slices of at most `_CHUNK_BYTES`, in the given schema; a larger row is a slice of its own."""
    for part in slices(batch, _row_bytes(batch), _CHUNK_BYTES):
        columns = zip(part.columns, schema.types, strict=True)
        cast = [column if column.type == type_ else column.cast(type_) for column, type_ in columns]
        yield part if part.schema.types == schema.types else pa.RecordBatch.from_arrays(cast, schema=schema)


def _row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the approximate bytes of each row as JSON."""
    names = sum(len(name) + _NUMBER_BYTES for name in batch.schema.names)
    return sum((_value_bytes(column) for column in batch.columns), np.full(batch.num_rows, names, dtype=np.int64))


def _value_bytes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the approximate bytes of each value of a column."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    type_, types = column.type, pa.types
    found: npt.NDArray[np.int64] = np.full(len(column), _NUMBER_BYTES, dtype=np.int64)
    if types.is_dictionary(type_):
        lengths = np.append(_value_bytes(column.dictionary), 0)
        found = lengths[column.indices.fill_null(len(lengths) - 1).to_numpy()]
    elif types.is_string_view(type_) or types.is_binary_view(type_):
        found = _value_bytes(column.cast(pa.large_binary()))
    elif (_is_text(type_) or _is_bytes(type_)) and not types.is_fixed_size_binary(type_):
        found = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    elif types.is_struct(type_):
        found = sum(map(_value_bytes, column.flatten()), found)
    elif types.is_map(type_):
        found = _value_bytes(column.cast(pa.list_(pa.struct([type_.key_field, type_.item_field]))))
    elif _is_list(type_):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        ends = np.cumsum(np.append(0, _value_bytes(column.flatten())))[np.cumsum(np.append(0, lengths))]
        found = np.diff(ends) + _NUMBER_BYTES
    return found


class _JsonWriter:
    """Converts rows with given column names to JSON objects."""

    def __init__(self, names: Sequence[str]) -> None:
        # a text in SQL cannot hold U+0000
        self._names = [" || chr(0) || ".join(map(duckdb_sql.literal, name.split("\0"))) for name in names]
        self._duck = duckdb_sql.Connection()

    def write(self, batch: pa.RecordBatch) -> pa.Array:
        columns = {"n": pa.nulls(batch.num_rows)}
        members = []
        for number, (name, column) in enumerate(zip(self._names, map(_plain, batch.columns), strict=True)):
            own, apart = f"c{number}", f"apart{number}"
            odd = _odd(column)
            if odd is None:
                columns[apart] = _texts(column, np.ones(len(column), dtype=np.bool_))
                value = f"{apart}::JSON"
            elif odd.any():
                columns[own] = column.take(pa.array(np.arange(len(column)), mask=odd))
                columns[apart] = _texts(column, odd)
                value = f"coalesce({apart}::JSON, to_json({_json_value(own, column.type)}))"
            else:
                columns[own] = column
                value = _json_value(own, column.type)
            members.append(f"{name}, {value}")
        sql = f"SELECT json_object({', '.join(members)})::VARCHAR FROM rows"
        found = duckdb_sql.query(self._duck, sql, rows=pa.table(columns))
        return found.column(0).combine_chunks().cast(pa.binary())


def _json_value(column: str, type_: pa.DataType) -> str:
    if pa.types.is_floating(type_):  # NaN is no JSON; its text is no number
        return f"CASE WHEN isfinite({column}) THEN to_json({column}::DOUBLE) ELSE to_json({column}::VARCHAR) END"
    return f"base64({column})" if _is_bytes(type_) else f"{column}::{_json_type(type_)}"


def _json_type(type_: pa.DataType) -> str:
    """Return the DuckDB type that represents a type in JSON without loss."""
    if pa.types.is_boolean(type_):
        return "BOOLEAN"
    if pa.types.is_integer(type_):
        return "UBIGINT" if pa.types.is_uint64(type_) else "BIGINT"
    if pa.types.is_floating(type_):
        return "DOUBLE"
    if _is_list(type_):
        return f"{_json_type(type_.value_type)}[]"
    if pa.types.is_struct(type_):
        fields = [type_.field(at) for at in range(type_.num_fields)]
        return (
            f"STRUCT({', '.join(f'{duckdb_sql.identifier(field.name)} {_json_type(field.type)}' for field in fields)})"
        )
    return "JSON" if pa.types.is_map(type_) else "VARCHAR"


def _plain(column: pa.Array) -> pa.Array:
    """Simplify a column: decode dictionaries, unwrap unknown extension types, and convert half-precision floats.

    A slice of structs is copied, because DuckDB cannot read structs within it.
    """
    if isinstance(column, pa.ExtensionArray) and column.type.extension_name not in _KNOWN_EXTENSIONS:
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_struct(column.type) and column.offset:
        column = column.take(pa.array(np.arange(len(column))))
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


def _odd(column: pa.Array, *, is_member: bool = False) -> Mask | None:  # noqa: C901, PLR0911 - a case for each type
    """Return the mask of values that DuckDB cannot convert exactly; None if it cannot convert the type at all."""
    type_, types = column.type, pa.types
    if isinstance(column, pa.ExtensionArray):
        return _odd(column.storage, is_member=is_member)
    if types.is_dictionary(type_):
        return None
    if types.is_boolean(type_) or types.is_integer(type_) or types.is_null(type_) or _is_bytes(type_):
        return _nowhere(column)
    if types.is_float32(type_) or types.is_float64(type_):
        if not is_member:
            return _nowhere(column)
        finite: Mask = pc.fill_null(pc.is_finite(column), fill_value=True).to_numpy(zero_copy_only=False)
        return ~finite
    if types.is_decimal(type_):
        return _nowhere(column) if type_.scale >= 0 and not types.is_decimal256(type_) else None
    if types.is_temporal(type_) and not types.is_interval(type_):
        return _odd_times(column)
    if _is_text(type_):
        return _odd_texts(column)
    if types.is_map(type_):
        return _odd_maps(column)
    if _is_list(type_):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        return _of_parents(_odd(column.flatten(), is_member=True), lengths)
    if types.is_struct(type_):
        names = [type_.field(at).name.casefold() for at in range(type_.num_fields)]
        if not names or len(set(names)) < len(names) or any(not name or "\0" in name for name in names):
            return None
        masks = [_odd(member, is_member=True) for member in column.flatten()]
        known = [mask for mask in masks if mask is not None]
        return np.logical_or.reduce(known) if len(known) == len(masks) else None
    return None


def _odd_times(column: pa.Array) -> Mask:
    """Return the mask of dates, times and durations that have no exact text or are outside the years 1 to 9999."""
    type_, types = column.type, pa.types
    is_short = types.is_date32(type_) or types.is_time32(type_)
    numbers = column.cast(pa.int32() if is_short else pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    per_day = 1 if types.is_date32(type_) else _PER_DAY["ms" if types.is_date64(type_) else type_.unit]
    days = numbers // per_day
    if types.is_time(type_):
        odd: Mask = days != 0
    elif types.is_duration(type_):
        odd = (days < -_LONGEST_DAYS) | (days >= _LONGEST_DAYS)
        if type_.unit == "ns":
            odd |= numbers % 1000 != 0
    else:
        odd = (days < _FIRST_DAY) | (days > _LAST_DAY) | (numbers == _FINEST) | (numbers <= -_FINEST)
    return odd


def _odd_texts(column: pa.Array) -> Mask:
    """Return the mask of texts that are not UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return np.array(
            [_is_broken(text or b"") for text in column.cast(pa.large_binary()).to_pylist()], dtype=np.bool_
        )
    return _nowhere(column)


def _odd_maps(column: pa.Array) -> Mask | None:
    """Return the mask of maps that contain an odd item or repeat a key; None if DuckDB cannot convert the type."""
    type_ = column.type
    if not (pa.types.is_integer(type_.key_type) or _is_text(type_.key_type)):
        return None
    lists = column.cast(pa.list_(pa.struct([type_.key_field, type_.item_field])))
    odd = _odd(lists)
    if odd is None:
        return None
    parents = np.repeat(np.arange(len(lists)), pc.fill_null(pc.list_value_length(lists), 0).to_numpy())
    keys = (
        pa.table({"map": parents, "key": lists.flatten().field(0)})
        .group_by(["map", "key"])
        .aggregate([([], "count_all")])
    )
    odd[keys.filter(pc.greater(keys.column("count_all"), 1)).column("map").to_numpy()] = True
    return odd


def _is_broken(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def _nowhere(column: pa.Array) -> Mask:
    return np.zeros(len(column), dtype=np.bool_)


def _of_parents(odd: Mask | None, lengths: npt.NDArray[np.int64]) -> Mask | None:
    """Return the mask of lists that contain a masked element, given the mask of all elements and the lists' lengths."""
    if odd is None:
        return None
    found = np.zeros(len(lengths), dtype=np.bool_)
    found[np.repeat(np.arange(len(lengths)), lengths)[odd]] = True
    return found


def _texts(column: pa.Array, which: Mask) -> pa.Array:
    """Convert the values selected by `which` to JSON text; the other values become null."""
    texts: list[str | None] = [None] * len(column)
    for row in np.flatnonzero(which).tolist():
        if column[row].is_valid:
            texts[row] = json.dumps(_json_of(column[row]))
    return pa.array(texts, pa.string())


def _json_of(value: pa.Scalar) -> object:  # noqa: C901, PLR0911, PLR0912 - a case for each type
    """Convert a value for JSON; a value without an exact text becomes an object with its type and value."""
    type_, types = value.type, pa.types
    if not value.is_valid:
        return None
    match value:
        case pa.ExtensionScalar() | pa.UnionScalar():
            return _json_of(value.value)
        case pa.DictionaryScalar():
            return _json_of(value.dictionary[value.index.as_py()])
        case pa.MapScalar():
            return {_key(entry[0]): _json_of(entry[1]) for entry in reversed(list(value.values))}
        case pa.StructScalar():
            members = [(type_.field(at).name, value[at]) for at in range(type_.num_fields)]
            return {name: _json_of(member) for name, member in reversed(members)}
        case pa.ListScalar() | pa.ListViewScalar() | pa.LargeListViewScalar():
            return [_json_of(item) for item in value.values]
    if types.is_boolean(type_) or types.is_integer(type_):
        return value.as_py()
    if types.is_floating(type_):
        number = float(value.as_py())
        return number if math.isfinite(number) else str(number)
    if types.is_decimal(type_):
        return format(value.as_py(), "f")
    if _is_bytes(type_):
        return _base64(value)
    if _is_text(type_):
        text = value.as_buffer().to_pybytes()
        return {"type": str(type_), "value": _base64(value)} if _is_broken(text) else text.decode()
    if types.is_temporal(type_) and not types.is_interval(type_):
        if _odd_times(pa.array([value])).any():
            return {"type": str(type_), "value": value.value}
        if not types.is_duration(type_):
            return value.cast(pa.string()).as_py()
    return {"type": str(type_), "value": str(value)}


def _key(value: pa.Scalar) -> str:
    key = _json_of(value)
    return key if isinstance(key, str) else json.dumps(key)


def _base64(value: pa.Scalar) -> str:
    return base64.b64encode(value.as_buffer().to_pybytes()).decode()


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def _is_text(type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in _TEXTS)


def _is_bytes(type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in _BYTES)


def _is_list(type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in _LISTS)
