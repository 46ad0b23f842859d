"""Graphs in Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.graphs import graph_of

import windrow as wr
from windrow.authoring.printing import to_dict, to_mermaid, to_python_file, to_text, to_yaml
from windrow.client.fluent.graph import GraphBuilder, Named
from windrow.errors import PipelineError
from windrow.model import Graph, LookupNode, ProcessNode, SelectNode, TableJoinNode, TableNode, WindowNode
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings

RECORDS = (
    wr.log("data/spend")
    .decode(user="string", t="timestamp_millis", amount="long", url="string?")
    .event_time("t", delay="1m", future="1h")
)


def counted(ctx: wr.Context, record: Any) -> None:  # noqa: ANN401 - any fields
    """Count and add up a user's records."""
    ctx.state.n.set(ctx.state.n.get(0) + 1)
    ctx.emit(n=ctx.state.n.get(), last=record["amount"])


def begun(**source: Any) -> tuple[GraphBuilder, Named]:  # noqa: ANN401 - any setting of a source
    graph = wr.graph("shop", key_groups=2)
    return graph, graph.source("spend", RECORDS, **source)


def test_streams_come_in_the_order_in_which_they_are_added() -> None:
    graph, spend = begun(lateness="1h")
    unique = graph.stream("unique", spend.deduplicate("user", "t", within="10m", scope="partition"))
    graph.sink("copies", unique["duplicates"], wr.sqlite("a.db", table="copies"))
    sizes = graph.stream("sizes", unique.split({"large": "amount > 10"}, other="small"))
    rows = graph.stream("rows", sizes["small"].where("amount > 1").derive(twice="amount * 2").select("user", "twice"))
    graph.sink("rows_out", rows, wr.sqlite("a.db", table="rows"))
    both = graph.stream("both", sizes["small"].union(sizes["large"], where="amount <> 3"))
    windows = both.derive(host="coalesce(url, '-')").key_by("user", h="amount % 2").window(wr.tumbling("5m"))
    minutes = graph.stream("minutes", windows.aggregate(n=wr.count()).emit(lateness="1m"))
    graph.sink("minutes_out", minutes, wr.sqlite("a.db", table="minutes"))
    made = graph_of(graph.build(), Graph)
    assert [node.name for node in made.nodes] == [
        *("spend", "unique", "sizes", "rows", "both", "minutes"),
        *("copies", "rows_out", "minutes_out"),
    ]
    (found,) = [node for node in made.nodes if node.name == "rows"]
    assert isinstance(found, SelectNode)
    assert (found.inputs, found.where, found.select) == (("sizes.small",), "amount > 1", ("user", "twice"))
    assert isinstance(made.keyed[1], WindowNode)
    assert [one.name for one in made.keyed[1].derive] == ["host", "h"]
    assert "graph.source('spend'" in to_python_file(made)


def test_a_process_function_beside_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "spend").mkdir(parents=True)
    lines = [f'{{"user": "u{n % 2}", "t": {n * 60_000}, "amount": {n}}}' for n in range(10)]
    (tmp_path / "data" / "spend" / "partition-0.jsonl").write_text("\n".join([*lines, ""]))
    graph, spend = begun()
    calls = spend.key_by("user").process(
        counted, state={"n": wr.value_state("long")}, returns={"n": "long", "last": "long"}, ttl="1d"
    )
    graph.sink("to_calls", graph.stream("calls", calls), wr.sqlite("a.db", table="calls"))
    total = spend.key_by("user").window(wr.tumbling("1h")).aggregate(total=wr.sum("amount"))
    graph.sink("to_total", graph.stream("total", total), wr.sqlite("a.db", table="total"))
    made = graph_of(graph.build(), Graph)
    assert isinstance(made.keyed[0], ProcessNode)
    for said in (to_text(made), to_mermaid(made), str(to_dict(made))):
        assert "counted" in said or "process" in said
    for printed in (to_yaml, to_python_file):
        with pytest.raises(PipelineError, match=r"has Python code.*counted"):
            printed(made)
    options = RunSettings(tmp_path / "checkpoint", "memory", until_end=True)
    launch(made, options, lambda _: None, lambda _: None)
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect("a.db") as db:
        assert sorted(db.execute("SELECT user, n, last FROM calls")) == [("u0", 5, 8), ("u1", 5, 9)]
        assert sorted(db.execute("SELECT user, total FROM total")) == [("u0", 20), ("u1", 25)]


