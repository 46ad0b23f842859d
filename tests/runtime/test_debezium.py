"""Tables of Debezium's changes are the rows of the database: what a replay of the changes in plain Python gives."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import raw
from tests.examples import examples

from windrow.authoring.checks import validate
from windrow.authoring.pipeline_file import read_document
from windrow.authoring.printing import to_python_file, to_text, to_yaml
from windrow.engine.changelog import StepOutput, reason_kinds
from windrow.engine.decode.decoder import SMALL_BATCH, Decoder
from windrow.engine.operators.ingest import divided_truncations
from windrow.engine.schema import RAW
from windrow.engine.tick import Crash, PlayStep
from windrow.errors import PipelineError
from windrow.expressions import table_keys
from windrow.model import MAX_PARTITIONS, Graph
from windrow.runtime import memory
from windrow.runtime.batch import run as batch
from windrow.runtime.launch import launch
from windrow.runtime.memory import play
from windrow.runtime.run import HostName, RunSettings
from windrow.runtime.stream import run as stream
from windrow.telemetry.reports import truncations_of
from windrow.testing.servers.kafka import Kafka

T0 = 1_767_225_600_000
PIPELINE = """
name: shop
key_groups: 2
sources:
  customers:
    source: SOURCE
    decode:
      id: long
      name: string
      country: string?
      changed: {type: timestamp_millis, path: source.ts_ms}
    time: {field: changed, delay: 1m, idle: 1m}
  orders:
    source: {log: {path: FOLDER/orders, format: debezium}}
    decode: {no: long, customer: long, total: "decimal(12,2)", at: {type: timestamp_millis, path: source.ts_ms}}
    time: {field: at, delay: 1m, idle: 1m}
streams:
  customer: {from: customers, table: {key: id}}
  named: {from: customer, where: "name <> 'nobody'", select: [id, name]}
  renamed: {from: orders, derive: {id: customer}, select: [no, id, total]}
  order: {from: renamed, table: {key: no}}
  bill: {from: order, join: {with: customer, by: id}}
  spent: {from: bill, key: id, window: {global: {}}, aggregate: {total: sum(total), orders: count()}}
sinks:
  to_customer: {from: customer, sink: {sqlite: {path: FOLDER/shop.db, table: customer}}}
  to_named: {from: named, sink: {sqlite: {path: FOLDER/shop.db, table: named}}}
  to_bill: {from: bill, sink: {sqlite: {path: FOLDER/shop.db, table: bill}}}
  to_spent: {from: spent, sink: {sqlite: {path: FOLDER/shop.db, table: spent}}}
