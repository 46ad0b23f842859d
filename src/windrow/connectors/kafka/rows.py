"""Convert the changes, late output and dead letters of a step to the keys and values of Kafka records.

The key of a change is the key of its row: plain text if the key is a single text column, otherwise a JSON object. The
value is the row as a JSON object with `op`, `pane` and `revision`. An `update_before` is left out, as it repeats the
previous record. Decimals are text and times ISO 8601, so nothing is rounded. Times always have six fractional digits,
so that they sort as text, unlike the times in the identities and evidence of alerts (`time_text` in
`windrow.engine.operators.rules.judge`). A double that is infinite or NaN becomes null, since JSON has neither. Values
do not depend on the wall clock: reading the log again gives the same bytes.

With `format: upsert`, the value is the row without `op`, and null if the row was deleted. A key of plain text that
begins as JSON does is a JSON object too, so that readers can tell the two apart by their first byte.

With an `encoding`, values and the keys of upserts have a registered schema instead, with lists as arrays
(`windrow.connectors.kafka.encoding`).

With `format: debezium`, a value is a change in Debezium's envelope. Its `after` (for a deletion, its `before`) is the
row without `op`, and each deletion is followed by a tombstone with the same key.

The companion topic ``TOPIC.late`` contains the late output as JSON. ``TOPIC.dead`` contains the original bytes of dead
letters, with their coordinates and reason in the headers. A record that is too large for these topics is truncated, and
a note in it says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.json_rows import json_objects, plain_text
from windrow.connectors.kafka.producer import Headers
from windrow.connectors.list_columns import with_arrays
from windrow.connectors.ownership import Origin
from windrow.connectors.tables import EPOCH, SEQ, layout, pieces, with_beginning
from windrow.connectors.unfit import RefusedError, refused_rows, without_refused, writable, write_reason
from windrow.engine import schema
from windrow.engine.changelog import StepOutput
from windrow.expressions import SinkSpec


class KafkaRecord(NamedTuple):
    """A record to write. If `is_stamped`, it is a change in Debezium's envelope that gets the time of writing."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    is_stamped: bool = False


class RecordColumns(NamedTuple):
    """The columns of the values and of the keys in a topic of changes.

    The results, which are the other columns than those of the key and of the change itself, are nullable unless
    deletions have no value: a deletion may lack them (`windrow.connectors.unfit`).
    """

    value: list[pa.Field]
    key: list[pa.Field]
    results: frozenset[str]

    @staticmethod
    def of(spec: SinkSpec) -> RecordColumns:
        """Return the columns of a sink's records."""
        format_: m.ChangeFormat = spec.sink.format if isinstance(spec.sink, m.KafkaSink) else "json"
        # the bounds of the global window mean nothing
        hidden = set(m.WINDOW_BOUNDS) if spec.rows.kind in {"global", "process"} else set()
        hidden |= set() if format_ == "json" else {"op"}
        # each change of a stream of records is final
        hidden |= set() if spec.rows.has_panes else {"pane"}
        changes = pa.schema([field for field in layout(spec).changes.stored if field.name not in _OF_STEPS])
        key = [field for field in schema.row_key(spec.rows) if field.name not in hidden]
        key += [changes.field("revision")] if spec.discards else []
        value = [field for field in changes if field.name not in hidden]
        results = frozenset(field.name for field in schema.value_fields(spec.rows)) - {field.name for field in key}
        if format_ != "upsert":
            value = with_nullable(value, results)
        return RecordColumns(value, key, results)


def with_nullable(columns: Sequence[pa.Field], names: Container[str]) -> list[pa.Field]:
    """Make the columns with these names nullable."""
    return [column.with_nullable(column.nullable or column.name in names) for column in columns]


Encode = Callable[[pa.RecordBatch], list[bytes]]
"""Returns the bytes of each row."""


class Encoders(NamedTuple):
    """The encoders of values and, unless keys are text or JSON, of keys."""

    value: Encode
    key: Encode | None


NO_LIMITS: Mapping[str, int] = {}
_OF_STEPS = {EPOCH.name, SEQ.name}
_OVERHEAD = 256
"""Upper bound for the bytes of a record and its batch in addition to key, value and headers."""
_HEADER_OVERHEAD = 16
_PIECE = 65_536
"""Number of rows that are converted to text at a time."""
_NO_HEADERS: Headers = []


