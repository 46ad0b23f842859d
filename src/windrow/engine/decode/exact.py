"""Exact decoder: the authority on the meaning of a record, which it decodes in plain Python.

The fast decoder must agree with it on every record that it accepts, and leaves all other records to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import repeat
from typing import Literal, NamedTuple, assert_never

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import schema
from windrow.engine.decode import debezium
from windrow.engine.decode.avro import AvroReader, registered_type
from windrow.engine.decode.csv_lines import CsvReader
from windrow.engine.decode.field_columns import DatumReader, DeadRows, GoodRows, MarkRows, RecordReader, Rows, array_of
from windrow.engine.decode.folders import FolderFields
from windrow.engine.decode.json_schema import JsonSchemaReader
from windrow.engine.decode.json_text import parse_object
from windrow.engine.decode.needed import Needed, needed_of
from windrow.engine.decode.outside import NO_METADATA, Metadata, OutsideFields
from windrow.engine.decode.record_key import ANY_KEY, KeyReader, key_of_line
from windrow.engine.decode.registry import Schemas
from windrow.engine.decode.values import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    BadValueError,
    MalformedError,
    Value,
    convert,
    value_at,
)
from windrow.engine.windows import times_with_windows
from windrow.expressions import AnySpec, is_window_spec
from windrow.model.avro_schema import parse_schema

LOG_TIME_TYPE = m.TimestampType("millis")
Truncations = Literal["applied", "ignored", "refused"]
"""The outcome of truncations of a database table: they empty tables, are passed over, or are dead letters.

They are no dead letters if each partition has the truncation.
"""
_DELETED = m.Field(schema.DELETED, m.BooleanType())
_NO_VALUE = "malformed: no value"
_NO_LOG_TIME = "no log time"


@dataclass(frozen=True, slots=True)
class Good:
    """A record with data: its fields in declared order, and its event time and mark (or None) in microseconds.

    A truncation has only an event time: all of its fields, including `schema.DELETED`, are None. `replaced` has the
    fields of the row that it replaces, which has a different key in some table.
    """

    values: tuple[Value | None, ...]
    time: int
    mark: int | None
    replaced: tuple[Value | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class PureMark:
    """A punctuation mark without data, in microseconds."""

    mark: int


@dataclass(frozen=True, slots=True)
class Bad:
    """A dead letter: its reason, and its log timestamp in microseconds or None if unknown."""

    reason: str
    log_time: int | None


@dataclass(frozen=True, slots=True)
class Passed:
    """A record that changes nothing: the tombstone that follows Debezium's record of a deletion, or a truncation."""


Outcome = Good | PureMark | Passed | Bad