"""


def graph(folder: Path = Path("unused"), source: str = "{log: {path: FOLDER/customers, format: debezium}}") -> Graph:
    text = PIPELINE.replace("SOURCE", source).replace("FOLDER", str(folder))
    found = read_document(text, "shop.yaml").pipeline
    assert isinstance(found, Graph)
    return found


def test_a_table_of_changes_needs_no_word_on_deletions() -> None:
    assert [one for one in validate(graph()) if "delet" in one.message or one.level == "error"] == []


REPLACED: list[tuple[str, str, str]] = [
    (
        "{from: customers, table: {key: id}}",
        "{from: some, table: {key: id}}\n  some: {from: customers, where: id > 3}",
        "warning streams.customer.table: has no `deleted`, and is made of a selection of changes",
    ),
    (
        "spent: {from: bill, key: id",
        "spent: {from: orders, key: no",
        "warning streams.spent.from: every change of a row is a record here, including updates and deletions",
    ),
    ("key: id}}", "key: country}}", "error streams.customer.table.key.0: 'country' can be null"),
]


@pytest.mark.parametrize(("old", "new", "finding"), REPLACED)
def test_changes_that_are_taken_as_records_are_found(old: str, new: str, finding: str) -> None:
    text = PIPELINE.replace("SOURCE", "{log: {path: customers, format: debezium}}").replace("FOLDER", "x")
    assert old in text
    try:
        given = read_document(text.replace(old, new), "shop.yaml").pipeline
        found = [f"{one.level} {one.where}: {one.message}" for one in validate(given)]
    except PipelineError as exc:
        found = [f"error {exc}".replace("shop.yaml:", "")]
    assert any(finding in one or finding.removeprefix("error ") in one for one in found), found


def test_a_graph_is_read_as_it_is_printed() -> None:
    given = graph()
    assert read_document(to_yaml(given), "shop.yaml").pipeline == given
    assert "format='debezium'" in to_python_file(given)
    assert "row changes from Debezium" in to_text(given)
    assert "a deletion removes the row" in to_text(given)


Rows = dict[int, dict[str, Any]]


@dataclass
class Database:
    """Tables that change, and what Debezium writes of that; `columns` are those that there are by now."""

    chance: Random
    tables: dict[str, Rows] = field(default_factory=lambda: {"customers": {}, "orders": {}})
    clock: int = T0

    def changes(self, table: str, partition: int, count: int) -> Iterator[bytes | None]:
        """Change rows of a table, whose keys are in the partition; a deletion is followed by a tombstone."""
        rows = self.tables[table]
        for number in range(count):
            key = self.chance.randrange(6) * 2 + partition
            self.clock += self.chance.randrange(-30_000, 60_000)
            before = rows.get(key)
            if before is not None and self.chance.random() < 0.4:
                del rows[key]
                is_full = self.chance.random() < 0.5
                name = "id" if table == "customers" else "no"
                yield self._record("d", before if is_full else dict.fromkeys(before) | {name: key}, None)
                yield None
                continue
            if table == "customers":
                row: dict[str, Any] = {"id": key, "name": self.chance.choice(["Ada", "Bo", "nobody"])}
                if number > count // 2:  # the column came later
                    row["country"] = self.chance.choice(["SE", None])
            else:
                row = {"no": key, "customer": self.chance.randrange(12), "total": f"{self.chance.randrange(99)}.50"}
            op = "u" if before else self.chance.choice("cr")
            rows[key] = row
            yield self._record(op, before if self.chance.random() < 0.3 else None, row)

    def _record(self, op: str, before: object, after: object) -> bytes:
        source = {"connector": "postgresql", "name": "shop", "ts_ms": self.clock, "lsn": self.clock - T0}
        record: dict[str, Any] = {"before": before, "after": after, "source": source, "op": op, "ts_ms": self.clock}
        if self.chance.random() < 0.5:
            record = {"schema": {"type": "struct"}, "payload": record}
        return json.dumps(record, separators=(",", ":")).encode()

    @property
    def customers(self) -> list[tuple[Any, ...]]:
        return sorted((key, row["name"], row.get("country")) for key, row in self.tables["customers"].items())

    @property
    def named(self) -> list[tuple[Any, ...]]:
        return [row[:2] for row in self.customers if row[1] != "nobody"]

    @property
    def bills(self) -> list[tuple[Any, ...]]:
        orders, customers = self.tables["orders"], self.tables["customers"]
        return sorted((no, one["customer"], one["total"]) for no, one in orders.items() if one["customer"] in customers)

    @property
    def spent(self) -> list[tuple[Any, ...]]:
        found: dict[int, list[float]] = {}
        for _, customer, total in self.bills:
            found.setdefault(customer, []).append(float(total))
        return sorted((customer, sum(totals), len(totals)) for customer, totals in found.items())


def line(value: bytes | None) -> bytes:
    """Return a record as a line of an embedded log."""
    return b'{"_key":{"id":1},"_value":null}' if value is None else value


def applied(outputs: Sequence[Mapping[str, Any]], sink: str, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Apply the changelog of a sink, which must fit."""
    table: set[tuple[Any, ...]] = set()
    for change in pa.concat_tables([output[sink].changes for output in outputs]).to_pylist():
        row = tuple(change[name] for name in names)
        if change["op"] in {"delete", "update_before"}:
            table.remove(row)
        else:
            assert row not in table
            table.add(row)
    return sorted(table)


