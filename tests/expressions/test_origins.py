"""From which fields of the sources the columns of results are computed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.pipelines import MAIN
from tests.graphs import as_graph

import windrow as wr
from windrow.authoring.load import open_pipeline
from windrow.connectors.tables import layout
from windrow.expressions import origins_of, sink_spec

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*.yaml") if "source" in path.read_text())

ORDERS = wr.log("data/orders").decode(order="string", t="timestamp_millis", user="string", items="array<string>")
PAID = wr.log("data/paid").decode(order="string", at="timestamp_millis", amount="long")


def test_a_column_of_windows_comes_from_its_key_time_or_aggregate() -> None:
    pipeline = (
        wr.log("data/spend")
        .decode(user="string", t="timestamp_millis", amount="long", kind="string")
        .derive(who="user", twice="amount * 2")
        .event_time("t", delay="1m")
        .key_by("who")
        .window(wr.tumbling("5m"))
        .aggregate(
            n=wr.count(),
            most=wr.max("twice"),
            bought=wr.sum("amount", where="kind = 'buy'"),
            share="bought / n",
        )
        .to(wr.sqlite("a.db", table="a"))
    )
    time = {("source", "t"): "TRANSFORMATION"}
    assert origins_of(as_graph(pipeline.graph), "") == {
        "window_start": time,
        "window_end": time,
        "who": {("source", "user"): "IDENTITY"},
        "n": {},
        "most": {("source", "amount"): "AGGREGATION"},
        "bought": {("source", "amount"): "AGGREGATION", ("source", "kind"): "AGGREGATION"},
        "share": {("source", "amount"): "AGGREGATION", ("source", "kind"): "AGGREGATION"},
    }


def test_fields_are_followed_through_joins_selections_and_arrays() -> None:
    graph = wr.graph("shop", key_groups=2)
    orders = graph.source("orders", ORDERS.event_time("t", delay="1m"), lateness="1h")
    paid = graph.source("paid", PAID.event_time("at", delay="1m"), lateness="1h")
    joined = graph.stream("joined", orders.join(paid, by="order", after="10m"))
    items = graph.stream("items", joined.flat_map("items", element="item", position="place"))
    rows = graph.stream("rows", items.derive(cents="amount * 100").select("order", "item", "place", "cents"))
    graph.sink("out", rows, wr.sqlite("a.db", table="a"))
    assert origins_of(as_graph(graph.build().graph), "rows") == {
        "order": {("orders", "order"): "IDENTITY", ("paid", "order"): "IDENTITY"},
        "item": {("orders", "items"): "TRANSFORMATION"},
        "place": {("orders", "items"): "TRANSFORMATION"},
        "cents": {("paid", "amount"): "TRANSFORMATION"},
    }


def test_a_short_form_is_its_graph() -> None:
    assert origins_of(as_graph(MAIN), "").keys() >= set(MAIN.key)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_columns_of_the_examples_come_from_fields_that_there_are(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    graph = as_graph(open_pipeline(str(path)).pipeline)
    fields = {(node.name, field.name) for node in graph.sources for field in node.decode.fields}
    for sink in graph.sinks:
        found = origins_of(graph, sink.input)
        assert found.keys() <= set(layout(sink_spec(graph, sink)).changes.columns)
        assert {origin for origins in found.values() for origin in origins} <= fields
        assert any(found.values())
