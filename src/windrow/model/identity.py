"""Identity of rows: a stream identifies each row by the places in a log of the records behind it, or by an `ID`.

The branches of a union can share rows, for example if they are two selections from one stream. The union then
identifies its rows by their branch as well. If the branches cannot share rows (different sources, the outputs of a
split, a deduplication and its duplicates), a row has the same identity in the union as in its branch.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, product

from windrow.model import nodes as n
from windrow.model.graph import Graph


def is_by_branch(graph: Graph, node: n.SelectNode) -> bool:
    """Return True if a union also identifies rows by their branch, because two branches can share a row."""
    return any(can_share_rows(graph, *both) for both in combinations(node.inputs, 2))


def is_behind_process(graph: Graph, stream: str) -> bool:
    """Return True if rows of a stream can derive from rows that a process function emitted."""
    node = graph.producer(stream)
    if isinstance(node, n.ProcessNode):
        return True
    inputs = (node.left,) if isinstance(node, n.LookupNode) and node.as_of == "order" else node.inputs
    return not isinstance(node, n.WindowNode) and any(is_behind_process(graph, name) for name in inputs)


def is_of_log(graph: Graph, stream: str) -> bool:
    """Return True if the rows of a stream are records of a log, or a selection of them, each with its place in the log.

    This is not true of the rows of a window, a join, a table or a process function, nor of a lookup that a later
    version of the table's row can change.
    """
    node = graph.producer(stream)
    if isinstance(node, n.LookupNode) and node.as_of == "order":
        return is_of_log(graph, node.left)
    is_chosen = isinstance(node, n.SelectNode | n.FilterNode | n.FlatMapNode | n.ChangesNode)
    return isinstance(node, n.SourceNode) or (is_chosen and all(is_of_log(graph, name) for name in node.inputs))


@lru_cache(maxsize=4096)
def can_share_rows(graph: Graph, first: str, second: str) -> bool:
    """Return True if two streams can have rows with the same identity, or if that is uncertain.

    The streams are followed upwards, each time from the one that comes later in the graph. So they meet at their
    nearest common ancestor, which decides whether they can share rows.
    """
    if first == second:
        return True
    node, rival = graph.producer(first), graph.producer(second)
    tables = [part.table for part in (node, rival) if isinstance(part, n.ChangesNode)]
    if node.name == rival.name or len(set(tables)) > 1:
        return False
    if graph.nodes.index(node) < graph.nodes.index(rival):
        return can_share_rows(graph, second, first)
    for stream, other in ((first, second), (second, first)):
        if above := _above(graph, stream):
            # a row of a timer is identified by key and time, whatever the function
            is_timed = _is_timed(graph, stream) and any(_is_timed(graph, name) for name in _all_above(graph, other))
            return is_timed or any(can_share_rows(graph, name, other) for name in above)
    if isinstance(node, n.SelectNode) and isinstance(rival, n.SelectNode):
        return not set(node.inputs).isdisjoint(rival.inputs)
    return (
        isinstance(node, n.AnyJoinNode)
        and isinstance(rival, n.AnyJoinNode)
        and any(_can_be_alike(graph, *both) for both in product(_parts(graph, first), _parts(graph, second)))
    )


def _above(graph: Graph, stream: str) -> tuple[str, ...]:
    """Return the inputs of a stream whose rows keep their identity in it, whole or as the elements of an array."""
    node = graph.producer(stream)
    if isinstance(node, n.FilterNode | n.FlatMapNode | n.ProcessNode | n.ChangesNode):
        return node.inputs
    match node:
        case n.SelectNode():
            return () if is_by_branch(graph, node) else node.inputs
        case n.LookupNode(left=left, as_of="order"):
            return (left,)
        case n.TableNode(name=name, input=given) if stream != name:
            return (given,)
        case _:
            return ()


def _all_above(graph: Graph, stream: str) -> tuple[str, ...]:
    return (stream, *(ancestor for name in _above(graph, stream) for ancestor in _all_above(graph, name)))


def _is_timed(graph: Graph, stream: str) -> bool:
    node = graph.producer(stream)
    return isinstance(node, n.ProcessNode) and node.process.on_timer is not None


_Parts = tuple[str, ...]
"""The streams of the records that a row is made of, in order; '' for a missing partner."""


def _parts(graph: Graph, stream: str) -> frozenset[_Parts]:
    """Return the combinations of streams whose records can form a row of a stream; a join combines its two sides."""
    node = graph.producer(stream)
    if above := _above(graph, stream):
        found = frozenset().union(*(_parts(graph, name) for name in above))
        if all(len(parts) == 1 for parts in found):
            return frozenset({(stream,)})
        # a row of a timer is made of no records
        return found | {(stream,)} if isinstance(node, n.ProcessNode) else found
    if not isinstance(node, n.AnyJoinNode):
        return frozenset({(stream,)})
    left, right = (_parts(graph, name) for name in node.inputs)
    pairs = {(*of_left, *of_right) for of_left in left for of_right in right}
    pairs |= {(*parts, "") for parts in left} if node.how in {"left", "full"} else set()
    pairs |= {("", *parts) for parts in right} if node.how in {"right", "full"} else set()
    return frozenset(pairs)


def _can_be_alike(graph: Graph, first: _Parts, second: _Parts) -> bool:
    """Return True if two rows can be made of the same records."""
    if len(first) != len(second):
        # these rows differ, but a row of a further join can be made of the shorter and another row, or of the longer
        return True
    return all(can_share_rows(graph, *both) if all(both) else not any(both) for both in zip(first, second, strict=True))