@given(st.integers(0, 2**32), st.integers(0, 40), st.lists(st.integers(1, 8), min_size=1))
@examples(6)
def test_tables_are_the_rows_of_the_database_in_any_cut(seed: int, count: int, sizes: list[int]) -> None:
    database = Database(Random(seed))
    logs = {
        (number << 20) + partition: [line(one) for one in database.changes(table, partition, count)]
        for number, table in enumerate(("customers", "orders"))
        for partition in (0, 1)
    }
    chance = Random(seed)
    steps: list[list[tuple[int, bytes]]] = [[]]
    while any(logs.values()):
        partition = chance.choice([one for one, values in logs.items() if values])
        size = chance.choice(sizes)
        steps.append([(partition, value) for value in logs[partition][:size]])
        del logs[partition][:size]
    outputs = play(graph(), steps, "fire")
    assert sum(output[sink].dead.num_rows for output in outputs for sink in output) == 0
    assert applied(outputs, "to_customer", ("id", "name", "country")) == database.customers
    assert applied(outputs, "to_named", ("id", "name")) == database.named
    bills = applied(outputs, "to_bill", ("no", "id", "total"))
    assert [(no, customer, str(total)) for no, customer, total in bills] == database.bills
    spent = applied(outputs, "to_spent", ("id", "total", "orders"))
    assert [(customer, float(total), orders) for customer, total, orders in spent] == database.spent


PEOPLE = """
name: people
key_groups: 2
sources:
  people:
    source: {log: {path: FOLDER/people, format: debezium}}
    decode: {id: long, email: string, team: string, changed: {type: timestamp_millis, path: source.ts_ms}}
    time: {field: changed, delay: 1m, idle: 1m}
    lateness: 1h
  visits:
    source: {log: {path: FOLDER/visits}}
    decode: {mail: string, at: timestamp_millis}
    time: {field: at, delay: 1m, idle: 1m}
    lateness: 1h
streams:
  by_email: {from: people, table: {key: email}}
  named: {from: people, derive: {place: "team || '/' || email"}, select: [place, team, id]}
  by_place: {from: named, table: {key: place}}
  by_id: {from: people, table: {key: id}}
  teams: {from: by_email, key: team, window: {global: {}}, aggregate: {people: count(), ids: sum(id)}}
  changes: {from: people, key: team, window: {tumbling: 1h}, aggregate: {changes: count()}}
  pairs: {from: by_email, join: {with: by_id, by: id}}
  seen: {from: visits, lookup: {table: by_email, by: {mail: email}, how: inner}}
sinks:
  to_email: {from: by_email, sink: {sqlite: {path: FOLDER/p.db, table: by_email}}}
  to_place: {from: by_place, sink: {sqlite: {path: FOLDER/p.db, table: by_place}}}
  to_teams: {from: teams, sink: {sqlite: {path: FOLDER/p.db, table: teams}}}
  to_changes: {from: changes, sink: {sqlite: {path: FOLDER/p.db, table: changes}}}
  to_pairs: {from: pairs, sink: {sqlite: {path: FOLDER/p.db, table: pairs}}}
  to_seen: {from: seen, sink: {sqlite: {path: FOLDER/p.db, table: seen}}}
"""


EMAILS = """
name: emails
sources:
  people:
    source: {log: {path: FOLDER/people, format: debezium}}
    decode: {id: long, email: string, team: string, changed: {type: timestamp_millis, path: source.ts_ms}}
    time: {field: changed, delay: 1m}
streams:
  by_email: {from: people, table: {key: email}}
sinks:
  to_email: {from: by_email, sink: {sqlite: {path: FOLDER/p.db, table: by_email}}}
"""


def graph_of(text: str) -> Graph:
    found = read_document(text.replace("FOLDER", "unused"), "people.yaml").pipeline
    assert isinstance(found, Graph)
    return found


def people(chance: Random, count: int) -> tuple[list[bytes], Rows, list[tuple[int, Rows]]]:
    """Return changes of a table whose emails are unique and change, its rows, and those after each change.

    One in ten changes is a truncation.
    """
    rows: Rows = {}
    values: list[bytes] = []
    states: list[tuple[int, Rows]] = []
    for number in range(count):
        key, time = chance.randrange(5), T0 + number * 60_000
        before, taken = rows.get(key), {row["email"] for row in rows.values()}
        if chance.random() < 0.1:
            rows.clear()
            values.append(envelope("t", None, None, time))
        elif before is not None and chance.random() < 0.2:
            del rows[key]
            values.append(envelope("d", before, None, time))
        else:
            free = [one for one in "abcdefgh" if one not in taken or (before and before["email"] == one)]
            rows[key] = {"id": key, "email": chance.choice(free), "team": chance.choice("xy")}
            values.append(envelope("u" if before else "c", before, rows[key], time))
        states.append((time, dict(rows)))
    return values, rows, states


