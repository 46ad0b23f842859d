"""Tables of Debezium's changes are the rows of the database: what a replay of the changes in plain Python gives."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from windrow.api.checks import validate
from windrow.api.pipeline_file import read_document
from windrow.api.printing import to_python_file, to_text, to_yaml
from windrow.errors import PipelineError
from windrow.hosts.launch import HostName, Options, launch
from windrow.hosts.memory import play
from windrow.model import Graph
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
        "warning streams.customer.table: has no `deleted`, and is made of some of the changes of rows",
    ),
    (
        "spent: {from: bill, key: id",
        "spent: {from: orders, key: no",
        "warning streams.spent.from: each change of a row counts here, also an update or a deletion",
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
    assert "changes of rows by Debezium" in to_text(given)
    assert "the record of a deletion removes the row" in to_text(given)


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
        options = Options(tmp_path / "checkpoint", host, until_end=True, max_records=17, fresh=is_new)
        launch(pipeline, options, lambda _: None, lambda _: None)
        with closing(sqlite3.connect(tmp_path / "shop.db")) as tables:
            assert tables.execute("SELECT id, name, country FROM customer ORDER BY 1").fetchall() == database.customers
            assert tables.execute("SELECT id, name FROM named ORDER BY 1").fetchall() == database.named
            assert tables.execute("SELECT id, total, orders FROM spent ORDER BY 1").fetchall() == database.spent
            assert tables.execute("SELECT count(*) FROM customer_dead").fetchall() == [(0,)]
            assert tables.execute("SELECT count(*) FROM customer_changes WHERE op = 'delete'").fetchone() > (0,)
