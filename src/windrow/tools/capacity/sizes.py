"""Bytes of a row of state, of a table and of a changelog, by the types of its columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

import pyarrow as pa

from windrow.connectors.tables import Layout, Table, layout
from windrow.engine import duckdb_sql
from windrow.engine.columns import unscale
from windrow.engine.operators.route import side_schema, stream_schema
from windrow.engine.operators.session.fragments import FRAGMENT_FIELDS
from windrow.engine.operators.window.sql import window_sql
from windrow.engine.schema import DIFF, END, SIDE, TIME, WINDOW, record_schema
from windrow.expressions import join_sides, sink_spec, stream_of, view_of
from windrow.model import (
    ApproxCountDistinct,
    ApproxQuantile,
    BottomKBy,
    CollectList,
    CollectSet,
    CountDistinct,
    Custom,
    DeduplicateNode,
    DeltaSink,
    DuckDBSink,
    Graph,
    JoinNode,
    KafkaSink,
    KeyedNode,
    LookupNode,
    ParquetSink,
    Pipeline,
    PostgresSink,
    ProcessNode,
    Quantile,
    RulesNode,
    Session,
    Sink,
    SinkNode,
    SqliteSink,
    TableJoinNode,
    TableNode,
    TopK,
    TopKBy,
    Tumbling,
    WindowNode,
)

BLOB_BYTES: Final = 640
"""Of a blob of state beside its rows: the header and the padding of an Arrow stream of some columns."""
_GROWING: Final = (
    ApproxCountDistinct | ApproxQuantile | BottomKBy | CollectList | CollectSet | CountDistinct | Custom | Quantile
    | TopK | TopKBy
)  # fmt: skip
"""Functions whose accumulator holds values."""
_TEXTS: Final = {"op": 8.0, "pane": 7.0, "row": 30.0, "source": 8.0, "reason": 7.0}
"""Mean lengths of texts that are windrow's own."""


def state_bytes(graph: Graph, node: KeyedNode | SinkNode, kind: str, text_bytes: float) -> float:
    """Return the bytes that a row of a kind of state of a node takes in its blob."""
    return arrow_bytes(_stored(graph, node, kind), text_bytes)


def grows(node: KeyedNode | SinkNode) -> list[str]:
    """Return the aggregates of a node whose state grows with the records of a window; `state_bytes` leaves that out."""
    if not isinstance(node, WindowNode):
        return []
    return [one.name for one in node.aggregates if isinstance(one.function, _GROWING)]


def _stored(graph: Graph, node: KeyedNode | SinkNode, kind: str) -> pa.Schema:
    match node:
        case WindowNode():
            view = view_of(graph, node)
            if not isinstance(view, Pipeline):
                raise TypeError(view)
            if stream_of(graph, node.input).is_changelog:
                return record_schema(view).append(pa.field(DIFF, pa.int64()))
            records = unscale(record_schema(view).empty_table())
            for name in (WINDOW, END):
                records = records.append_column(name, pa.array([], pa.int64()))
            # the accumulators of a session are those of any window
            begin = window_sql(replace(view, window=Tumbling(1))).begin
            panes = duckdb_sql.query(duckdb_sql.Connection(), begin, records=records).schema
            more = FRAGMENT_FIELDS if isinstance(node.window, Session) else ()
            return pa.schema(
                [*(one for one in panes if one.name != WINDOW), *(pa.field(name, pa.int64()) for name in more)]
            )
        case JoinNode() | LookupNode() | TableJoinNode():
            left, right = join_sides(graph, node)
            side = left if kind == "left" else right
            return pa.schema([one for one in side_schema(side) if one.name != SIDE])
        case DeduplicateNode():
            records = record_schema(view_of(graph, node))
            return pa.schema([*(records.field(name) for name in node.key), records.field(TIME)])
        case TableNode():
            return stream_schema(stream_of(graph, node.input), record_schema(view_of(graph, node)))
        case RulesNode() | ProcessNode() | SinkNode():
            return record_schema(view_of(graph, node))
        case _:
            assert_never(node)


def arrow_bytes(fields: pa.Schema, text_bytes: float) -> float:
    """Return the bytes of a row in Arrow columns: values, offsets of texts, and no bitmaps."""
    return sum(_arrow(one.type, text_bytes) for one in fields)


def _arrow(type_: pa.DataType, text_bytes: float) -> float:
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 4 + text_bytes
    if pa.types.is_list(type_):
        return 4 + 2 * _arrow(type_.value_type, text_bytes)
    if pa.types.is_struct(type_):
        return sum(_arrow(type_.field(number).type, text_bytes) for number in range(type_.num_fields))
    if pa.types.is_boolean(type_):
        return 1 / 8
    return float(type_.bit_width) / 8


def layout_of(graph: Graph, sink: SinkNode) -> Layout:
    """Return the tables of a sink."""
    return layout(sink_spec(graph, sink))


def row_bytes(sink: Sink, table: Table, text_bytes: float) -> float:
    """Return the bytes that a row of a table takes in its database, with its part of the primary key's index."""
    match sink:
        case SqliteSink():
            # https://www.sqlite.org/fileformat.html: a header byte a column and the values, in pages that are not full
            values = sum(_sqlite(one, text_bytes) for one in table.schema)
            return (values + len(table.schema) + 6) * SQLITE_FILL
        case PostgresSink():
            # 24 bytes of header and 4 of a pointer to it; the index has the key, 8 of header and 4 of a pointer again
            values = sum(_postgres(one, text_bytes) for one in table.schema)
            key = sum(_postgres(table.schema.field(name), text_bytes) for name in table.key if "epoch" not in table.key)
            return 28 + _aligned(values) + ((12 + _aligned(key)) * POSTGRES_INDEX_FILL if key else 0)
        case DuckDBSink() | DeltaSink() | ParquetSink():
            return sum(_arrow(one.type, _TEXTS.get(one.name, text_bytes)) for one in table.schema) * PARQUET_FILL
        case KafkaSink():
            return sum(_json(one, text_bytes) for one in table.schema) + 20
        case _:
            assert_never(sink)


SQLITE_FILL: Final = 1.2
POSTGRES_INDEX_FILL: Final = 1.4
PARQUET_FILL: Final = 0.4


def _text(field: pa.Field, text_bytes: float) -> float:
    return _TEXTS.get(field.name, text_bytes)


def _sqlite(field: pa.Field, text_bytes: float) -> float:
    type_ = field.type
    if pa.types.is_timestamp(type_):
        return 19
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return _text(field, text_bytes)
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return 8
    return 0 if field.name in {"revision", "epoch"} or pa.types.is_boolean(type_) else 2


def _postgres(field: pa.Field, text_bytes: float) -> float:
    type_ = field.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 1 + _text(field, text_bytes)
    if pa.types.is_decimal(type_):
        return 9
    return 1 if pa.types.is_boolean(type_) else float(type_.bit_width) / 8


def _json(field: pa.Field, text_bytes: float) -> float:
    value = (
        20 if pa.types.is_timestamp(field.type) else _text(field, text_bytes) if pa.types.is_string(field.type) else 6
    )
    return len(field.name) + 6 + value


def _aligned(size: float) -> float:
    return -(-size // 8) * 8