@dataclass(frozen=True)
class ExactDecoder:
    """The fields that a record must have, and how to read them.

    The punctuation is in the field `mark`, `times` are the least and the greatest event time in microseconds, and
    `tombstones` are the fields that get the key of a tombstone, which `keys` reads. If `log_time_inside` is true, a
    record has its log timestamp in `_log_time`. If `is_debezium` is true, a record is Debezium's envelope of a row's
    change (`windrow.engine.decode.debezium`); if the last of the `fields` is `schema.DELETED`, it tells whether the row
    was deleted. `table_keys` are the names of the fields in the keys of tables. Formats other than JSON have a
    `reader`, files may have fields of their `folders`, and any record those that are `outside` its value.
    `truncations` is the outcome of truncations.
    """

    fields: tuple[m.Field, ...]
    time: m.EventTime
    key: tuple[str, ...]
    mark: m.Field | None
    log_time_inside: bool
    times: tuple[int, int] = (MIN_TIMESTAMP, MAX_TIMESTAMP)
    tombstones: tuple[m.Field, ...] = ()
    is_debezium: bool = False
    reader: RecordReader | None = None
    table_keys: frozenset[str] = frozenset()
    folders: FolderFields | None = None
    truncations: Truncations = "refused"
    keys: KeyReader = ANY_KEY
    outside: OutsideFields | None = None

    @cached_property
    def declared(self) -> tuple[m.Field, ...]:
        """The fields that the pipeline declares, without `schema.DELETED`."""
        return self.fields[:-1] if self.fields and self.fields[-1] == _DELETED else self.fields

    @property
    def has_deleted(self) -> bool:
        """Whether records have the field `schema.DELETED`."""
        return len(self.declared) < len(self.fields)

    @cached_property
    def _reads(self) -> tuple[_Read, ...]:
        return tuple(_Read.of(field, debezium.AFTER if self.is_debezium else None) for field in self.declared)

    @cached_property
    def _reads_of_deleted(self) -> tuple[_Read, ...]:
        return tuple(_Read.of(field, debezium.BEFORE) for field in self.declared)

    @cached_property
    def _places(self) -> dict[str, int]:
        """Map the name of each field to its index among the values."""
        return {field.name: place for place, field in enumerate(self.fields)}

    @cached_property
    def no_rows(self) -> GoodRows:
        """The good rows of no records."""
        return _good_rows(self, ())

    def may_lack(self, field: m.Field) -> bool:
        """Return True if a good record may lack the field; the record of a deleted row has only its key."""
        is_column = self.is_debezium and not field.path and field.name not in {self.time.field, *self.key}
        return (is_column and field != _DELETED) or is_optional(field, self.mark, self.time, self.key)

    @staticmethod
    def of(
        spec: AnySpec | m.SourceNode, table_keys: Iterable[str] = (), truncations: Truncations = "refused"
    ) -> ExactDecoder:
        """Return the decoder of a pipeline's source; `table_keys` may have names of fields that the source lacks."""
        is_debezium = spec.source.format == "debezium"
        has_deleted = is_debezium and isinstance(spec, m.SourceNode)
        mark, keys = mark_field(spec), open_key_reader(spec.source.records)
        fields = spec.decode.fields if mark is None else (*spec.decode.fields, mark)
        return ExactDecoder(
            fields=(*spec.decode.fields, _DELETED) if has_deleted else spec.decode.fields,
            time=spec.time,
            key=spec.key,
            mark=mark,
            log_time_inside=not isinstance(spec.source.records, m.KafkaSource),
            times=times_with_windows(spec.node.window if is_window_spec(spec) else m.Global()),
            tombstones=spec.decode.tombstone_fields,
            is_debezium=is_debezium,
            reader=open_reader(spec.source.format, _needed(spec)),
            table_keys=frozenset(table_keys)
            & {field.name for field in spec.decode.fields if not field.path} - {spec.time.field, spec.time.sent},
            folders=FolderFields.of(spec.source),
            truncations=truncations,
            keys=keys,
            outside=OutsideFields.of(spec.source, fields, keys),
        )

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Parse the bytes of a record in the source's format; raise MalformedError if they are not in it."""
        return parse_object(raw) if self.reader is None else self.reader.parse(raw)

    def decode(  # noqa: PLR0911 - a case for each kind of record
        self,
        raw: bytes | None,
        log_time: int | None,
        key: bytes | None = None,
        folder: Mapping[str, object] | None = None,
        metadata: Metadata = NO_METADATA,
    ) -> Outcome:
        """Decode the value and key of a record; `log_time` is the log's own timestamp in microseconds, or None.

        `folder` has the fields that the record has unless they are in its value.
        """
        try:
            if raw is None and key is not None and self.is_debezium:
                return self._tombstone_of_row(key, log_time)
            if raw is None and key is not None and self.tombstones:
                return self._tombstone(self.keys.read(key), log_time, metadata)
            if raw is None:
                return Bad(_NO_VALUE, log_time)
            record = self.parse(raw)
            if folder:
                record = {**folder, **record}
            if self.log_time_inside and record.get(m.LOG_TIME) is not None:
                log_time = _micros(convert(m.LOG_TIME, LOG_TIME_TYPE, record[m.LOG_TIME]))
            if self.is_debezium:
                return self._change(record, log_time, key)
            has_line = self.log_time_inside and self.reader is None
            if self.tombstones and has_line and record.get(m.VALUE, record) is None:
                return self._tombstone(key_of_line(record.get(m.KEY)), log_time, metadata)
            if self.outside is not None:
                record = self.outside.add(record, metadata, log_time, key)
            return self._data_or_mark(record, log_time)
        except (MalformedError, BadValueError) as exc:
            return Bad(str(exc), log_time)

    def has_log_time(self, raw: bytes | None, log_time: object) -> bool:
        """Return True if a good record has a log timestamp; `log_time` is the log's own, or None."""
        if log_time is not None or raw is None or not self.log_time_inside:
            return log_time is not None
        return self.parse(raw).get(m.LOG_TIME) is not None

    def _change(self, record: Mapping[str, object], log_time: int | None, key: bytes | None) -> Good | Passed:
        """Decode a record of a row that was read, created, updated or deleted, a truncation, or a tombstone."""
        envelope = debezium.envelope_of(record)
        is_line = self.log_time_inside and envelope is record and debezium.OPERATION not in record
        if envelope is None or (is_line and record.get(m.VALUE, record) is None):
            return self._tombstone_of_row(record.get(m.KEY) if key is None else key, log_time)
        operation = debezium.operation(envelope, with_truncations=self.truncations != "refused")
        if operation == debezium.TRUNCATE:
            return self._truncation(envelope, log_time)
        is_deleted = operation == debezium.DELETE
        debezium.require_row(envelope, debezium.BEFORE if is_deleted else debezium.AFTER)
        reads = self._reads_of_deleted if is_deleted else self._reads
        values = [
            debezium.time_of_change(read.field, envelope)
            if is_deleted and not read.field.path and read.field.name == self.time.field
            else self._column(read, envelope, is_deleted=is_deleted)
            for read in reads
        ]
        found = self._good(tuple(values), log_time, None, is_deleted=is_deleted)
        if operation == debezium.UPDATE and self.table_keys and envelope.get(debezium.BEFORE) is not None:
            return replace(found, replaced=self._row_before(values, envelope))
        return found

    def _truncation(self, envelope: Mapping[str, object], log_time: int | None) -> Good | Passed:
        if self.truncations == "ignored":
            return Passed()
        place = self._places[self.time.field]
        read = self._reads[place]
        is_column = not read.field.path
        time = (
            debezium.time_of_change(read.field, envelope)
            if is_column
            else self._column(read, envelope, is_deleted=True)
        )
        values = [time if at == place else None for at in range(len(self.declared))]
        return replace(self._good(tuple(values), log_time, None), values=(None,) * len(self.fields))

    def _row_before(
        self, values: Sequence[Value | None], envelope: Mapping[str, object]
    ) -> tuple[Value | None, ...] | None:
        """Return the row before an update to these values, as a deletion, or None if its keys are unchanged.

        A column that is in no key and cannot be read is null.
        """
        debezium.require_row(envelope, debezium.BEFORE)
        old = list(values)
        for place, read in enumerate(self._reads_of_deleted):
            name = read.field.name
            if name in self.table_keys:
                old[place] = self._column(read, envelope, is_deleted=True)
                if values[place] is not None and not any(_is_there(path, envelope) for _, path in read.paths):
                    msg = f"missing: {debezium.BEFORE}.{name} (of the row that is replaced); set REPLICA IDENTITY FULL"
                    raise BadValueError(msg)
        if old == list(values):
            return None
        for place, read in enumerate(self._reads_of_deleted):
            if not read.field.path and read.field.name not in {self.time.field, self.time.sent, *self.table_keys}:
                try:
                    old[place] = self._column(read, envelope, is_deleted=True)
                except BadValueError:
                    old[place] = None
        return (*old, True)

    def _column(self, read: _Read, envelope: Mapping[str, object], *, is_deleted: bool) -> Value | None:
        for _, value in read.values(envelope):
            debezium.require_known(read.field, value)
        return self._value(read, envelope, is_deleted=is_deleted)

    def _tombstone_of_row(self, key: object, log_time: int | None) -> Good | Passed:
        """Return the deletion of the row with this key, or `Passed` if the pipeline does not read tombstones."""
        if key is None:
            raise MalformedError(_NO_VALUE)
        if not self.tombstones:
            return Passed()
        columns = debezium.columns_of_key(parse_object(key) if isinstance(key, bytes) else key)
        if log_time is None:
            raise BadValueError(_NO_LOG_TIME)
        for field in self.tombstones:
            if columns.get(field.name) is None:
                raise _not_in_key(field)
        values: dict[str, Value] = {schema.DELETED: True}
        for field in self.declared:
            if not field.path and columns.get(field.name) is not None and field.name != self.time.field:
                values[field.name] = convert(field.name, field.type, columns[field.name])
        values[self.time.field] = log_time
        self._require_windows(log_time)
        return Good(tuple(values.get(field.name) for field in self.fields), log_time, None)

    def _data_or_mark(self, record: Mapping[str, object], log_time: int | None) -> Good | PureMark:
        mark = self._mark(record, log_time)
        if mark is not None:
            needed = {self.time.field, *self.key}
            if any(not read.values(record) for read in self._reads if read.field.name in needed):
                return PureMark(mark)
        values = tuple([self._value(read, record) for read in self._reads])
        return self._good(values, log_time, mark)

    def _good(
        self, values: tuple[Value | None, ...], log_time: int | None, mark: int | None, *, is_deleted: bool = False
    ) -> Good:
        """Return a good record with these values; raise BadValueError if its event time is out of range."""
        time = _micros(values[self._places[self.time.field]])
        if self.time.sent is not None:
            time = _correct_skew(self.time.field, time, _micros(values[self._places[self.time.sent]]), log_time)
        self._guard(self.time.field, time, log_time)
        self._require_windows(time)
        return Good((*values, is_deleted) if self.has_deleted else values, time, mark)

    def _tombstone(self, key: object, log_time: int | None, metadata: Metadata) -> Good:
        """Return the record of a tombstone: its key, the log timestamp for its times, and null for other fields.

        The key has a value for each of the fields `tombstones`, in an object unless it is the only one. Fields outside
        the value are as in any record.
        """
        if key is None:
            raise MalformedError(_NO_VALUE)
        if not isinstance(key, dict) and len(self.tombstones) > 1:
            msg = "wrong type: the key is not an object"
            raise BadValueError(msg)
        values: dict[str | None, Value | None] = {field.name: _column_of_key(field, key) for field in self.tombstones}
        if log_time is None:
            raise BadValueError(_NO_LOG_TIME)
        self._require_windows(log_time)
        if self.outside is not None and self.outside.names:
            around = self.outside.around(self.outside.names, metadata, log_time, key)
            for read in self._reads:
                if read.field.paths[0][0] in self.outside.names:
                    values.setdefault(read.field.name, self._value(read, around))
        values |= {self.time.field: log_time, self.time.sent: log_time}
        return Good(tuple(values.get(field.name) for field in self.fields), log_time, None)

    def _mark(self, record: Mapping[str, object], log_time: int | None) -> int | None:
        values = [] if self.mark is None else _Read.of(self.mark).values(record)
        if self.mark is None or not values:
            return None
        mark = _micros(_single_value(self.mark, values))
        self._guard(self.mark.name, mark, log_time)
        return mark

    def _value(self, read: _Read, record: Mapping[str, object], *, is_deleted: bool = False) -> Value | None:
        field, values = read.field, read.values(record)
        if values:
            return _single_value(field, values)
        if self.may_lack(field) if is_deleted else is_optional(field, self.mark, self.time, self.key):
            return None
        is_there = any(_is_there(path, record) for _, path in read.paths)
        at = f" ({'.'.join(field.path)})" if field.path else ""
        msg = f"{'null' if is_there else 'missing'}: {field.name}{at}"
        raise BadValueError(msg)

    def _guard(self, name: str, time: int, log_time: int | None) -> None:
        future = self.time.future
        if future is not None and log_time is not None and time > log_time + future:
            ahead, allowed = m.format_duration(time - log_time), m.format_duration(future)
            msg = f"future: {name} is {ahead} ahead of the log timestamp; time.future allows {allowed}"
            raise BadValueError(msg)

    def _require_windows(self, time: int) -> None:
        least, greatest = self.times
        if not least <= time <= greatest:
            raise BadValueError(no_window_reason(self.time.field, begins_early=time < least))


