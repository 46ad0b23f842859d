"""Bytes of a row of state, of a table and of a changelog, by the types of its columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from windrow import model as m
from windrow.connectors.base import load
from windrow.connectors.registry import sink_connector
from windrow.connectors.row_bytes import arrow_bytes
from windrow.connectors.tables import Layout, Table, layout
from windrow.engine import duckdb_sql
from windrow.engine.columns import unscale
from windrow.engine.operators.route import side_schema, stream_schema
from windrow.engine.operators.session.fragments import FRAGMENT_FIELDS
from windrow.engine.operators.window.sql import window_sql
from windrow.engine.schema import DIFF, END, SIDE, TIME, WINDOW, record_schema
from windrow.expressions import join_sides, sink_spec, spec_of, stream_of

BLOB_BYTES: Final = 640
"""Of a blob of state beside its rows: the header and the padding of an Arrow stream of some columns."""
_GROWING: Final = (
    m.ApproxCountDistinct | m.ApproxQuantile | m.BottomKBy | m.CollectList | m.CollectSet | m.CountDistinct | m.Custom
    | m.Quantile | m.TopK | m.TopKBy
)  # fmt: skip
"""Functions whose accumulator holds values."""


def state_bytes(graph: m.Graph, node: m.KeyedNode | m.SinkNode, kind: str, text_bytes: float) -> float:
    """Return the bytes that a row of a kind of state of a node takes in its blob."""
    return arrow_bytes(_stored(graph, node, kind), text_bytes)


def grows(node: m.KeyedNode | m.SinkNode) -> list[str]:
    """Return the aggregates of a node whose state grows with the records of a window; `state_bytes` leaves that out."""
    if not isinstance(node, m.WindowNode):
        return []
    return [aggregate.name for aggregate in node.aggregates if isinstance(aggregate.function, _GROWING)]


def _stored(graph: m.Graph, node: m.KeyedNode | m.SinkNode, kind: str) -> pa.Schema:
    match node:
        case m.WindowNode():
            spec = spec_of(graph, node)
            if stream_of(graph, node.input).is_changelog:
                return record_schema(spec).append(pa.field(DIFF, pa.int64()))
            records = unscale(record_schema(spec).empty_table())
            for name in (WINDOW, END):
                records = records.append_column(name, pa.array([], pa.int64()))
            # the accumulators of a session are those of any window
            begin = window_sql(replace(spec, node=replace(node, window=m.Tumbling(1)))).begin
            panes = duckdb_sql.query(duckdb_sql.Connection(), begin, records=records).schema
            more = FRAGMENT_FIELDS if isinstance(node.window, m.Session) else ()
            return pa.schema(
                [*(pane for pane in panes if pane.name != WINDOW), *(pa.field(name, pa.int64()) for name in more)]
            )
        case m.JoinNode() | m.LookupNode() | m.TableJoinNode():
            left, right = join_sides(graph, node)
            side = left if kind == "left" else right
            return pa.schema([one for one in side_schema(side) if one.name != SIDE])
        case m.TableNode():
            return stream_schema(stream_of(graph, node.input), record_schema(spec_of(graph, node)))
        case m.RulesNode() | m.ProcessNode() | m.SinkNode():
            return record_schema(spec_of(graph, node))
        case _:  # a row for each key
            records = record_schema(spec_of(graph, node))
            return pa.schema([*(records.field(name) for name in node.key), records.field(TIME)])


def layout_of(graph: m.Graph, sink: m.SinkNode) -> Layout:
    """Return the tables of a sink."""
    return layout(sink_spec(graph, sink))


def row_bytes(sink: m.Sink, table: Table, text_bytes: float) -> float:
    """Return the bytes that a row of a table takes in its database, with its part of the primary key's index."""
    found: float = load(sink_connector(sink).row_bytes)(table, text_bytes)
    return found
