"""Origins of a stream's columns: the source fields from which each column is computed, for lineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, assert_never

from windrow import model as m
from windrow.expressions.analyse import Expression
from windrow.expressions.inputs import arguments, computed_arguments, derived, is_window_spec
from windrow.expressions.results import formulas, results
from windrow.expressions.streams import (
    element_fields,
    join_sides,
    selected_expressions,
    source_of,
    spec_of,
    stream_of,
)

Way = Literal["IDENTITY", "TRANSFORMATION", "AGGREGATION"]
"""How a column is computed from a field: a copy, an expression over it, or an aggregate."""
_WAYS: Final[tuple[Way, ...]] = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")

Origins = Mapping[tuple[str, str], Way]
"""The fields that a column is computed from, as (name of the source in the graph, name of the field)."""


def origins_of(graph: m.Graph, stream: str) -> dict[str, Origins]:
    """Return the origins of each column of a stream, or of the rows of a node with results.

    The result columns of a process function have no origins, because the fields that the function reads are unknown.
    """
    node = graph.producer(stream)
    if isinstance(node, m.FilterNode | m.TableNode):
        return origins_of(graph, node.input)
    match node:
        case m.SourceNode():
            found = _source_origins(node)
        case m.ChangesNode():
            found = _source_origins(node.decoded(source_of(graph, node)))
        case m.SelectNode():
            inputs = [origins_of(graph, name) for name in node.inputs]
            found = {name: _merge(columns.get(name, {}) for columns in inputs) for name in inputs[0]}
            found |= {
                name: _expression_origins(expression, found) for name, expression in selected_expressions(graph, node)
            }
            found = {field.name: found[field.name] for field in stream_of(graph, stream).fields}
        case m.FlatMapNode():
            given = origins_of(graph, node.input)
            array = _at_least("TRANSFORMATION", given[node.field])
            names = [field.name for field in element_fields(stream_of(graph, node.input), node)]
            found = {name: array if name == node.field else given.get(name, array) for name in names}
        case m.JoinNode() | m.LookupNode() | m.TableJoinNode():
            sides = zip(node.inputs, join_sides(graph, node), strict=True)
            columns = [
                (side.names[name], of) for stream, side in sides for name, of in origins_of(graph, stream).items()
            ]
            found = {name: _merge(of for other, of in columns if other == name) for name, _ in columns}
        case m.WindowNode() | m.ProcessNode() | m.RulesNode():
            found = _result_origins(graph, node)
        case m.SinkNode():
            raise KeyError(stream)
        case _:
            assert_never(node)
    return found


def _source_origins(node: m.SourceNode) -> dict[str, Origins]:
    own: dict[str, Origins] = {field.name: {(node.name, field.name): "IDENTITY"} for field in node.decode.fields}
    return own | {column.name: _expression_origins(column.expression, own) for column in derived(node)}


def table_keys(graph: m.Graph, node: m.SourceNode | m.ChangesNode) -> frozenset[str]:
    """Return the fields of row changes from which the keys of tables are computed; those of tables below `node`."""
    source = node if isinstance(node, m.SourceNode) else source_of(graph, node)
    below = graph.below(node)
    tables = [node for node in graph.nodes if isinstance(node, m.TableNode)]
    return frozenset(
        field
        for table in tables
        if table in below and stream_of(graph, table.input).lacking is not None
        for name in table.key
        for of, field in origins_of(graph, table.input)[name]
        if of == source.name
    )


def _result_origins(graph: m.Graph, node: m.ResultNode) -> dict[str, Origins]:
    spec, given = spec_of(graph, node), origins_of(graph, node.input)
    new = [column for column in derived(spec) if column.name not in given]
    given |= {column.name: _expression_origins(column.expression, given) for column in new}
    key = {name: given[name] for name in node.key}
    if isinstance(node, m.ProcessNode):
        return {}
    if not is_window_spec(spec):
        return key | {"event_time": given.get(spec.time.field, {})}
    time = _at_least("TRANSFORMATION", given.get(spec.time.field, {}))
    given |= {argument.name: _expression_origins(argument.expression, given) for argument in computed_arguments(spec)}
    values = {
        aggregate.name: _at_least("AGGREGATION", _merge(given[argument.column] for argument in of))
        for aggregate, of in zip(spec.node.aggregates, arguments(spec), strict=True)
    }
    values |= {name: _expression_origins(formula, values) for name, formula in formulas(spec, results(spec)).items()}
    return {"window_start": time, "window_end": time, **key, **values}


def _expression_origins(expression: Expression, given: Mapping[str, Origins]) -> Origins:
    """Return the origins of an expression; a plain column keeps its own origins."""
    origins = _merge(given.get(name, {}) for name in expression.columns)
    is_column = [expression.text.strip().strip('"')] == list(expression.columns)
    return origins if is_column else _at_least("TRANSFORMATION", origins)


def _at_least(way: Way, origins: Origins) -> Origins:
    return {origin: max(way, before, key=_WAYS.index) for origin, before in origins.items()}


def _merge(several: Iterable[Origins]) -> Origins:
    found: dict[tuple[str, str], Way] = {}
    for origins in several:
        for origin, way in origins.items():
            found[origin] = max(way, found.get(origin, way), key=_WAYS.index)
    return found