def _needed(spec: AnySpec | m.SourceNode) -> Needed:
    """Return what is read of the records of a source."""
    mark = mark_field(spec)
    fields = spec.decode.fields if mark is None else (*spec.decode.fields, mark)
    return needed_of([(m.LOG_TIME,), *(path for field in fields for path in field.paths)])


def open_reader(format_: m.RecordFormat, needed: Needed = None) -> RecordReader | None:
    """Return the reader of a format, or None for JSON; it reads what is `needed` of records.

    A registry is not contacted before a record is read.
    """
    match format_:
        case "json" | "debezium":
            return None
        case m.AvroFormat() | m.ProtobufFormat() | m.JsonSchemaFormat():
            return _schema_reader(format_, needed)
        case m.CsvFormat():
            return CsvReader(format_)
        case _:
            assert_never(format_)


def _schema_reader(format_: m.SchemaFormat, needed: Needed = None) -> DatumReader:
    match format_:
        case m.AvroFormat(source):
            if isinstance(source, m.Registry):
                reader = None if format_.reader is None else parse_schema(format_.reader, "the reader's schema")
                return AvroReader(Schemas(source, "AVRO", partial(registered_type, reader=reader)), needed)
            return AvroReader(parse_schema(source, "the schema of the source"), needed)
        case m.JsonSchemaFormat(source):
            return JsonSchemaReader(source)
        case m.ProtobufFormat(source):
            from windrow.engine.decode import protobuf  # noqa: PLC0415 - its runtime only where it is used

            if isinstance(source, m.Registry):
                file_of = protobuf.registered_file
                return protobuf.ProtobufReader(Schemas(source, "PROTOBUF", file_of, "serialized"), needed)
            return protobuf.ProtobufReader(protobuf.descriptor_of(source), needed)
        case _:
            assert_never(format_)