RATES = (
    wr.log("data/rates")
    .decode(code="string", user="string", valid="timestamp_millis", rate="long", gone="boolean")
    .event_time("valid", delay="1m", future="1h", idle="1m")
)


def test_tables_lookups_and_joins_of_tables(tmp_path: Path) -> None:
    graph, spend = begun(lateness="1h")
    rates = graph.source("rates", RATES)
    rate = graph.stream("rate", rates.table("code", "user", deleted="gone"))
    last = graph.stream("last", spend.table("user"))
    by = {"url_there": "code", "user": "user"}
    there = graph.stream("there", spend.derive(url_there="coalesce(url, '-')"))
    found = graph.stream("found", there.lookup(rate, by=by, revise="2h", how="left"))
    noted = graph.stream("noted", there.lookup(rate, by=by, as_of="order", broadcast=True))
    owned = graph.stream("owned", last.join(rate, by="user", how="right"))
    for stream in (found, noted, owned):
        graph.sink(f"to_{stream.name}", stream, wr.sqlite("a.db", table=stream.name))
    made = graph_of(graph.build(), Graph)
    assert made.producer("rate") == TableNode("rate", "rates", ("code", "user"), "gone")
    assert made.producer("last") == TableNode("last", "spend", ("user",))
    hour = 3_600_000_000
    expected = LookupNode("found", "there", "rate", ("url_there", "user"), ("code", "user"), "left", revise=2 * hour)
    assert made.producer("found") == expected
    assert made.producer("noted") == LookupNode(
        "noted", "there", "rate", ("url_there", "user"), ("code", "user"), as_of="order", broadcast=True
    )
    assert made.producer("owned") == TableJoinNode("owned", "last", "rate", ("user",), ("user",), "right")
    (tmp_path / "printed.py").write_text(to_python_file(made))
    assert wr.load(tmp_path / "printed.py").graph == made


def alone(spend: Named) -> object:
    return spend.key_by("user").window(wr.tumbling("5m")).aggregate(n=wr.count()).to(wr.sqlite("a.db", table="a"))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (alone, "'spend' is a stream of a graph: add the result with graph.stream"),
        (lambda spend: spend["large"], "'spend' has no output 'large'; it has none"),
        (lambda spend: spend.select("user").derive(a="1"), "call derive before select"),
        (lambda spend: spend.where("amount > 1").key_by("user"), "is a stream of its own: name it with graph.stream"),
        (lambda spend: spend.deduplicate("user", within="soon"), "deduplicate.within"),
        (lambda spend: spend.lookup(spend, by="user", revise="soon"), "lookup.revise"),
    ],
)
def test_what_streams_cannot_be(made: Callable[[Named], object], said: str) -> None:
    _, spend = begun()
    with pytest.raises(PipelineError, match=said):
        made(spend)


def test_what_is_not_of_the_graph_is_refused() -> None:
    graph, spend = begun()
    other = RECORDS.key_by("user").window(wr.tumbling("5m")).aggregate(n=wr.count())
    with pytest.raises(PipelineError, match=r"streams.a: its records are from no source of the graph"):
        graph.stream("a", other)
    with pytest.raises(
        PipelineError, match="`made` must be a stream made from another stream of the graph, such as orders"
    ):
        graph.stream("a", spend)  # type: ignore[arg-type]
    graph.stream("b", spend.where("amount >"))
    with pytest.raises(PipelineError, match=r"streams.b: no sink writes its rows"):
        graph.build()


def test_its_keys_are_those_of_a_file() -> None:
    graph, spend = begun(lateness="1h")
    found = graph.stream("unique", spend.deduplicate("user", within="10m"))
    graph.sink("rows", found, wr.sqlite("a.db", table="rows"))
    made = graph_of(graph.build(), Graph)
    assert to_dict(made)["streams"]["unique"] == {
        "from": "spend",
        "deduplicate": {"by": ["user"], "within": "10m"},
    }
