"""Origins of the columns of a stream: from which fields of which sources each is computed, for lineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, assert_never

from windrow import model as m
from windrow.expressions.analyse import Expression
from windrow.expressions.inputs import arguments, computed_arguments, derived, is_window_spec
from windrow.expressions.results import formulas, results
from windrow.expressions.streams import exploded, join_sides, selected_expressions, spec_of, stream_of

Way = Literal["IDENTITY", "TRANSFORMATION", "AGGREGATION"]
"""How a column is made of a field: it is the field, an expression over it, or an aggregate."""
_WAYS: Final[tuple[Way, ...]] = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")

Origins = Mapping[tuple[str, str], Way]
"""The fields that a column is made of, each by its source's name in the graph and its own."""


def origins_of(graph: m.Graph, stream: str) -> dict[str, Origins]:
    """Return the origins of each column of a stream, or of the rows of a node with results.

    What user code makes has none, as it is not known what it reads.
    """
    node = graph.producer(stream)
    if isinstance(node, m.FilterNode | m.TableNode):
        return origins_of(graph, node.input)
    match node:
        case m.SourceNode():
            own: dict[str, Origins] = {
                field.name: {(node.name, field.name): "IDENTITY"} for field in node.decode.fields
            }
            found = own | {one.name: _through(one.expression, own) for one in derived(node)}
        case m.SelectNode():
            given = [origins_of(graph, name) for name in node.inputs]
            found = {name: _joined(one.get(name, {}) for one in given) for name in given[0]}
            made = {name: _through(one, found) for name, one in selected_expressions(graph, node)}
            found = {field.name: (found | made)[field.name] for field in stream_of(graph, stream).fields}
        case m.FlatMapNode():
            given_one = origins_of(graph, node.input)
            array = _as("TRANSFORMATION", given_one[node.field])
            names = [one.name for one in exploded(stream_of(graph, node.input), node)]
            found = {name: array if name == node.field else given_one.get(name, array) for name in names}
        case m.JoinNode() | m.LookupNode() | m.TableJoinNode():
            sides = zip(node.inputs, join_sides(graph, node), strict=True)
            made_of = [
                (side.names[name], of) for stream, side in sides for name, of in origins_of(graph, stream).items()
            ]
            found = {name: _joined(of for made, of in made_of if made == name) for name, _ in made_of}
        case m.WindowNode() | m.ProcessNode() | m.RulesNode():
            found = _of_results(graph, node)
        case m.SinkNode():
            raise KeyError(stream)
        case _:
            assert_never(node)
    return found


def table_keys(graph: m.Graph, source: m.SourceNode) -> frozenset[str]:
    """Return the fields of a source of changes of rows that keys of tables are made of."""
    tables = [node for node in graph.nodes if isinstance(node, m.TableNode)]
    return frozenset(
        field
        for table in tables
        if stream_of(graph, table.input).lacking is not None
        for name in table.key
        for of, field in origins_of(graph, table.input)[name]
        if of == source.name
    )


def _of_results(graph: m.Graph, node: m.ResultNode) -> dict[str, Origins]:
    spec, given = spec_of(graph, node), origins_of(graph, node.input)
    given |= {one.name: _through(one.expression, given) for one in derived(spec) if one.name not in given}
    key = {name: given[name] for name in node.key}
    if isinstance(node, m.ProcessNode):
        return {}
    if not is_window_spec(spec):
        return key | {"event_time": given.get(spec.time.field, {})}
    time = _as("TRANSFORMATION", given.get(spec.time.field, {}))
    given |= {argument.name: _through(argument.expression, given) for argument in computed_arguments(spec)}
    made = {
        one.name: _as("AGGREGATION", _joined(given[argument.column] for argument in of))
        for one, of in zip(spec.node.aggregates, arguments(spec), strict=True)
    }
    made |= {name: _through(one, made) for name, one in formulas(spec, results(spec)).items()}
    return {"window_start": time, "window_end": time, **key, **made}


def _through(expression: Expression, given: Mapping[str, Origins]) -> Origins:
    """Return the origins of an expression; one that is a column alone is that column."""
    origins = _joined(given.get(name, {}) for name in expression.columns)
    is_column = [expression.text.strip().strip('"')] == list(expression.columns)
    return origins if is_column else _as("TRANSFORMATION", origins)


def _as(way: Way, origins: Origins) -> Origins:
    return {origin: max(way, before, key=_WAYS.index) for origin, before in origins.items()}


def _joined(several: Iterable[Origins]) -> Origins:
    found: dict[tuple[str, str], Way] = {}
    for origins in several:
        for origin, way in origins.items():
            found[origin] = max(way, found.get(origin, way), key=_WAYS.index)
    return found