def open_key_reader(log: m.Source) -> KeyReader:
    """Return the reader of the keys in a log; a registry is not contacted before a key is read."""
    if not isinstance(log, m.KafkaSource):
        return ANY_KEY
    format_ = log.key_format
    given = log.format if format_ is None else format_
    if isinstance(given, m.SchemaFormat) and (format_ or isinstance(given.schema, m.Registry)):
        return KeyReader(format_, _schema_reader(given))
    return KeyReader(format_)


def no_window_reason(field: str, *, begins_early: bool) -> str:
    """Return the dead letter's reason for a record with a window partly outside the years 1 to 9999."""
    limit = "begin before the year 1" if begins_early else "end after the year 9999"
    return f"out of range: {field}: a window of the record would {limit}"


def _correct_skew(name: str, time: int, sent: int, log_time: int | None) -> int:
    """Correct an event time for the skew of the device's clock, by adding the log timestamp minus `sent`."""
    if log_time is None:
        raise BadValueError(_NO_LOG_TIME)
    correction = log_time - sent
    corrected = time + correction
    if not MIN_TIMESTAMP <= corrected <= MAX_TIMESTAMP:
        shown = f"{'-' if correction < 0 else ''}{m.format_duration(abs(correction))}"
        msg = f"out of range: {name}: corrected by {shown}, it is outside the years 1 to 9999"
        raise BadValueError(msg)
    return corrected


