"""Dead letters for the records and rows that a node rejects, in the schema `windrow.engine.schema.DEAD`.

The dead letter of a log record holds the record's partition and offset. It also holds the record's bytes or, after an
operator, its fields as a JSON object. A result of an operator, such as the row of a window, has no position in a log.
Its dead letter has a null partition and offset, the name of the stream as source, and the row as a JSON object, and its
reason ends with the window and key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.changelog import json_value
from windrow.engine.columns import to_micros
from windrow.engine.duckdb_sql import identifier, literal
from windrow.engine.schema import DIFF, ID, OFFSET, PARTITION
from windrow.expressions import spec_of, stream_of

DeadLetterTable = Callable[[pa.Table, Sequence[str]], pa.Table]
"""Creates dead letters (`windrow.engine.schema.DEAD`) for records, given a reason for each."""

_REASON = "__reason"
_NUMBER = "__number"


@dataclass(frozen=True)
class SourceDeadLetters:
    """Creates dead letters for records of a source from the batch that the records were decoded from."""

    table: Callable[[pa.RecordBatch, np.ndarray, Sequence[str]], pa.Table]
    raw: pa.RecordBatch

    def __call__(self, records: pa.Table, reasons: Sequence[str]) -> pa.Table:
        """Return the dead letters of records, given a reason for each."""
        partitions, offsets = (to_micros(self.raw.column(name)) for name in ("partition", "offset"))
        own_partitions, own_offsets = (to_micros(records.column(name)) for name in (PARTITION, OFFSET))
        found = np.empty(records.num_rows, dtype=np.int64)
        for number in np.unique(own_partitions).tolist():
            # offsets ascend within a partition
            there, own = np.flatnonzero(partitions == number), np.flatnonzero(own_partitions == number)
            found[own] = there[np.searchsorted(offsets[there], own_offsets[own])]
        return self.table(self.raw, found, reasons)


class RowDeadLetters:
    """Creates dead letters for rows of a stream from all of its columns. An unnamed stream uses the pipeline's name.

    `fields` become the members of the JSON object. `key` lists the fields that identify a row or help to find it. In a
    changelog only insertions become dead letters, since the deletion of a row fails exactly if its insertion did.
    """

    def __init__(self, graph: m.Graph, stream: str, fields: Sequence[m.Field], key: Sequence[str]) -> None:
        made = stream_of(graph, stream)
        self._duck = duckdb_sql.Connection()
        values = ", ".join(f"{literal(field.name)}: {_json(field)}" for field in fields)
        # the window of a running aggregate is all time
        has_window = made.rows_of == "windows" or isinstance(graph.producer(stream), m.WindowNode)
        source, partition, offset, at = made.sources[0].source.label, PARTITION, OFFSET, ""
        if not m.is_of_log(graph, stream):
            identity = _identity(fields, key, has_window=has_window)
            source, partition, offset, at = stream or graph.name, "NULL", "NULL", f" || ': at ' || {identity}"
        added = f"WHERE {DIFF} > 0" if made.is_changelog else ""
        self._sql = f"""
            SELECT {literal(source)} AS source, {partition} AS partition, {offset} AS "offset",
                NULL::TIMESTAMPTZ AS log_time, {_REASON}{at} AS reason, encode(to_json({{{values}}})::VARCHAR) AS raw
            FROM records {added}
        """

    def __call__(self, records: pa.Table, reasons: Sequence[str]) -> pa.Table:
        """Return the dead letters of records, given a reason for each."""
        records = records.append_column(_REASON, pa.array(reasons, pa.string()))
        return duckdb_sql.query(self._duck, self._sql, records=records).cast(schema.DEAD)


def _identity(fields: Sequence[m.Field], key: Sequence[str], *, has_window: bool) -> str:
    """Return the SQL of a text that identifies a row: its window and key, or its key and `ID` if it has no window."""
    by_name = {field.name: field for field in fields}
    parts = []
    if has_window:
        parts.append(f"'window ' || {_text(by_name['window_start'])} || ' to ' || {_text(by_name['window_end'])}")
    parts += [f"{literal(f'{name}=')} || coalesce({_text(by_name[name])}, 'null')" for name in key if name in by_name]
    if not has_window:
        parts.append(f"'row ' || {ID}")
    return " || ', ' || ".join(parts)


def _text(field: m.Field) -> str:
    if isinstance(field.type, m.TimestampType):
        return f"replace({json_value(identifier(field.name), field.type)}, '.000000Z', 'Z')"
    return f"{identifier(field.name)}::VARCHAR"


def _json(field: m.Field) -> str:
    name = identifier(field.name)
    if isinstance(field.type, m.DoubleType):
        # JSON has no NaN and no infinities
        return f"CASE WHEN isfinite({name}) THEN to_json({name}) ELSE to_json({name}::VARCHAR) END"
    return json_value(name, field.type)


class ResultDeadLetters(RowDeadLetters):
    """Creates dead letters for an operator's results with all of their fields, including fields that selections drop.

    Rows carry a number on their way to the nodes below, so that the original results can be found again (see
    `numbered`).
    """

    def __init__(self, graph: m.Graph, node: m.KeyedNode) -> None:
        key = [name for name in spec_of(graph, node).key if name != ID]
        super().__init__(graph, node.name, stream_of(graph, node.name).fields, key)

    def numbered(self, streams: Mapping[str, pa.Table]) -> tuple[dict[str, pa.Table], DeadLetterTable]:
        """Return the operator's streams with numbered rows, and a function that creates dead letters for such rows.

        All streams must have the same columns.
        """
        rows = pa.concat_tables([table.select(next(iter(streams.values())).column_names) for table in streams.values()])
        ends = np.cumsum([table.num_rows for table in streams.values()]).tolist()
        made = {
            name: table.append_column(_NUMBER, pa.array(np.arange(end - table.num_rows, end)))
            for (name, table), end in zip(streams.items(), ends, strict=True)
        }

        def dead_letters(records: pa.Table, reasons: Sequence[str]) -> pa.Table:
            return self(rows.take(pa.array(to_micros(records.column(_NUMBER)))), reasons)

        return made, dead_letters