def as_json(rows: pa.RecordBatch) -> list[bytes]:
    """Return each row as a JSON object."""
    return _utf8(json_objects(rows))


class KafkaRecords:
    """Converts the output of steps to records for one sink."""

    def __init__(self, spec: SinkSpec, limits: Mapping[str, int] = NO_LIMITS, encoders: Encoders | None = None) -> None:
        """Create the converter; `limits` has the maximum bytes of a record for each topic whose records are limited.

        Without `encoders`, values are JSON.
        """
        self._topic = spec.sink.table
        self._limits = limits
        self._result, self._stream = layout(spec).result, Origin.of(spec).stream
        self._late, self._dead = spec.sink.companion("late"), spec.sink.companion("dead")
        self._format: m.ChangeFormat = spec.sink.format if isinstance(spec.sink, m.KafkaSink) else "json"
        self._encoders = encoders or Encoders(as_json, None)
        origin = {"connector": "windrow", "name": spec.pipeline, "table": self._topic}
        self._source = json.dumps(origin, ensure_ascii=False, separators=(",", ":"))
        columns = RecordColumns.of(spec)
        self._names, self._key = ([field.name for field in part] for part in (columns.value, columns.key))
        self._is_text = len(columns.key) == 1 and pa.types.is_string(columns.key[0].type)

    def of(self, output: StepOutput, refused: list[pa.Table] | None = None) -> Iterator[KafkaRecord]:
        """Yield the records of a step. Changes, late output and dead letters each keep the order of their rows.

        A change whose record cannot be made, or is too large for the topic, becomes a dead letter, which is also added
        to `refused`. The row that it updates is deleted, and the next change of the row stays an `update_after`.
        """
        letters: list[pa.Table] = []
        for _, piece in pieces(output.changes, _PIECE):
            yield from self._written_or_refused(replace(output, changes=piece), letters)
        if refused is not None:
            refused += letters
        if output.late.num_rows:
            for batch in output.late.to_batches(max_chunksize=_PIECE):
                place = (batch.column(name).cast(pa.string()) for name in ("source", "partition", "offset"))
                places = pc.binary_join_element_wise(*place, "/")
                rows = zip(_utf8(places), as_json(batch), strict=True)
                for number, (at, value) in enumerate(rows):
                    record = KafkaRecord(self._late, at, value, _NO_HEADERS)
                    yield record if self._excess(record) <= 0 else record._replace(value=_cut(batch.slice(number, 1)))
        dead = pa.concat_tables([output.dead, *letters])
        for row in dead.to_pylist() if dead.num_rows else ():
            record = self._dead_letter(row)
            if self._excess(record) > 0:
                record = self._dead_letter(with_beginning(row, "raw"))
                if (excess := self._excess(record)) > 0:
                    # for a topic whose limit is below the default truncation
                    record = self._dead_letter(with_beginning(row, "raw", max(0, len(record.value or b"") - excess)))
            yield record

    def _dead_letter(self, row: Mapping[str, Any]) -> KafkaRecord:
        """Return the record for a dead letter. Its key is the location of the original record, if there was one."""
        place = "/".join(str(row[name]) for name in ("source", "partition", "offset") if row[name] is not None)
        about = {name: value for name, value in row.items() if name != "raw" and value is not None}
        headers: Headers = [(name, plain_text(value).encode()) for name, value in about.items()]
        return KafkaRecord(self._dead, place.encode(), row["raw"], headers)

    def _excess(self, record: KafkaRecord) -> int:
        """Return how many bytes a record exceeds the limit of its topic, as the client counts them."""
        limit = self._limits.get(record.topic)
        if limit is None:
            return 0
        size = len(record.key or b"") + len(record.value or b"") + _OVERHEAD
        size += sum(len(name) + len(value or "") + _HEADER_OVERHEAD for name, value in record.headers)
        return size - limit

    def of_changes(self, changes: pa.Table) -> Iterator[KafkaRecord]:
        """Yield a record for each change of a step, in order, except for `update_before`."""
        for _, piece in pieces(changes, _PIECE):
            yield from self._written(piece)

    def _written(self, changes: pa.Table) -> list[KafkaRecord]:
        """Return the records of a piece; raise RefusedError if one of them is too large for the topic."""
        written = with_arrays(changes.filter(pc.not_equal(changes["op"], "update_before")), self._result.lists)
        records: list[KafkaRecord] = []
        for batch in written.to_batches():
            records += self._changes(batch, self._keys(batch))
        if records and self._topic in self._limits:
            largest = max(len(key or b"") + len(value or b"") for _, key, value, *_ in records)
            size, most = largest + _OVERHEAD, self._limits[self._topic]
            if size > most:
                msg = f"refused: Kafka: a record of {size:,} bytes, where topic {self._topic} takes {most:,}"
                raise RefusedError(msg)
        return records

    def _written_or_refused(self, output: StepOutput, refused: list[pa.Table]) -> list[KafkaRecord]:
        """Return the records of a piece, and add the dead letters of rows that cannot be written to `refused`."""
        try:
            return self._written(output.changes)
        except Exception as exc:
            if write_reason(exc) is None:
                raise
            output, letters = self._without_refused(output)
            if not letters.num_rows:
                raise
        refused.append(letters)
        return self._written(output.changes)

    def _without_refused(self, output: StepOutput) -> tuple[StepOutput, pa.Table]:
        """Return a piece without the rows that cannot be written, and the dead letters of these rows."""
        ops, is_before = output.changes["op"], pc.equal(output.changes["op"], "update_before").to_numpy()
        given = output.changes.set_column(
            output.changes.schema.get_field_index("op"),
            output.changes.schema.field("op"),
            pc.if_else(pa.array(is_before), "update_after", ops),
        )
        reasons = refused_rows(self._written, given, write_reason)
        # Whether the row of an update_before was refused counts only if its update_after is, too. In other batches, it
        # is not known, as no record is made of it.
        refused = reasons.is_valid().to_numpy(zero_copy_only=False)
        counts = ~is_before | np.append(refused[1:], False)
        reasons = pc.if_else(pa.array(counts), reasons, pa.scalar(None, pa.string()))
        left, letters = without_refused(self._result, output, reasons, self._stream)
        return writable(self._written, left), letters

    def _keys(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the keys of the rows."""
        if self._encoders.key is not None:
            return self._encoders.key(batch.select(self._key))
        if not self._is_text:
            return as_json(batch.select(self._key))
        texts = batch.column(self._key[0])
        if self._format != "upsert" or not pc.any(opens := pc.match_substring_regex(texts, _OPENS_JSON)).as_py():
            return _utf8(texts)
        return _utf8(pc.if_else(opens, json_objects(batch.select(self._key)).cast(texts.type), texts))

    def _changes(self, batch: pa.RecordBatch, keys: list[bytes]) -> Iterator[KafkaRecord]:
        rows = batch.select(self._names)
        if self._format == "debezium":
            yield from self._envelopes(batch.column("op").to_pylist(), json_objects(rows).to_pylist(), keys)
            return
        values: Iterable[bytes | None]
        if self._format == "upsert" and pc.any(is_deleted := pc.equal(batch.column("op"), "delete")).as_py():
            left = iter(self._encoders.value(rows.filter(pc.invert(is_deleted))))
            values = (None if deleted else next(left) for deleted in is_deleted.to_pylist())
        else:
            values = self._encoders.value(rows)
        for key, value in zip(keys, values, strict=True):
            yield KafkaRecord(self._topic, key, value, _NO_HEADERS, is_stamped=True)

    def _envelopes(self, ops: list[str], rows: list[str], keys: list[bytes]) -> Iterator[KafkaRecord]:
        for key, op, row in zip(keys, ops, rows, strict=True):
            images = f'"before":{row},"after":null' if op == "delete" else f'"before":null,"after":{row}'
            value = f'{{{images},"source":{self._source},"op":"{_DEBEZIUM[op]}"}}'
            yield KafkaRecord(self._topic, key, value.encode(), _NO_HEADERS, is_stamped=True)
            if op == "delete":
                yield KafkaRecord(self._topic, key, None, _NO_HEADERS, is_stamped=True)


_OPENS_JSON = '^[{"]'
_DEBEZIUM = {"insert": "c", "update_after": "u", "delete": "d"}


def _cut(late: pa.RecordBatch) -> bytes:
    """Return the value of a late record, with its text truncated."""
    rows = [with_beginning(row, "record") for row in late.to_pylist()]
    return _utf8(json_objects(pa.RecordBatch.from_pylist(rows, late.schema)))[0]


def _utf8(texts: pa.Array) -> list[bytes]:
    return texts.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