def mark_field(spec: AnySpec | m.SourceNode) -> m.Field | None:
    """Return the field of the pipeline's punctuation, with the type of the event time, or None if it has none."""
    if not isinstance(spec.time.watermark, m.Punctuated):
        return None
    name, type_ = spec.time.watermark.field, spec.decode.field(spec.time.field).type
    declared = next((field for field in spec.decode.fields if field.name == name), None)
    return m.Field(name, type_) if declared is None else replace(declared, type=type_, optional=False)


def is_optional(field: m.Field, mark: m.Field | None, time: m.EventTime, key: Collection[str]) -> bool:
    """Return True if a good record may lack the field.

    It may lack optional fields and the field of the punctuation, but never the key and the times.
    """
    may_lack = field.optional or (mark is not None and field.name == mark.name)
    return may_lack and field.name not in {time.field, time.sent, *key}


class _Read(NamedTuple):
    """A field, with its paths as (dotted text, path) pairs."""

    field: m.Field
    paths: tuple[tuple[str, tuple[str, ...]], ...]

    @staticmethod
    def of(field: m.Field, row: str | None = None) -> _Read:
        """Return a field with its paths.

        A field without a path is in the object `row`, or in the record itself if `row` is None.
        """
        return _Read(field, tuple((".".join(path), path) for path in paths_of(field, row)))

    def values(self, record: Mapping[str, object]) -> list[tuple[str, object]]:
        """Return a (path, value) pair for each path at which the record has a value."""
        return [(text, value) for text, path in self.paths if (value := value_at(record, path)) is not None]


