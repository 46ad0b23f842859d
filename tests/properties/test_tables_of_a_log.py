"""A stream with the changes of one table is what a source of this table alone would be, however the log is cut."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

import windrow as wr
from windrow.authoring.pipeline_file import read_document

COLUMNS = {"orders": "id: long, total: long", "lines": "id: string, n: 'long?', total: string"}
"""The same name has another type in the other table."""
VALUES = {"orders": st.sampled_from([1, 2, "x"]), "lines": st.sampled_from(["1", "2", 3])}
ENVELOPES = st.sampled_from(["plain", "plain", "plain", "wrapped", "cut", "timeless", "odd"])
Change = tuple[str, str, Any, int, str]
"""The table, the operation, the id of the row, its value, and what is wrong with the record."""


def changes(table: str) -> st.SearchStrategy[Change]:
    return st.tuples(st.just(table), st.sampled_from("ccuudt"), VALUES[table], st.integers(0, 3), ENVELOPES)


LOGS = st.lists(st.one_of(changes("orders"), changes("lines"), changes("lines")), min_size=1, max_size=30)


def line(number: int, change: Change) -> str:
    table, op, id_, value, kind = change
    row = {"id": id_, "n": value, "total": value if table == "orders" else str(value)}
    source = {"schema": "public", "table": table} | ({} if kind == "timeless" else {"ts_ms": 1_000 * number})
    envelope: dict[str, Any] = {"before": None, "after": row, "source": source, "op": op}
    if op == "d":
        envelope |= {"before": row, "after": None}
    if op == "t":
        envelope["after"] = None
    row |= {"more": "\ud800"} if kind == "odd" else {}
    text = json.dumps({"payload": envelope} if kind == "wrapped" else envelope)
    return text[:-9] if kind == "cut" else text


def run(folder: Path, tables: Sequence[str], columns: str, streams: str, max_records: int) -> dict[str, list[Any]]:
    """Return the rows and dead letters of each table, without places."""
    sinks = "".join(
        f"  to_{one}: {{from: {one}, sink: {{sqlite: {{path: {folder}/a.db, table: t_{one}}}}}}}\n" for one in tables
    )
    text = f"""
name: shop
sources:
  shop:
    source: {{log: {{path: {folder}, format: debezium}}}}
    decode: {{{columns}}}
    time: {{field: at, delay: 0s}}
streams:
{streams}
sinks:
{sinks}"""
    pipeline = wr.Pipeline(read_document(text, "shop.yaml").pipeline)
    pipeline.run("memory", fresh=True, max_records=max_records, progress=False, warn_above=1.0)
    with closing(sqlite3.connect(folder / "a.db")) as db:
        found: dict[str, list[Any]] = {}
        for table in tables:
            cursor = db.execute(f"SELECT * FROM t_{table} ORDER BY id")
            names = [name for name, *_ in cursor.description]
            found[table] = [dict(zip(names, row, strict=True)) for row in cursor]
        found["dead"] = db.execute(f"SELECT raw, reason FROM t_{tables[0]}_dead ORDER BY raw, reason").fetchall()
    return found


AT = "at: {type: timestamp_millis, path: source.ts_ms}"


@examples(8)
@given(LOGS, st.sampled_from([1, 3, 100]))
def test_changes_of_a_table_are_those_of_a_log_of_the_table(log: list[Change], max_records: int) -> None:
    lines = [line(number, change) for number, change in enumerate(log)]
    with tempfile.TemporaryDirectory() as made:
        both = Path(made, "both")
        both.mkdir()
        (both / "partition-0.jsonl").write_text("".join(f"{one}\n" for one in lines))
        streams = "".join(
            f"  {table}_changes: {{from: shop, changes: {{of: {of}, decode: {{{columns}}}}}}}\n"
            f"  {table}: {{from: {table}_changes, table: {{key: id}}}}\n"
            for (table, columns), of in zip(COLUMNS.items(), ("orders", "public.lines"), strict=True)
        )
        found = run(both, list(COLUMNS), AT, streams, max_records)
        dead = list[Any]()
        for table, columns in COLUMNS.items():
            alone = Path(made, table)
            alone.mkdir()
            own = [one for one, change in zip(lines, log, strict=True) if change[0] == table]
            (alone / "partition-0.jsonl").write_text("".join(f"{one}\n" for one in own))
            expected = run(alone, [table], f"{AT}, {columns}", f"  {table}: {{from: shop, table: {{key: id}}}}", 100)
            assert [strip(row) for row in found[table]] == [strip(row) for row in expected[table]]
            dead += expected["dead"]
        assert found["dead"] == sorted(dead)


def strip(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("id", "total", "n", "at") if name in row}
