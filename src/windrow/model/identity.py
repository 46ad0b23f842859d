"""Identity of rows: a stream knows each of its rows by what it is made of, a place in a log or an `ID`.

Where branches of a union can have rows in common, as two selections from one stream can, that would not tell them
apart: the rows of the union are known by their branch as well. Where they cannot (different sources, the outputs of a
split, a deduplication and its duplicates), rows are known in the union as they are in the branch.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, product

from windrow.model.graph import (
    AnyJoinNode,
    FilterNode,
    FlatMapNode,
    Graph,
    LookupNode,
    ProcessNode,
    SelectNode,
    SourceNode,
    TableNode,
    WindowNode,
)


def is_by_branch(graph: Graph, node: SelectNode) -> bool:
    """Return whether the rows of a union are known by their branch, too: two branches can have the same row."""
    return any(can_share_rows(graph, *both) for both in combinations(node.inputs, 2))


def is_behind_process(graph: Graph, stream: str) -> bool:
    """Return whether rows of a stream can be made of rows that a process function emitted."""
    node = graph.producer(stream)
    if isinstance(node, ProcessNode):
        return True
    inputs = (node.left,) if isinstance(node, LookupNode) and node.as_of == "order" else node.inputs
    return not isinstance(node, WindowNode) and any(is_behind_process(graph, name) for name in inputs)


def is_of_log(graph: Graph, stream: str) -> bool:
    """Return whether the rows of a stream are records of a log, each with its place there, as far as they were chosen.

    Those of a window, a join, a table or a process function are not, nor those of a lookup that another version of the
    table's row can change.
    """
    node = graph.producer(stream)
    if isinstance(node, LookupNode) and node.as_of == "order":
        return is_of_log(graph, node.left)
    is_chosen = isinstance(node, SelectNode | FilterNode | FlatMapNode)
    return isinstance(node, SourceNode) or (is_chosen and all(is_of_log(graph, name) for name in node.inputs))


@lru_cache(maxsize=4096)
def can_share_rows(graph: Graph, one: str, other: str) -> bool:
    """Return whether two streams can have rows that are made of the same; where that is hard to say, they can.

    Streams are followed to those above them. The one that comes later in the graph goes first: so the two meet, if they
    do, before either has passed the node from which both come, which says whether their ways part there.
    """
    if one == other:
        return True
    node, rival = graph.producer(one), graph.producer(other)
    if node.name == rival.name:
        return False
    if graph.nodes.index(node) < graph.nodes.index(rival):
        return can_share_rows(graph, other, one)
    for stream, second in ((one, other), (other, one)):
        if above := _above(graph, stream):
            # a row of a timer is known by key and time, whatever the function
            is_timed = _is_timed(graph, stream) and any(_is_timed(graph, name) for name in _all_above(graph, second))
            return is_timed or any(can_share_rows(graph, name, second) for name in above)
    if isinstance(node, SelectNode) and isinstance(rival, SelectNode):
        return not set(node.inputs).isdisjoint(rival.inputs)
    return (
        isinstance(node, AnyJoinNode)
        and isinstance(rival, AnyJoinNode)
        and any(_can_be_alike(graph, *both) for both in product(_parts(graph, one), _parts(graph, other)))
    )


def _above(graph: Graph, stream: str) -> tuple[str, ...]:
    """Return the streams whose rows a stream has, by what these are made of, or makes others of: elements, say."""
    node = graph.producer(stream)
    if isinstance(node, FilterNode | FlatMapNode | ProcessNode):
        return node.inputs
    match node:
        case SelectNode():
            return () if is_by_branch(graph, node) else node.inputs
        case LookupNode(left=left, as_of="order"):
            return (left,)
        case TableNode(name=name, input=given) if stream != name:
            return (given,)
        case _:
            return ()


def _all_above(graph: Graph, stream: str) -> tuple[str, ...]:
    return (stream, *(one for name in _above(graph, stream) for one in _all_above(graph, name)))


def _is_timed(graph: Graph, stream: str) -> bool:
    node = graph.producer(stream)
    return isinstance(node, ProcessNode) and node.process.on_timer is not None


_Parts = tuple[str, ...]
"""The streams that the records of a row come from, in order; '' where a record has no partner."""


def _parts(graph: Graph, stream: str) -> frozenset[_Parts]:
    """Return what the rows of a stream can be made of: of a join, of what those of both sides are made of."""
    node = graph.producer(stream)
    if above := _above(graph, stream):
        found = frozenset().union(*(_parts(graph, name) for name in above))
        if all(len(one) == 1 for one in found):
            return frozenset({(stream,)})
        # a row of a timer is made of no records
        return found | {(stream,)} if isinstance(node, ProcessNode) else found
    if not isinstance(node, AnyJoinNode):
        return frozenset({(stream,)})
    left, right = (_parts(graph, name) for name in node.inputs)
    pairs = {(*one, *other) for one in left for other in right}
    pairs |= {(*one, "") for one in left} if node.how in {"left", "full"} else set()
    pairs |= {("", *one) for one in right} if node.how in {"right", "full"} else set()
    return frozenset(pairs)


def _can_be_alike(graph: Graph, one: _Parts, other: _Parts) -> bool:
    """Return whether two rows can be made of the same: of as many records, each of which two streams can have."""
    if len(one) != len(other):
        # they are not, but a row of a further join could be made of the one and another row, or of the other
        return True
    return all(can_share_rows(graph, *both) if all(both) else not any(both) for both in zip(one, other, strict=True))
