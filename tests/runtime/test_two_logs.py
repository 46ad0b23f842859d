"""A graph over two logs gives the same on every host, in every cut, after a stop, and with other key groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.runtime.conftest import MakeLog
from tests.runtime.runs import Runner, Scene, read
from tests.runtime.spend import HOUR, MINUTE, Files, Log, event
from tests.runtime.two_logs import JOINED, LOOKED_UP, PLAIN, UNITED, Case, Logs, fill, open_logs, query

from windrow.connectors.open_sinks import open_sinks
from windrow.engine.state.inspect import inspect_state
from windrow.errors import SourceError
from windrow.model import Decode, Graph, KafkaSource, SinkNode, SourceNode, SqliteSink, TableNode
from windrow.runtime.replay import ReplayOptions, plan_replay, run_replay
from windrow.runtime.settings import SparkOptions
from windrow.runtime.stream.take_savepoint import look, take_savepoint
from windrow.tools.generate.spec import START

FIRST, REST = slice(150), slice(150, None)


@pytest.fixture(scope="module", params=[UNITED, JOINED, LOOKED_UP], ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    """A graph and what is in its logs."""
    found = request.param
    assert isinstance(found, Case)
    return found


@pytest.fixture(scope="module")
def whole(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the memory host ran the graph in one step."""
    folder = tmp_path_factory.mktemp("whole")
    logs = open_logs(folder)
    fill(logs, case.values)
    found = case.run("memory", logs, folder, 10_000)
    changes = (f"{name}_changes" for name in case.changelogs)
    assert all(found[name] for name in (*case.tables, *case.filled, *changes))
    return folder


@pytest.fixture
def expected(case: Case, whole: Path) -> dict[str, list[Any]]:
    """The tables after one step."""
    return case.read(whole)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return open_logs(tmp_path)


only_united, only_joined, only_looked_up = (
    pytest.mark.parametrize("case", [case], indirect=True, ids=lambda case: case.name)
    for case in (UNITED, JOINED, LOOKED_UP)
)


def mostly(one: Case) -> pytest.MarkDecorator:
    """Run a test that takes seconds on one case, on the others in `make test-long` alone."""
    cases = [
        pytest.param(case, id=case.name, marks=() if case is one else pytest.mark.long)
        for case in (UNITED, JOINED, LOOKED_UP)
    ]
    return pytest.mark.parametrize("case", cases, indirect=True)


@only_united
def test_rows_name_their_log(whole: Path, expected: dict[str, list[Any]]) -> None:
    places = {(row[0], row[1]) for row in expected["all"]}
    assert places == {("bought", 0), ("bought", 1), ("bought", 2), ("returned", 0), ("returned", 1)}
    counted = query(whole, 'SELECT source, "partition", "offset" FROM minutes_dead')
    assert {source for source, *_ in counted} == {"bought", "returned"}
    assert len(counted) == len(set(counted))


@only_united
def test_items_are_rows_by_their_record_and_number(whole: Path) -> None:
    assert query(whole, "SELECT DISTINCT substr(row, -2), sku, n, line FROM items") == [
        ("#0", "a", 2, 0),
        ("#0", "c", 5, 0),
        ("#1", "b", 1, 1),
    ]
    [(items,)] = query(whole, "SELECT sum(n) FROM items")
    assert query(whole, "SELECT sum(n) FROM sold") == [(items,)]


