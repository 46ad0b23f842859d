"""Which streams of a graph can have the same row."""

from __future__ import annotations

import pytest
from tests.authoring.test_graph_file import read

from windrow.model import SelectNode, is_by_branch
from windrow.model.identity import can_share_rows

GRAPH = """\
name: shop
sources:
  orders:
    source: {log: {path: data/orders}}
    decode: {id: string, t: timestamp, amount: long, items: "array<struct<sku string>>", tags: "array<string>"}
    time: {field: t, delay: 1m, future: 1h}
    lateness: 1h
  payments:
    source: {log: {path: data/payments}}
    decode: {id: string, t: timestamp, amount: long}
    time: {field: t, delay: 1m, future: 1h}
    lateness: 1h
streams:
  large: {from: orders, where: amount > 100}
  early: {from: orders, where: amount < 200}
  sizes: {from: orders, split: {small: amount < 10, middle: amount < 100}, other: rest}
  small: {from: sizes.small, where: amount > 1}
  unique: {from: orders, deduplicate: {by: id, within: 1h}}
  copies: {from: unique.duplicates, where: amount > 1}
  parts: {from: [sizes.middle, small]}
  both: {from: [large, early]}
  either: {from: [large, unique]}
  items: {from: large, flat_map: items}
  tags: {from: early, flat_map: tags}
  items_of_rest: {from: sizes.rest, flat_map: items}
  last: {from: payments, table: {key: id}}
  first: {from: payments, table: {key: id}}
  held: {from: large, lookup: {table: last, by: id, how: left}}
  held_first: {from: large, lookup: {table: first, by: id, how: left}}
  known: {from: large, lookup: {table: last, by: id, as_of: order}}
  paid: {from: large, join: {with: payments, by: id, after: 1h}}
  paid_early: {from: early, join: {with: payments, by: id, after: 1h}}
  paid_small: {from: sizes.small, join: {with: payments, by: id, after: 1h}}
  paid_rest: {from: sizes.rest, join: {with: payments, by: id, after: 1h, how: left}}
  again: {from: large, join: {with: orders, by: id, after: 1h}}
  maybe: {from: large, join: {with: orders, by: id, after: 1h, how: left}}
  paid_maybe: {from: early, join: {with: payments, by: id, after: 1h, how: left}}
  twice: {from: paid, join: {with: orders, by: id, after: 1h}}
  others: {from: payments, join: {with: again, by: id, after: 1h}}
  totals: {from: large, key: id, window: {tumbling: 5m}, aggregate: {n: count()}}
  counts: {from: large, key: id, window: {tumbling: 5m}, aggregate: {n: count()}}
  some: {from: totals, where: n > 1}
sinks:
  to_all: {from: some, sink: {sqlite: {path: a.db, table: a}}}
"""


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("large", "orders", True),
        ("large", "early", True),
        ("large", "payments", False),
        ("sizes.small", "sizes.rest", False),
        ("small", "sizes.rest", False),
        ("small", "large", True),
        ("unique", "unique.duplicates", False),
        ("unique", "copies", False),
        ("unique", "large", True),
        ("parts", "sizes.rest", False),
        ("parts", "small", True),
        # these have rows by branch: the branches that they have in common count
        ("both", "large", False),
        ("both", "either", True),
        ("items", "tags", True),
        ("items", "items_of_rest", True),
        ("known", "large", True),
        ("last", "first", False),
        ("held", "held_first", True),
        ("held", "paid", True),
        ("held", "again", False),
        ("paid", "paid_early", True),
        ("paid_small", "paid_rest", False),
        ("paid", "again", False),
        # where the partner is lacking
        ("maybe", "paid_maybe", True),
        ("maybe", "paid", False),
        # the parts of one are those of the other, in other pairs
        ("twice", "others", False),
        ("twice", "paid", True),
        ("totals", "counts", False),
        ("totals", "some", True),
    ],
)
def test_streams_that_can_have_the_same_row(one: str, other: str, expected: bool) -> None:  # noqa: FBT001 - a case
    graph = read(GRAPH)
    assert can_share_rows(graph, one, other) is can_share_rows(graph, other, one) is expected


def test_rows_are_known_by_their_branch_where_two_branches_can_have_the_same() -> None:
    graph = read(GRAPH)
    unions = [node for node in graph.nodes if isinstance(node, SelectNode) and len(node.inputs) > 1]
    assert {node.name for node in unions if is_by_branch(graph, node)} == {"both", "either"}