def envelope(op: str, before: object, after: object, time: int) -> bytes:
    record = {"before": before, "after": after, "source": {"ts_ms": time}, "op": op, "ts_ms": time}
    return json.dumps(record, separators=(",", ":")).encode()


def cut(lines: Sequence[tuple[int, bytes]], sizes: Sequence[int]) -> Iterator[list[tuple[int, bytes]]]:
    """Cut the records of a log into steps of these sizes, over and over."""
    at, turn = 0, 0
    while at < len(lines):
        yield list(lines[at : at + sizes[turn % len(sizes)]])
        at, turn = at + sizes[turn % len(sizes)], turn + 1


@given(st.integers(0, 2**32), st.integers(0, 30), st.lists(st.integers(1, 20), min_size=2))
@examples(3)
def test_a_row_that_gets_another_key_is_there_once_in_any_cut(seed: int, count: int, sizes: list[int]) -> None:
    values, rows, states = people(Random(seed), count)
    visits = [(time + 30_000, mail) for time, _ in states for mail in "abcdefgh"]
    lines = [(1 << 20, json.dumps({"mail": mail, "at": time}).encode()) for time, mail in visits]
    steps = [*cut([(0, value) for value in values], sizes), *cut(lines, [200])]
    outputs = play(graph_of(PEOPLE), steps, "fire")
    assert sum(output[sink].dead.num_rows for output in outputs for sink in output) == 0
    people_ = sorted((row["email"], row["id"], row["team"]) for row in rows.values())
    assert applied(outputs, "to_email", ("email", "id", "team")) == people_
    places = sorted((f"{team}/{email}", team, id_) for email, id_, team in people_)
    assert applied(outputs, "to_place", ("place", "team", "id")) == places
    teams = {team: [id_ for _, id_, own in people_ if own == team] for team in "xy"}
    expected = [(team, len(ids), sum(ids)) for team, ids in teams.items() if ids]
    assert applied(outputs, "to_teams", ("team", "people", "ids")) == expected
    changes = applied(outputs, "to_changes", ("team", "changes"))
    assert sum(number for _, number in changes) == sum(b'"op":"t"' not in value for value in values)
    assert applied(outputs, "to_pairs", ("email", "id")) == [row[:2] for row in people_]
    seen = sorted(
        (mail, row["id"], time + 30_000)
        for time, state in states
        for mail in "abcdefgh"
        for row in state.values()
        if row["email"] == mail
    )
    found = applied(outputs, "to_seen", ("mail", "id", "at"))
    assert [(mail, id_, int(at.timestamp() * 1000)) for mail, id_, at in found] == seen


Play = Callable[[Graph, Sequence[PlayStep | Crash], Literal["fire", "hold"]], list[dict[str, Any]]]


def minute(number: float) -> int:
    return T0 + round(number * 60_000)


def visit(mail: str, at: float) -> tuple[int, bytes]:
    return 1 << 20, json.dumps({"mail": mail, "at": minute(at)}).encode()


def person(op: str, at: float, *row: object) -> tuple[int, bytes]:
    values = dict(zip(("id", "email", "team"), row, strict=True)) if row else None
    return 0, envelope(op, values if op == "d" else None, None if op == "d" else values, minute(at))


