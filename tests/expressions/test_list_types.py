"""Which columns of a sink are lists, of which elements."""

from __future__ import annotations

import pytest

from windrow.authoring.pipeline_file import read_document
from windrow.connectors.tables import layout
from windrow.expressions import sink_specs

GRAPH = """
name: lists
sources:
  log:
    source: {log: {path: unused}}
    decode: {id: long, user: string, price: "decimal(12,2)", t: timestamp, tags: "array<string?>?", \
items: "array<struct<sku string>>", at: "array<timestamp_millis>", some: "array<decimal(5,1)>"}
    time: {field: t, delay: 20s}
streams:
  plain: {from: log, select: [id, user, price, t]}
  rows:
    from: plain
    key: user
    window: {tumbling: 1m}
    aggregate:
      ids: collect_list(id, 9)
      users: collect_set(user, 9)
      prices: collect_list_in_log(price, 9)
      halves: collect_list(price / 2, 9)
      times: collect_set(t, 9)
      top: top_k(id, 2)
      first: min(id)
      text: "ids || users"
      n: count()
  some:
    from: rows
    where: n > 1
    derive: {renamed: ids, changed: "upper(ids)"}
    select: [ids, users, renamed, changed, window_end]
  hours:
    from: rows
    window: {tumbling: 1h}
    aggregate: {last: last(prices), all: "collect_list(ids, 9)", most: "max_by(times, n)"}
  doubled: {from: rows, derive: {names: users}, select: [names, ids]}
  mixed: {from: rows, derive: {names: user}, select: [names, ids]}
  union: {from: [doubled, mixed]}
sinks:
"""


def columns(stream: str, sink: str) -> dict[str, str]:
    """The types of the columns of a stream's table that it has as arrays."""
    text = f"{GRAPH}  to_{stream}: {{from: {stream}, sink: {{{sink}}}}}\n"
    graph = read_document(text, "lists.yaml").pipeline
    (spec,) = sink_specs(graph).values()
    found = layout(spec)
    assert found.result.lists == found.changes.lists
    assert set(found.result.schema.types) >= {found.result.schema.field(name).type for name in found.result.lists.names}
    return {field.name: str(field.type.value_type) for field in found.result.lists}


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (
            "rows",
            {
                "ids": "int64",
                "users": "string",
                "prices": "decimal128(12, 2)",
                "halves": "double",
                "times": "timestamp[us, tz=UTC]",
            },
        ),
        # a column that is computed from a list is text, one that is named anew is the list
        ("some", {"ids": "int64", "users": "string", "renamed": "int64"}),
        # a list of lists is a list of texts
        ("hours", {"last": "decimal128(12, 2)", "all": "string", "most": "timestamp[us, tz=UTC]"}),
        # in a branch, `names` is plain text
        ("union", {"ids": "int64"}),
        ("log", {"tags": "string", "at": "timestamp[us, tz=UTC]", "some": "decimal128(5, 1)"}),
    ],
)
def test_lists_keep_the_types_of_their_elements(stream: str, expected: dict[str, str]) -> None:
    assert columns(stream, "duckdb: {path: unused.duckdb, table: t, lists: array}") == expected
    assert columns(stream, "duckdb: {path: unused.duckdb, table: t}") == {}
    assert columns(stream, "sqlite: {path: unused.db, table: t}") == {}
