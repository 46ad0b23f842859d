"""Convert the changes, late output and dead letters of a step to the keys and values of Kafka records.

The key of a change is the key of its row: plain text if the key is a single text column, otherwise a JSON object. The
value is the row as a JSON object with `op`, `pane` and `revision`. An `update_before` is left out, as it repeats the
previous record. Decimals are text and times ISO 8601, so nothing is rounded. Times always have six fractional digits,
so that they sort as text, unlike the times in the identities and evidence of alerts (`time_text` in
`windrow.engine.operators.rules.judge`). A double that is infinite or NaN becomes null, since JSON has neither. Values
do not depend on the wall clock: reading the log again gives the same bytes.

With `format: debezium`, a value is a change in Debezium's envelope. Its `after` (for a deletion, its `before`) is the
row without `op`, and each deletion is followed by a tombstone with the same key.

The companion topic ``TOPIC.late`` contains the late output as JSON. ``TOPIC.dead`` contains the original bytes of dead
letters, with their coordinates and reason in the headers. A record that is too large for these topics is truncated, and
a note in it says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.json_rows import json_objects, plain_text
from windrow.connectors.kafka.producer import Headers
from windrow.connectors.tables import pieces, with_beginning
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


NO_LIMITS: Mapping[str, int] = {}
_OVERHEAD = 256
"""Upper bound for the bytes of a record and its batch in addition to key, value and headers."""
_HEADER_OVERHEAD = 16
_PIECE = 65_536
"""Number of rows that are converted to text at a time."""
_NO_HEADERS: Headers = []


class KafkaRecords:
    """Converts the output of steps to records for one sink."""

    def __init__(self, spec: SinkSpec, limits: Mapping[str, int] = NO_LIMITS) -> None:
        """Create the converter; `limits` has the maximum bytes of a record for each topic whose records are limited."""
        self._topic = spec.sink.table
        self._limits = limits
        self._late, self._dead = spec.sink.companion("late"), spec.sink.companion("dead")
        self._is_debezium = isinstance(spec.sink, m.KafkaSink) and spec.sink.format == "debezium"
        origin = {"connector": "windrow", "name": spec.pipeline, "table": self._topic}
        self._source = json.dumps(origin, ensure_ascii=False, separators=(",", ":"))
        # the bounds of the global window mean nothing
        hidden = {"window_start", "window_end"} if spec.rows.kind in {"global", "process"} else set()
        names = [name for name in schema.changes(spec.rows).names if name not in hidden]
        # each change of a stream of records is final
        self._names = names if spec.rows.has_panes else [name for name in names if name != "pane"]
        key = [field for field in schema.row_key(spec.rows) if field.name not in hidden]
        self._is_text = len(key) == 1 and pa.types.is_string(key[0].type)
        self._key = [field.name for field in key]
        if spec.discards:
            self._key.append("revision")
            self._is_text = False

    def of(self, output: StepOutput) -> Iterator[KafkaRecord]:
        """Yield the records of a step. Changes, late output and dead letters each keep the order of their rows."""
        yield from self.of_changes(output.changes)
        if output.late.num_rows:
            for batch in output.late.to_batches(max_chunksize=_PIECE):
                place = (batch.column(name).cast(pa.string()) for name in ("source", "partition", "offset"))
                places = pc.binary_join_element_wise(*place, "/")
                rows = zip(_utf8(places), _utf8(json_objects(batch)), strict=True)
                for number, (at, value) in enumerate(rows):
                    record = KafkaRecord(self._late, at, value, _NO_HEADERS)
                    yield record if self._excess(record) <= 0 else record._replace(value=_cut(batch.slice(number, 1)))
        for row in output.dead.to_pylist() if output.dead.num_rows else ():
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
        for _, piece in pieces(changes):
            written = piece.filter(pc.not_equal(piece["op"], "update_before"))
            for batch in written.to_batches(max_chunksize=_PIECE):
                keys = batch.column(self._key[0]) if self._is_text else json_objects(batch.select(self._key))
                yield from self._changes(batch, _utf8(keys))

    def _changes(self, batch: pa.RecordBatch, keys: list[bytes]) -> Iterator[KafkaRecord]:
        topic, headers = repeat(self._topic), repeat(_NO_HEADERS)
        if not self._is_debezium:
            values = _utf8(json_objects(batch.select(self._names)))
            yield from map(KafkaRecord, topic, keys, values, headers, repeat(object=True))
            return
        ops = batch.column("op").to_pylist()
        rows = json_objects(batch.select([name for name in self._names if name != "op"])).to_pylist()
        for key, op, row in zip(keys, ops, rows, strict=True):
            images = f'"before":{row},"after":null' if op == "delete" else f'"before":null,"after":{row}'
            value = f'{{{images},"source":{self._source},"op":"{_DEBEZIUM[op]}"}}'
            yield KafkaRecord(self._topic, key, value.encode(), _NO_HEADERS, is_stamped=True)
            if op == "delete":
                yield KafkaRecord(self._topic, key, None, _NO_HEADERS, is_stamped=True)


_DEBEZIUM = {"insert": "c", "update_after": "u", "delete": "d"}


def _cut(late: pa.RecordBatch) -> bytes:
    """Return the value of a late record, with its text truncated."""
    rows = [with_beginning(row, "record") for row in late.to_pylist()]
    return _utf8(json_objects(pa.RecordBatch.from_pylist(rows, late.schema)))[0]


def _utf8(texts: pa.Array) -> list[bytes]:
    return texts.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