TRUNCATED: list[PlayStep | Crash] = [
    [person("c", 0, 1, "a", "x"), person("c", 1, 2, "b", "y"), visit("a", 0.5)],
    [person("c", 2, 3, "c", "x"), person("t", 5), person("c", 5, 4, "c", "x"), visit("c", 3), visit("c", 5.5)],
    Crash(is_committed=False),
    [visit("a", 4), visit("a", 6), person("u", 7, 5, "b", "y"), person("c", 4, 6, "d", "x"), visit("b", 7.5)],
    [person("t", 9), person("t", 9), person("r", 10, 7, "a", "y"), visit("a", 11), visit("b", 12)],
    Crash(is_committed=True),
    [person("d", 12, 7, "a", "y"), person("c", 13, 8, "e", "x"), visit("d", 8)],
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("play", [memory.play, batch.play, stream.play], ids=["memory", "batch", "stream"])
def test_a_truncation_empties_all_that_is_made_of_the_table(play: Play) -> None:
    outputs = play(graph_of(PEOPLE), TRUNCATED, "fire")
    assert [output[sink].dead.num_rows for output in outputs for sink in output if output[sink].dead.num_rows] == []
    assert applied(outputs, "to_email", ("email", "id", "team")) == [("e", 8, "x")]
    assert applied(outputs, "to_place", ("place", "team", "id")) == [("x/e", "x", 8)]
    assert applied(outputs, "to_teams", ("team", "people", "ids")) == [("x", 1, 8)]
    assert applied(outputs, "to_pairs", ("email", "id")) == [("e", 8)]
    # a truncation is no change of a team
    assert applied(outputs, "to_changes", ("team", "changes")) == [("x", 5), ("y", 4)]
    seen = [
        (mail, id_, (at.timestamp() * 1000 - T0) / 60_000)
        for mail, id_, at in applied(outputs, "to_seen", ("mail", "id", "at"))
    ]
    # the row of d is a minute older than the first truncation, by event time
    assert seen == [("a", 1, 0.5), ("a", 1, 4.0), ("a", 7, 11.0), ("b", 5, 7.5), ("c", 3, 3.0), ("c", 4, 5.5)]


@pytest.mark.parametrize(("known", "others"), [([0], []), ([0, 1], []), ([0], [1])])
def test_a_truncation_needs_the_order_of_all_rows(known: list[int], others: list[int]) -> None:
    host = memory.MemoryHost(graph_of(EMAILS), known, others=others)
    values = [person("c", 0, 1, "a", "x"), person("t", 1)]
    outputs = [host.step(raw(0, 0, *[value for _, value in values])), host.end()]
    found = [{"to_email": StepOutput.concat(one.by_sink["to_email"] for one in groups)} for groups in outputs]
    letters = pa.concat_tables([output["to_email"].dead for output in found])
    warning = truncations_of(reason_kinds([letters]))
    if [*known, *others] == [0]:
        assert (applied(found, "to_email", ("email",)), letters.num_rows, warning) == ([], 0, None)
    else:
        assert applied(found, "to_email", ("email",)) == [("a",)]
        assert [(row["partition"], row["offset"]) for row in letters.to_pylist()] == [(0, 1)]
        assert warning is not None
        assert warning.startswith("1 truncation of a table could not be applied, so removed rows stay")


def test_partitions_that_truncations_do_not_reach_are_named(tmp_path: Path) -> None:
    first, others = [0, MAX_PARTITIONS], [1, MAX_PARTITIONS + 1, MAX_PARTITIONS + 2]

    def found(graph: Graph, since: list[int], now: list[int]) -> list[str]:
        return [node.name for node in divided_truncations(graph, since, now)]

    assert found(graph(), first, [*first, *others]) == ["customers", "orders"]
    assert found(graph(), first, [*first, others[0]]) == ["customers"]
    assert found(graph(), first, first) == []
    # these are dead letters
    assert found(graph(), [*first, *others], [*first, *others]) == []
    # each partition has them
    followed = f"{{postgres_cdc: {{url: postgresql://h/db, table: customers, log: {tmp_path}}}}}"
    assert found(graph(source=followed), first, [*first, others[0]]) == []


def test_few_and_many_changes_of_a_key_are_decoded_alike() -> None:
    values, _, _ = people(Random(1), SMALL_BATCH)
    source = graph_of(PEOPLE).sources[0]
    decoder = Decoder(source, table_keys(graph_of(PEOPLE), source), "applied")

    def decoded(*records: tuple[int, bytes]) -> list[pa.Table]:
        offsets, given_values = zip(*records, strict=True)
        nulls = pa.nulls(len(records))
        columns = [pa.repeat(0, len(records)), pa.array(offsets), nulls, nulls, pa.array(given_values, pa.binary())]
        found = decoder.decode(pa.table([one.cast(field.type) for one, field in zip(columns, RAW, strict=True)], RAW))
        return [found.good, found.replaced]

    many = decoded(*enumerate(values))
    few = [pa.concat_tables(one) for one in zip(*map(decoded, enumerate(values)), strict=True)]
    assert many == few
    assert many[1].num_rows > SMALL_BATCH // 4


@pytest.mark.parametrize("copies", [1, SMALL_BATCH])
@pytest.mark.parametrize(
    ("before", "rows", "reason"),
    [
        (None, ["a", "b"], None),
        ({"id": 1, "email": "a", "team": "x"}, ["b"], None),
        ({"id": 1, "email": "a", "team": 5}, ["b"], None),
        ({"id": 1, "email": None, "team": None}, ["a", "b"], None),
        ({"id": 1}, ["a"], "missing: before.email (of the row that is replaced); set REPLICA IDENTITY FULL"),
        ({"id": 1, "email": 5}, ["a"], "wrong type: before.email: 5 is not a string"),
        ("text", ["a"], "wrong type: before is not an object"),
        ({"id": 1, "email": "z" * 3000, "team": "x"}, ["a", "b"], None),
    ],
)
def test_the_row_before_is_taken_back_as_far_as_it_is_known(
    before: object, rows: list[str], reason: str | None, copies: int
) -> None:
    first = envelope("c", None, {"id": 1, "email": "a", "team": "x"}, T0)
    change = envelope("u", before, {"id": 1, "email": "b", "team": "x"}, T0 + 1)
    other = envelope("c", None, {"id": 2, "email": "c", "team": "y"}, T0)
    outputs = play(graph_of(EMAILS), [[(0, first), (0, change), *[(0, other)] * (copies - 1)]], "fire")
    found = applied(outputs, "to_email", ("email",))
    assert found == [(email,) for email in (*rows, *(["c"] if copies > 1 else []))]
    dead = [one for output in outputs for one in output["to_email"].dead.column("reason").to_pylist()]
    assert dead == ([] if reason is None else [reason])


@pytest.mark.parametrize(
    "host", ["memory", pytest.param("stream", marks=[pytest.mark.long, pytest.mark.spark, pytest.mark.service])]
)
def test_a_topic_of_changes(kafka: Kafka, topic: Callable[..., str], tmp_path: Path, host: HostName) -> None:
    database = Database(Random(7))
    name = topic(2)
    producer = Producer({"bootstrap.servers": kafka.servers})
    pipeline = graph(tmp_path, f'{{kafka: {{servers: "{kafka.servers}", topic: {name}, format: debezium}}}}')
    (tmp_path / "orders").mkdir()
    for _ in range(2):
        for partition in (0, 1):
            for value in database.changes("customers", partition, 30):
                producer.produce(name, value, key=b'{"id":1}', partition=partition)
            lines = [line(value) for value in database.changes("orders", partition, 10)]
            with (tmp_path / "orders" / f"partition-{partition}.jsonl").open("ab") as log:
                log.write(b"".join(one + b"\n" for one in lines))
        producer.flush(30)
        is_new = host == "memory"  # it has no checkpoint
        options = RunSettings(tmp_path / "checkpoint", host, until_end=True, max_records=17, fresh=is_new)
        launch(pipeline, options, lambda _: None, lambda _: None)
        with closing(sqlite3.connect(tmp_path / "shop.db")) as tables:
            assert tables.execute("SELECT id, name, country FROM customer ORDER BY 1").fetchall() == database.customers
            assert tables.execute("SELECT id, name FROM named ORDER BY 1").fetchall() == database.named
            assert tables.execute("SELECT id, total, orders FROM spent ORDER BY 1").fetchall() == database.spent
            assert tables.execute("SELECT count(*) FROM customer_dead").fetchall() == [(0,)]
            assert tables.execute("SELECT count(*) FROM customer_changes WHERE op = 'delete'").fetchone() > (0,)