@only_joined
def test_rows_of_a_join_are_named_by_their_records(whole: Path, expected: dict[str, list[Any]]) -> None:
    pairs, alone = (
        query(whole, f"SELECT row, amount_right FROM returned WHERE row {how} LIKE '%+'") for how in ("NOT", "")
    )
    assert pairs
    assert alone
    assert all(amount is None for _, amount in alone)
    for row, _ in pairs:
        left, right = row.split("+")
        assert left.startswith("bought/")
        assert right.startswith("returned/")
    left = {row.split("+")[0] for row, _ in pairs}
    assert not left.intersection(row.removesuffix("+") for row, _ in alone)
    ops = Counter(row[0] for row in expected["returned_changes"])
    assert set(ops) == {"insert", "delete"}
    assert ops["insert"] - ops["delete"] == len(expected["returned"])
    both = query(whole, "SELECT substr(row, 1, 1) = '+', user_id IS NULL, count(*) FROM both GROUP BY 1, 2")
    assert [row[:2] for row in both] == [(0, 0), (1, 0)]
    assert all(row.count("+") == 2 for row, *_ in query(whole, "SELECT row FROM again"))


@only_joined
def test_what_a_join_cannot_take_is_a_dead_letter_of_its_log(expected: dict[str, list[Any]]) -> None:
    dead = Counter((source, reason.partition(":")[0]) for source, _, _, _, reason, _ in expected["returned_dead"])
    assert dead["returned", "long key"] == 1
    assert {source for source, _ in dead} == {"bought", "returned"}
    assert expected["both_dead"] == expected["returned_dead"]
    assert {row[0] for row in expected["returned_late"]} == {"bought", "returned"}


@only_looked_up
def test_rows_have_the_key_of_their_table(whole: Path, expected: dict[str, list[Any]]) -> None:
    assert query(whole, "SELECT user_id FROM last GROUP BY user_id HAVING count(*) > 1 OR max(amount) > 60") == []
    assert query(whole, "SELECT 1 FROM pairs GROUP BY user_id, amount HAVING count(*) > 1") == []
    ops = Counter(row[0] for row in expected["pairs_changes"])
    assert set(ops) == {"insert", "update_before", "update_after", "delete"}
    assert ops["insert"] - ops["delete"] == len(expected["pairs"])
    noted, found = (query(whole, f"SELECT count(*) FROM {name}") for name in ("noted", "found"))
    assert noted == found
    assert query(whole, "SELECT 1 FROM both WHERE row LIKE '+%'")
    assert query(whole, "SELECT 1 FROM found_changes WHERE op = 'delete'")


