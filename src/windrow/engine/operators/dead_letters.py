"""Dead letters of records and rows that a node cannot take, in `windrow.engine.schema.DEAD`.

The dead letter of a log's record has its place there, and its bytes or, behind an operator, its fields as a JSON
object. A row that an operator made, such as that of a window, has no place in a log: its dead letter has null as
partition and offset, the name of the stream as source, and the row as a JSON object; the reason ends with the window
and the key.
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
"""Makes dead letters (`windrow.engine.schema.DEAD`) of records, given why each of them is one."""

_REASON = "__reason"
_NUMBER = "__number"


@dataclass(frozen=True)
class SourceDeadLetters:
    """Makes dead letters of a source's records, out of the batch that they were decoded from."""

    table: Callable[[pa.RecordBatch, np.ndarray, Sequence[str]], pa.Table]
    raw: pa.RecordBatch

    def __call__(self, records: pa.Table, reasons: Sequence[str]) -> pa.Table:
        """Return the dead letters."""
        partitions, offsets = (to_micros(self.raw.column(name)) for name in ("partition", "offset"))
        own_partitions, own_offsets = (to_micros(records.column(name)) for name in (PARTITION, OFFSET))
        found = np.empty(records.num_rows, dtype=np.int64)
        for number in np.unique(own_partitions).tolist():
            # offsets ascend within a partition
            there, own = np.flatnonzero(partitions == number), np.flatnonzero(own_partitions == number)
            found[own] = there[np.searchsorted(offsets[there], own_offsets[own])]
        return self.table(self.raw, found, reasons)


class RowDeadLetters:
    """Makes dead letters of the rows of a stream, given all of its columns; it has the pipeline's name if it has none.

    `fields` are those of the JSON object, `key` names those that identify a row, if some do, and else help to find it.
    Of a changelog only rows that were added become dead letters; what takes one back fails as it did.
    """

    def __init__(self, graph: m.Graph, stream: str, fields: Sequence[m.Field], key: Sequence[str]) -> None:
        given = stream_of(graph, stream)
        self._duck = duckdb_sql.Connection()
        values = ", ".join(f"{literal(field.name)}: {_json(field)}" for field in fields)
        # what all rows so far come to has the window of all time
        has_window = given.rows_of == "windows" or isinstance(graph.producer(stream), m.WindowNode)
        if m.is_of_log(graph, stream):
            source, partition, offset, at = given.sources[0].source.label, PARTITION, OFFSET, ""
        else:
            source, partition, offset, at = (
                stream or graph.name,
                "NULL",
                "NULL",
                f" || ': at ' || {_identity(fields, key, has_window=has_window)}",
            )
        added = f"WHERE {DIFF} > 0" if given.is_changelog else ""
        self._sql = f"""
            SELECT {literal(source)} AS source, {partition} AS partition, {offset} AS "offset",
                NULL::TIMESTAMPTZ AS log_time, {_REASON}{at} AS reason, encode(to_json({{{values}}})::VARCHAR) AS raw
            FROM records {added}
        """

    def __call__(self, records: pa.Table, reasons: Sequence[str]) -> pa.Table:
        """Return the dead letters."""
        records = records.append_column(_REASON, pa.array(reasons, pa.string()))
        return duckdb_sql.query(self._duck, self._sql, records=records).cast(schema.DEAD)


def _identity(fields: Sequence[m.Field], key: Sequence[str], *, has_window: bool) -> str:
    """Return the SQL of the text that says which row it is: its window and key, or its key and what it is made of."""
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
        # JSON has no number for the others
        return f"CASE WHEN isfinite({name}) THEN to_json({name}) ELSE to_json({name}::VARCHAR) END"
    return json_value(name, field.type)


class ResultDeadLetters:
    """Makes dead letters of rows that an operator made, as it made them, whatever selections have left of their fields.

    So that they are found again, the rows have numbers on their way to the nodes below (`numbered`).
    """

    def __init__(self, graph: m.Graph, node: m.KeyedNode) -> None:
        key = [name for name in spec_of(graph, node).key if name != ID]
        self._table = RowDeadLetters(graph, node.name, stream_of(graph, node.name).fields, key)

    def __call__(self, rows: pa.Table, reasons: Sequence[str]) -> pa.Table:
        """Return the dead letters of rows that have all of their columns."""
        return self._table(rows, reasons)

    def numbered(self, streams: Mapping[str, pa.Table]) -> tuple[dict[str, pa.Table], DeadLetterTable]:
        """Return the rows of the operator's streams with numbers, and what makes dead letters of them.

        All of its streams have the same columns.
        """
        rows = pa.concat_tables([table.select(next(iter(streams.values())).column_names) for table in streams.values()])
        ends = np.cumsum([table.num_rows for table in streams.values()]).tolist()
        numbers = {
            name: pa.array(np.arange(end - table.num_rows, end))
            for (name, table), end in zip(streams.items(), ends, strict=True)
        }
        made = {name: table.append_column(_NUMBER, numbers[name]) for name, table in streams.items()}

        def dead_letters(records: pa.Table, reasons: Sequence[str]) -> pa.Table:
            return self._table(rows.take(pa.array(to_micros(records.column(_NUMBER)))), reasons)

        return made, dead_letters