def paths_of(field: m.Field, row: str | None) -> tuple[tuple[str, ...], ...]:
    """Return the paths of a field.

    A path that is only a name, such as an alias, is looked up in the object `row`.
    """
    if row is None:
        return field.paths
    return (field.path or (row, field.name), *((row, name) for name in field.alias))


def _is_there(path: tuple[str, ...], record: Mapping[str, object]) -> bool:
    """Return True if a record has a member at a path, even if it is null."""
    last = value_at(record, path[:-1])
    return isinstance(last, dict) and path[-1] in last


def _single_value(field: m.Field, values: Iterable[tuple[str, object]]) -> Value:
    """Return the value that a record has for a field at any of its paths; raise BadValueError if two values differ."""
    first, *others = [(path, convert(path, field.type, value)) for path, value in values]
    for name, value in others:
        if value != first[1]:
            msg = f"conflict: {field.name}: {first[0]} and {name} differ"
            raise BadValueError(msg)
    return first[1]


def _column_of_key(field: m.Field, key: object) -> Value:
    """Return the value of a field in a key; in an object, it has the last name of its path, or one of its aliases."""
    if not isinstance(key, dict):
        return convert(field.name, field.type, key)
    names = ((field.path or (field.name,))[-1], *field.alias)
    values = [(name, value) for name in names if (value := key.get(name)) is not None]
    if not values:
        raise _not_in_key(field)
    return _single_value(field, values)


def _not_in_key(field: m.Field) -> BadValueError:
    return BadValueError(f"missing: {field.name} (the key)")


def _micros(value: Value | None) -> int:
    if not isinstance(value, int):
        msg = "a time must decode to whole microseconds"
        raise TypeError(msg)
    return value


def decode_exactly(decoder: ExactDecoder, raw: pa.RecordBatch, rows: Rows) -> tuple[GoodRows, MarkRows, DeadRows]:
    """Decode some rows of a batch in `schema.RAW`, in ascending order, one by one; return only pure marks as marks."""
    # rows are distinct, so if their number is that of the records, these are all records
    given = raw if len(rows) == raw.num_rows else raw.take(pa.array(rows))
    values = given.column("value").to_pylist()
    log_times = given.column("log_time").cast(pa.int64()).to_pylist()
    keys = given.column("key").to_pylist()
    good: list[tuple[int, Good]] = []
    marks: list[tuple[int, PureMark]] = []
    dead: list[tuple[int, Bad]] = []
    of_folders = None if decoder.folders is None else decoder.folders.of_rows(given)
    about = repeat(NO_METADATA, len(rows)) if decoder.outside is None else decoder.outside.metadata(given)
    for row, value, log_time, key, folder, metadata in zip(
        rows.tolist(), values, log_times, keys, of_folders or repeat(None, len(rows)), about, strict=True
    ):
        outcome = decoder.decode(value, log_time, key, folder, metadata)
        match outcome:
            case Good():
                good.append((row, outcome))
            case PureMark():
                marks.append((row, outcome))
            case Passed():
                pass
            case Bad():
                dead.append((row, outcome))
            case _:
                assert_never(outcome)
    old = [(row, replace(record, values=record.replaced)) for row, record in good if record.replaced is not None]
    return (
        replace(_good_rows(decoder, good), replaced=_good_rows(decoder, old) if old else None),
        MarkRows(_rows([row for row, _ in marks]), pa.array([pure.mark for _, pure in marks], pa.int64())),
        DeadRows(
            rows=_rows([row for row, _ in dead]),
            log_times=pa.array([bad.log_time for _, bad in dead], pa.int64()).cast(schema.MICROS),
            reasons=pa.array([bad.reason for _, bad in dead], pa.string()),
        ),
    )


def _good_rows(decoder: ExactDecoder, good: Sequence[tuple[int, Good]]) -> GoodRows:
    return GoodRows(
        rows=_rows([row for row, _ in good]),
        times=pa.array([record.time for _, record in good], pa.int64()),
        columns=[
            array_of([record.values[i] for _, record in good], field.type) for i, field in enumerate(decoder.fields)
        ],
        marks=pa.array([record.mark for _, record in good], pa.int64()),
    )


def _rows(rows: Sequence[int]) -> Rows:
    return np.array(rows, dtype=np.int64)