def test_in_memory_in_many_steps(case: Case, logs: Logs, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    fill(logs, case.values)
    found = case.run("memory", logs, tmp_path / "steps", 97)
    for name, rows in expected.items():
        assert found[name] == rows, name


@mostly(UNITED)
@pytest.mark.usefixtures("spark")
def test_as_a_batch(case: Case, logs: Logs, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    fill(logs, case.values)
    assert case.run("batch", logs, tmp_path / "batch", 400) == expected


@mostly(LOOKED_UP)
@pytest.mark.usefixtures("spark")
def test_a_stream_that_grows_and_is_stopped_before_it_notes_a_step(
    case: Case, logs: Logs, runner: Runner, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    """The sink has the last step, Spark has not noted it: the next run computes it again, and nothing changes."""
    fill(logs, case.values, FIRST)
    graph = case.graph(logs, tmp_path)
    runner.bounded(graph.ending("hold"), 150)
    last = max((runner.checkpoint / "spark" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    fill(logs, case.values, REST)
    runner.bounded(graph, 450)
    found = case.read(tmp_path)
    for name, rows in expected.items():
        assert found[name] == rows, name
    assert set(runner.reports[-1].offsets) == {"bought/0", "bought/1", "bought/2", "returned/0", "returned/1"}
    assert sum(runner.reports[-1].offsets.values()) == sum(map(len, case.values))


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_savepoint_has_the_positions_and_the_state(
    case: Case, logs: Logs, runner: Runner, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    fill(logs, case.values, FIRST)
    held = case.graph(logs, tmp_path).ending("hold")
    runner.bounded(held, 300)
    sinks = open_sinks(held)
    folder = take_savepoint(held, sinks, runner.checkpoint, None, SparkOptions("local[*]"))
    sinks.close()
    _, states = look(held, runner.checkpoint, SparkOptions("local[*]"))
    report = inspect_state(held, states)
    assert case.kinds <= report.kinds.keys()
    assert min(group.keys for group in report.groups) > 0
    fill(logs, case.values, REST)
    Runner(tmp_path / "other").bounded(case.graph(logs, tmp_path, key_groups=3), 300, savepoint=folder)
    assert case.read(tmp_path) == expected


@pytest.mark.usefixtures("spark")
def test_a_source_without_records_holds_back_what_depends_on_it_until_it_is_idle(
    logs: Logs, runner: Runner, tmp_path: Path
) -> None:
    logs[0].append((partition, event(minute)) for minute in range(200) for partition in range(3))
    logs[1].append([(0, event(0)), (1, event(0))])
    runner.bounded(UNITED.graph(logs, tmp_path).ending("hold"))
    assert query(tmp_path, "SELECT count(*) FROM bought") != [(0,)]
    assert query(tmp_path, "SELECT count(*) FROM minutes") == [(0,)]

    def scene() -> Scene:
        yield lambda report: report.idle == ["returned/0", "returned/1"]

    (tmp_path / "idle").mkdir()
    idle = UNITED.graph(logs, tmp_path / "idle", idle=1_000_000).ending("hold")
    Runner(tmp_path / "other").live(idle, scene())
    assert query(tmp_path / "idle", "SELECT count(*) FROM minutes") != [(0,)]
    journal = query(tmp_path / "idle", 'SELECT source, "partition", reason FROM bought_clocks')
    assert journal == [("returned", 0, "idle"), ("returned", 1, "idle")]


@pytest.mark.usefixtures("spark")
def test_a_replay_repeats_the_journal_of_both(logs: Logs, runner: Runner, tmp_path: Path) -> None:
    """A partition of returns is idle for a while, so the verdicts on what comes later depend on the journal."""
    live = UNITED.graph(logs, tmp_path, idle=300_000).ending("hold")
    logs[0].append((partition, event(minute)) for minute in range(200) for partition in range(3))
    logs[1].append([(0, event(0)), (1, event(0))])

    def scene() -> Scene:
        yield lambda report: report.idle == ["returned/0", "returned/1"]
        # late by the low watermark, not by what was read of its partition
        logs[1].append([(0, event(100, "u1")), (0, event(180, "u1"))])
        yield read(604)

    runner.live(live, scene())
    options = ReplayOptions(runner.checkpoint, default=False, host="memory")
    replay = plan_replay(live, options)
    assert replay.tables == tuple((name, f"{name}_shadow") for name in UNITED.tables)
    assert run_replay(replay, options, lambda _: None, lambda _: None) == "end"
    for name in UNITED.tables:
        for part in ("", "_late", "_dead"):
            rows = query(tmp_path, f'SELECT * FROM "{name}_shadow{part}"')
            assert rows == query(tmp_path, f'SELECT * FROM "{name}{part}"'), name + part
    assert ("returned", 0, "idle") in query(tmp_path, 'SELECT source, "partition", reason FROM all_shadow_clocks')
    assert query(tmp_path, "SELECT count(*) FROM minutes_late WHERE source = 'returned'") == [(1,)]


@pytest.mark.usefixtures("spark")
def test_records_that_one_of_them_lost_are_in_the_journal_under_its_name(
    logs: Logs, runner: Runner, tmp_path: Path
) -> None:
    logs[0].append((0, event(minute)) for minute in range(60))
    logs[1].append((1, event(minute)) for minute in range(40))
    given = UNITED.graph(logs, tmp_path).ending("hold")
    runner.bounded(given)
    (tmp_path / "returned" / "partition-1.jsonl").write_bytes(event(50, "u2") + b"\n")
    with pytest.raises(SourceError, match=r"lost records: partition returned/1: .* is another file now"):
        runner.bounded(given)
    said: list[str] = []
    runner.bounded(given, on_data_loss="continue", on_trouble=said.append)
    assert any("partition returned/1" in one for one in said)
    journal = query(tmp_path, 'SELECT source, "partition", "offset", reason FROM hours_clocks')
    assert [row[:3] for row in journal if row[3].startswith("lost: ")] == [("returned", 1, 0)]
    # the position in the other log stays, and the file that starts again has these offsets once more
    assert query(tmp_path, 'SELECT source, count(*) FROM "all" GROUP BY 1') == [("bought", 60), ("returned", 40)]
    again = """SELECT user_id FROM "all" WHERE source = 'returned' AND "offset" = 0"""
    assert query(tmp_path, again) == [("u2",)]


class Rates:
    """A topic of rates by currency, in which a tombstone takes a currency's rate away."""

    def __init__(self, topic: Log) -> None:
        assert isinstance(topic.source, KafkaSource)
        self.source = topic.source

    def write(self, *rates: tuple[str, int, float | None]) -> None:
        """Append a currency, the minute of the log and a rate, or a tombstone."""
        producer = Producer({"bootstrap.servers": self.source.servers})
        for currency, minute, rate in rates:
            value = None if rate is None else event(minute, currency, str(rate))
            millis = (START + minute * MINUTE) // 1000
            producer.produce(self.source.topic, value, key=currency.encode(), partition=0, timestamp=millis)
        assert producer.flush(30.0) == 0

    def into(self, graph: Graph, folder: Path) -> Graph:
        """Add the table of the rates to a graph, by a source of its own, which the other streams do not wait for."""
        key, time, rate = PLAIN.decode.fields
        decode = Decode((replace(key, tombstones=True), time, replace(rate, optional=True)))
        more = (
            SourceNode("changed", self.source, decode, PLAIN.time, lateness=24 * HOUR),
            TableNode("rates", "changed", PLAIN.key, "amount IS NULL"),
            SinkNode("to_rates", "rates", SqliteSink(str(folder / "graph.db"), "rates")),
        )
        return replace(graph, nodes=(*graph.nodes, *more))


@only_united
@pytest.mark.usefixtures("spark")
def test_topics_with_tombstones_and_a_log(
    case: Case, make_log: MakeLog, tmp_path: Path, runner: Runner, expected: dict[str, list[Any]]
) -> None:
    logs = make_log("kafka", 3), Files(tmp_path / "returned", 2)
    rates = Rates(make_log("kafka", 1))
    fill(logs, case.values, slice(200))
    rates.write(("EUR", 0, 1.0), ("USD", 1, 2.0), ("SEK", 2, 3.0), ("EUR", 3, None), ("PLN", 4, None))
    graph = rates.into(case.graph(logs, tmp_path), tmp_path)

    def scene() -> Scene:
        yield read(405)
        fill(logs, case.values, slice(200, None))
        rates.write(("USD", 5, None), ("USD", 6, 4.0), ("SEK", 7, None), ("EUR", 8, 5.0), ("EUR", 9, None))
        yield read(sum(map(len, case.values)) + 10)

    runner.live(graph.ending("hold"), scene())
    runner.bounded(graph)

    found = case.read(tmp_path)
    # the others have the name of the log in them
    for name in ("minutes", "hours", "bought", "sold", "hours_changes", "sold_changes"):
        assert found[name] == expected[name], name
    assert query(tmp_path, "SELECT user_id, amount FROM rates") == [("USD", 4)]
    assert query(tmp_path, f"SELECT * FROM rates_dead WHERE source = '{rates.source.topic}'") == []
    changes = query(tmp_path, "SELECT op, user_id, amount FROM rates_changes")
    assert [row for row in changes if row[1] == "USD"] == [
        ("delete", "USD", 2),
        ("insert", "USD", 2),
        ("insert", "USD", 4),
    ]
    assert Counter(row[:2] for row in changes if row[1] != "USD") == {
        (op, currency): count for currency, count in (("EUR", 2), ("SEK", 1)) for op in ("insert", "delete")
    }
