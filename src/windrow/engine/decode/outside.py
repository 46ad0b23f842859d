"""Fields that a record has outside its value: its place, log timestamp and headers, its key and the key's columns.

A field is one of them if its path begins with one of the names below and the value has no such member, or null.
A field that takes the key of tombstones is read from the key of other records, too, unless they have it in the value:
upsert topics often have the key in one place only.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import schema
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.field_columns import FieldColumn, Path, Rows
from windrow.engine.decode.key_columns import KeyColumns
from windrow.engine.decode.record_key import KeyReader, key_of_line
from windrow.engine.decode.values import Headers, MalformedError, NumberText, PlainText, TimeText

_NANOS_OF_MILLI: Final = 1_000_000


@dataclass(frozen=True)
class Metadata:
    """The place of a record, and its headers in order, or None if the name of a header is not UTF-8."""

    partition: int
    offset: int
    headers: Iterable[tuple[str, bytes | None]] | None = ()


NO_METADATA: Final = Metadata(0, 0)


@dataclass(frozen=True)
class OutsideFields:
    """The names of the members that are read from outside values, and the fields that are columns of the key.

    `is_topic` says whether records have a key and a log timestamp outside their value, as those of Kafka do.
    """

    names: frozenset[str]
    of_key: tuple[m.Field, ...]
    keys: KeyReader
    is_topic: bool

    @staticmethod
    def of(source: m.Source, fields: tuple[m.Field, ...], keys: KeyReader) -> OutsideFields | None:
        """Return the fields of a source that are read from outside, or None if there are none."""
        is_topic = isinstance(source.records, m.KafkaSource)
        names = frozenset(path[0] for field in fields for path in field.paths) & source.outside
        of_key = tuple(field for field in fields if field.tombstones and len(field.paths[0]) == 1)
        if source.format == "debezium" or not (names or of_key):
            return None
        return OutsideFields(names, of_key, keys, is_topic)

    def metadata(self, raw: pa.RecordBatch) -> Iterable[Metadata]:
        """Return the metadata of the records of a batch in `schema.RAW`, with headers only if they are read."""
        places = (raw.column(name).to_pylist() for name in ("partition", "offset"))
        if m.HEADERS not in self.names:
            return map(Metadata, *places)
        return map(Metadata, *places, _headers(raw).to_pylist())

    def reads(self, path: Path) -> bool:
        """Return True if the value at a path of records may be outside of them."""
        return path[0] in self.names or path in self._key_paths

    @cached_property
    def _columns(self) -> KeyColumns:
        return KeyColumns(self.keys)

    @cached_property
    def _texts(self) -> fc.TextColumns:
        return fc.TextColumns()

    @cached_property
    def _key_paths(self) -> dict[Path, m.Field]:
        return {field.paths[0]: field for field in self.of_key}

    def add(
        self, record: Mapping[str, object], metadata: Metadata, log_time: int | None, key: bytes | None
    ) -> Mapping[str, object]:
        """Return a record with the members that it lacks.

        Raise MalformedError if the key or the headers are needed and malformed.
        """
        missing = [name for name in self.names if record.get(name) is None]
        columns = [field for field in self.of_key if all(record.get(name) is None for name in field.names)]
        if not missing and not columns:
            return record
        value = None
        if not self.is_topic:
            value = key_of_line(record.get(m.KEY))
        elif key is not None and (columns or m.KEY in missing):
            value = self.keys.read(key)
        found = {field.name: _column(field, value, is_single=len(self.of_key) == 1) for field in columns}
        found |= self.around(missing, metadata, log_time, value)
        return {**record, **{name: part for name, part in found.items() if part is not None}}

    @staticmethod
    def around(names: Collection[str], metadata: Metadata, log_time: int | None, key: object) -> dict[str, object]:
        """Return members of a record that are outside its value, given the value of its key.

        Raise MalformedError if the headers are needed and malformed.
        """
        found: dict[str, object] = {
            m.PARTITION: NumberText(metadata.partition % m.MAX_PARTITIONS),
            m.OFFSET: NumberText(metadata.offset),
            m.LOG_TIME: None if log_time is None else TimeText.of(log_time // 1000, _NANOS_OF_MILLI),
            m.KEY: key,
        }
        if m.HEADERS in names:
            if metadata.headers is None:
                msg = "malformed: the name of a header is not UTF-8"
                raise MalformedError(msg)
            found[m.HEADERS] = _by_name(metadata.headers)
        return {name: found[name] for name in names}

    def fill(
        self, raw: pa.RecordBatch, rows: Rows, columns: Mapping[Path, FieldColumn], types: Mapping[Path, m.DataType]
    ) -> Mapping[Path, FieldColumn]:
        """Return the columns of some rows of a batch in `schema.RAW`, with the values that the records lack."""
        filled = dict(columns)
        for path, column in columns.items():
            absent = ~fc.valid_mask(column.values)
            if not self.reads(path) or not absent.any():
                continue
            outside = self._column(raw, rows, path, types[path])
            trusted = outside.trusted
            if len(path) > 1:
                # the value may have an object of that name without the member, which counts
                is_named = pc.match_substring(raw.column("value").take(pa.array(rows)), f'"{path[0]}"')
                trusted = trusted & ~fc.holds_mask(is_named)
            values = pc.if_else(pa.array(absent), outside.values, column.values)
            filled[path] = FieldColumn(values, column.trusted & (~absent | trusted))
        return filled

    def _column(self, raw: pa.RecordBatch, rows: Rows, path: Path, type_: m.DataType) -> FieldColumn:
        at = pa.array(rows)
        match path:
            case (m.PARTITION,) if path[0] in self.names:
                found = fc.number_column(type_, raw.column("partition").to_numpy()[rows] % m.MAX_PARTITIONS, None)
            case (m.OFFSET,) if path[0] in self.names:
                found = fc.number_column(type_, raw.column("offset").to_numpy()[rows], None)
            case (m.LOG_TIME,) if path[0] in self.names:
                times = raw.column("log_time").cast(pa.int64()).take(at)
                if isinstance(type_, m.TimestampType):
                    return fc.times_column(times, 1)
                millis = pc.divide(times, 1000)
                found = FieldColumn(millis, fc.valid_mask(millis)) if isinstance(type_, m.LongType) else None
            case (m.HEADERS, *within) if path[0] in self.names:
                return self._header_column(_headers(raw).take(at), within, type_)
            case (m.KEY, *within) if self.is_topic and path[0] in self.names:
                keys = raw.column("key").take(at)
                return self._columns.column(keys, tuple(within), type_, is_single=not within)
            case _ if self.is_topic and not self._key_paths[path].alias:
                keys = raw.column("key").take(at)
                return self._columns.column(keys, path, type_, is_single=len(self.of_key) == 1)
            case _:
                found = None
        return found or fc.nulls_column(type_, len(rows), trusted=False)

    def _header_column(self, headers: pa.MapArray, within: Sequence[str], type_: m.DataType) -> FieldColumn:
        """Return the values of a header, or without a name all headers as JSON objects."""
        if not within:
            texts = [None if pairs is None else _by_name(pairs).text() for pairs in headers.to_pylist()]
            return self._texts.convert(type_, pa.array(texts, pa.string()))
        name, *inner = within
        if inner:
            return fc.nulls_column(type_, len(headers), trusted=False)
        values = pc.map_lookup(headers, pa.scalar(name), "last")
        column = self._texts.convert(type_, fc.valid_text(values))
        is_absent = pc.and_(headers.is_valid(), values.is_null())
        return FieldColumn(pc.if_else(is_absent, None, column.values), column.trusted | fc.to_mask(is_absent))


def _headers(raw: pa.RecordBatch) -> pa.MapArray:
    """Return the headers of raw records; those of a batch without the column are empty."""
    if schema.HEADERS.name in raw.schema.names:
        return raw.column(schema.HEADERS.name)
    return pa.array([()] * raw.num_rows, schema.HEADERS.type)


def _by_name(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return headers by name, with the last value of a repeated name; bytes that are not UTF-8 become Base64."""
    return Headers((name, None if value is None else PlainText(_text(value))) for name, value in headers)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _column(field: m.Field, key: object, *, is_single: bool) -> object:
    """Return the value of a field in a key, or None."""
    if isinstance(key, dict):
        return next((value for name in field.names if (value := key.get(name)) is not None), None)
    return key if is_single else None
