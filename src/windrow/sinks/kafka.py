"""Records of a Kafka topic: the changes of a step, its late output and its dead letters, as keys and values.

A change has the key of its row: the text alone if that is one text, else a JSON object. Its value is the row as a JSON
object with `op`, `pane` and `revision`; `update_before` is left out, as it repeats the record before. Decimals are
text and times ISO 8601, so nothing is rounded; times always have six digits of a second, so that they sort as text,
unlike those in identities and evidence of alerts (`time_text` in `windrow.core.operators.rules.judge`). A double that
is infinite or not a number is null, as JSON has neither. A value holds no clock of the machine: it is the same, to the
byte, whenever the log is read again. Beside the topic, ``TOPIC.late`` has the late output as JSON, ``TOPIC.dead`` the
dead letters: the bytes as they were, with the coordinates and the reason in the headers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from windrow.core import schema
from windrow.core.changelog import StepOutput
from windrow.expressions import RecordStream, View
from windrow.model import Global, Pipeline, ProcessPipeline, companion

Headers = list[tuple[str, str | bytes | None]]


class KafkaRecord(NamedTuple):
    """A record to be written; one of a change `is_stamped` with when it was made."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    is_stamped: bool = False


class KafkaRecords:
    """Makes records of the output of steps for one sink."""

    def __init__(self, view: View) -> None:
        self._topic = view.sink.table
        self._late, self._dead = companion(view.sink, "late"), companion(view.sink, "dead")
        # the one window of all has bounds that say nothing
        is_global = isinstance(view, ProcessPipeline) or (isinstance(view, Pipeline) and view.window == Global())
        hidden = {"window_start", "window_end"} if is_global else set()
        names = [name for name in schema.changes(view).names if name not in hidden]
        # each change of a stream of records is its own
        self._names = [name for name in names if name != "pane"] if isinstance(view, RecordStream) else names
        key = [field for field in schema.row_key(view) if field.name not in hidden]
        self._is_text = len(key) == 1 and pa.types.is_string(key[0].type)
        self._key = [field.name for field in key]
        if isinstance(view, Pipeline) and view.emit.mode == "discard":
            self._key.append("revision")
            self._is_text = False

    def of(self, output: StepOutput) -> Iterator[KafkaRecord]:
        """Yield the records of a step, each kind in the order of its rows."""
        yield from self.of_changes(output.changes)
        for row in _rows(output.late):
            yield KafkaRecord(self._late, _place(row), _json(row), [])
        for row in _rows(output.dead):
            value = row.pop("raw")
            headers: Headers = [(name, _text(one).encode()) for name, one in row.items() if one is not None]
            yield KafkaRecord(self._dead, _place(row), value, headers)

    def of_changes(self, changes: pa.Table) -> Iterator[KafkaRecord]:
        """Yield the records of a step's changes, in order; `update_before` has none."""
        for row in _rows(changes.select(self._names)):
            if row["op"] != "update_before":
                yield KafkaRecord(self._topic, self._key_of(row), _json(row), [], is_stamped=True)

    def _key_of(self, row: dict[str, Any]) -> bytes:
        if self._is_text:
            return str(row[self._key[0]]).encode()
        return _json({name: row[name] for name in self._key})


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    if not table.num_rows:
        return
    columns = [_values(column) for column in table.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(table.column_names, values, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_floating(column.type):
        # JSON has no infinite numbers
        return [value if value is None or math.isfinite(value) else None for value in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        # without a zone it is not looked up for each value
        return column.cast(pa.timestamp("us")).to_pylist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _place(row: dict[str, Any]) -> bytes:
    return f"{row['source']}/{row['partition']}/{row['offset']}".encode()


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, default=_text, ensure_ascii=False, separators=(",", ":")).encode()


def _text(value: object) -> str:
    match value:
        case Decimal():
            return format(value, "f")
        case datetime():
            utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return f"{utc.isoformat(timespec='microseconds')}Z"
        case _:
            return str(value)
