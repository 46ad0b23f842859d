"""A table that was changed by hand is never the same as its replay, and the difference is named."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from tests.graphs import as_graph, parse_short
from tests.short_forms import Pipeline

import windrow as wr
from windrow.client.compare import Diff
from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.duckdb.connector import DuckDBSink
from windrow.errors import SinkError
from windrow.model import Sink, SqliteSink

YAML = """\
name: kinds
source: {{log: {{path: "{folder}/log"}}}}
decode: {{user: string, t: timestamp, v: double, w: string, d: "decimal(12,2)", o: "double?"}}
time: {{field: t, delay: 1m}}
key: user
window: {{tumbling: 5m}}
aggregate: {{n: count(), mean: avg(v), last: last(w), total: sum(d), top: max(o)}}
emit: {{lateness: 10m}}
sink: {{sqlite: {{path: "{folder}/x.db", table: x}}}}
"""
ROWS = 40
COLUMNS = ("user", "n", "mean", "last", "total", "top")
STORES: dict[str, Callable[[Path], Sink]] = {
    "sqlite": lambda folder: SqliteSink(str(folder / "store" / "x.db"), "x"),
    "sqlite_text": lambda folder: SqliteSink(str(folder / "store" / "x.db"), "x", decimals="text"),
    "duckdb": lambda folder: DuckDBSink(str(folder / "store" / "x.duckdb"), "x"),
    "delta": lambda folder: DeltaSink(str(folder / "store" / "x.delta"), "x"),
}


@pytest.fixture(scope="module", params=list(STORES))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Pipeline]:
    """A table and its replay in a store, made once."""
    folder = tmp_path_factory.mktemp(request.param)
    log = folder / "log"
    log.mkdir()
    lines = (
        f'{{"user": "u{n % 7}", "t": "2026-01-01T10:{n:02}:30Z", "v": {n}.5, "w": "w{n}", "d": {n}.25}}'
        for n in range(ROWS)
    )
    (log / "partition-0.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "store").mkdir()
    pipeline = replace(parse_short(YAML.format(folder=folder)), sink=STORES[request.param](folder))
    wr.Pipeline(as_graph(pipeline)).run(host="memory")
    wr.Pipeline(as_graph(pipeline)).replay(host="memory")
    return request.param, folder, pipeline


def again(written: tuple[str, Path, Pipeline], to: Path) -> Pipeline:
    """A copy of the store, and the pipeline that writes there."""
    _, folder, pipeline = written
    shutil.copytree(folder / "store", to / "store")
    return replace(pipeline, sink=STORES[written[0]](to))


def test_a_table_that_nobody_changed_is_the_same(written: tuple[str, Path, Pipeline]) -> None:
    found = wr.diff(wr.Pipeline(as_graph(written[2])))
    assert found.same
    assert found.plain()["here"]["rows"] == ROWS
    assert found.plain()["here"]["repeated"] == 0


def check(written: tuple[str, Path, Pipeline], folder: Path, seed: int) -> None:
    """Change the table in a random place, and compare."""
    pipeline, chance = again(written, folder), random.Random(seed)
    tamper = _tamper_delta if written[0] == "delta" else _tamper_sql
    what, key = tamper(pipeline, chance)
    found = wr.diff(wr.Pipeline(as_graph(pipeline)), limit=100)
    plain = found.plain()
    assert not found.same, what
    assert plain["same"] is False
    assert str(found).endswith("not the same")
    if key is None:
        assert "columns" in str(found), what
    else:
        assert any(key in map(str, one["key"].values()) for one in plain["first"]), what
        assert key in str(found)


@pytest.mark.parametrize("seed", range(12))
def test_a_table_changed_by_hand_is_not(written: tuple[str, Path, Pipeline], tmp_path: Path, seed: int) -> None:
    check(written, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 1100, 100))
def test_many_tables_changed_by_hand_are_not(written: tuple[str, Path, Pipeline], tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 100):
        check(written, tmp_path / str(seed), seed)


Tampered = tuple[str, str | None]
"""What was done, and the key's field that the comparison must name; None for a column."""

LITERALS = ("1.5", "'2'", "'abc'", "x'00ff'", "-7", "9e999", "9223372036854775807", "'NaN'", "''", "0.5")
"""What is put into cells of SQLite, which takes any of them in any column."""
OTHERS = {
    "n": ("-7", "9223372036854775807"),
    "mean": ("'NaN'::double", "'inf'::double", "0.125"),
    "last": ("''", "'abc'"),
    "total": ("-7", "0.01"),
    "user": ("'abc'", "''"),
}
TYPES = {"n": "DOUBLE", "mean": "VARCHAR", "last": "BLOB", "total": "DOUBLE"}


def _tamper_sql(pipeline: Pipeline, chance: random.Random) -> Tampered:
    sink = pipeline.sink
    assert isinstance(sink, SqliteSink | DuckDBSink)
    is_sqlite = isinstance(sink, SqliteSink)
    db: Any = sqlite3.connect(sink.path) if is_sqlite else duckdb.connect(sink.path)
    with closing(db):
        rows = db.execute('SELECT "user", window_start FROM x ORDER BY 2, 1').fetchall()
        user, start = chance.choice(rows)
        at = (user, start)
        where = '"user" = ? AND window_start = ?'
        column = chance.choice(COLUMNS)
        key: str | None = user
        match chance.choice(("cell", "cell", "cell", "cell", "remove", "double", "add", "type", "time")):
            case "cell":
                value = "7.25" if column == "top" else chance.choice(LITERALS if is_sqlite else OTHERS[column])
                what = f'UPDATE x SET "{column}" = {value} WHERE {where}'
                before = db.execute(f'SELECT "{column}" FROM x WHERE {where}', at).fetchone()[0]
                db.execute(what, at)
                after = db.execute(f'SELECT "{column}" FROM x WHERE "user" = ? AND window_start = ?', at).fetchone()
                if after is not None and repr(after[0]) == repr(before):
                    db.execute(f'UPDATE x SET "{column}" = -9 WHERE {where}', at)
            case "remove":
                what = f"DELETE FROM x WHERE {where}"
                db.execute(what, at)
            case "double" if not is_sqlite:
                what = f"INSERT INTO x SELECT * FROM x WHERE {where}"
                db.execute(what, at)
            case "double":
                # a table without its primary key, as a restored copy may be
                db.execute("CREATE TABLE copy AS SELECT * FROM x")
                what = f"INSERT INTO copy SELECT * FROM x WHERE {where}"
                db.execute(what, at)
                db.execute("DROP TABLE x")
                db.execute("ALTER TABLE copy RENAME TO x")
            case "type" if not is_sqlite and column in TYPES:
                what = f"ALTER TABLE x ALTER {column} TYPE {TYPES[column]}"
                db.execute(what)
                value = {"DOUBLE": "1.5", "VARCHAR": "'abc'", "BLOB": "'\\xFF'::BLOB"}[TYPES[column]]
                db.execute(f"UPDATE x SET {column} = {value} WHERE {where}", at)
            case "time" if is_sqlite:
                value = chance.choice(
                    ("'soon'", "window_start || '.000'", "'2026-01-01T10:00:00Z'", "x'00'", "5", "'NaT'")
                )
                what = f"UPDATE x SET window_start = {value} WHERE {where}"
                db.execute(what, at)
            case _:
                what, key = "ALTER TABLE x ADD COLUMN extra INTEGER", None
                db.execute(what)
        db.commit()
    return what, key


def _tamper_delta(pipeline: Pipeline, chance: random.Random) -> Tampered:
    table = deltalake.DeltaTable(f"{pipeline.sink.place}/{pipeline.sink.table}")
    rows = pa.table(table.to_pyarrow_table())
    number = chance.randrange(rows.num_rows)
    user = rows["user"][number].as_py()
    at = f"\"user\" = '{user}' AND \"last\" = '{rows['last'][number].as_py()}'"
    match chance.choice(("cell", "cell", "remove", "double", "add")):
        case "cell":
            column = chance.choice(("n", "mean", "last", "total"))
            value = chance.choice(
                {"n": ("-7",), "mean": ("0.125",), "last": ("''", "'abc'"), "total": ("0.01",)}[column]
            )
            table.update(updates={column: value}, predicate=at)
            return f"{column} = {value}", user
        case "remove":
            table.delete(at)
            return "remove", user
        case "double":
            deltalake.write_deltalake(table, rows.slice(number, 1), mode="append")
            return "double", user
        case _:
            added = rows.append_column("extra", pa.nulls(rows.num_rows, pa.int64()))
            deltalake.write_deltalake(table, added, mode="overwrite", schema_mode="overwrite")
            return "add", None


def tampered(written: tuple[str, Path, Pipeline], folder: Path, *statements: str) -> tuple[Pipeline, Diff]:
    """A copy of an SQLite table after some statements, and its comparison."""
    pipeline = again(written, folder)
    with closing(sqlite3.connect(pipeline.sink.place)) as db, db:
        for statement in statements:
            db.execute(statement)
    return pipeline, wr.diff(wr.Pipeline(as_graph(pipeline)))


@pytest.mark.parametrize("written", ["sqlite"], indirect=True)
def test_values_are_shown_as_they_are_stored(written: tuple[str, Path, Pipeline], tmp_path: Path) -> None:
    first = "WHERE window_start = '2026-01-01 10:00:00' AND user = 'u0'"
    pipeline, found = tampered(written, tmp_path, f"UPDATE x SET n = 1.5, mean = 'abc', last = x'ff' {first}")
    [difference] = found.plain()["first"]
    assert difference["kind"] == "differs"
    assert difference["here"] == {"n": "1.5", "mean": "'abc'", "last": "x'ff'", "total": "0.25", "top": None}
    assert difference["there"] == {"n": 1, "mean": 0.5, "last": "w0", "total": "0.25", "top": None}
    assert "u0: n 1.5 and 1, mean 'abc' and 0.5, last x'ff' and w0\n" in str(found)
    with pytest.raises(SinkError, match=r"column 'n' of table 'x' holds 1\.5, which is not a whole number"):
        wr.read_table(wr.Pipeline(as_graph(pipeline)))


@pytest.mark.parametrize("written", ["sqlite", "sqlite_text"], indirect=True)
@pytest.mark.parametrize("column", ["last", "n", "total", "mean", "user", "window_start"])
def test_a_text_that_is_not_utf8_is_a_difference(
    written: tuple[str, Path, Pipeline], tmp_path: Path, column: str
) -> None:
    first = "WHERE window_start = '2026-01-01 10:00:00' AND user = 'u0'"
    value = "CAST(x'61ff' AS TEXT)"
    pipeline, found = tampered(written, tmp_path, f"UPDATE x SET {column} = {value} {first}")
    assert not found.same
    shown = [(one["here"] or {}).get(column, one["key"].get(column)) for one in found.plain()["first"]]
    assert value in shown
    with pytest.raises(
        SinkError, match=rf"column '{column}' of table 'x' holds CAST\(x'61ff' AS TEXT\), which is not "
    ):
        wr.read_table(wr.Pipeline(as_graph(pipeline)))


@pytest.mark.parametrize("written", ["sqlite"], indirect=True)
@pytest.mark.parametrize("zone", ["Z", "+00:00", "-07:00", "+07", ".5+00:00"])
def test_a_time_with_a_zone_is_a_difference_without_a_warning(
    written: tuple[str, Path, Pipeline], tmp_path: Path, zone: str
) -> None:
    _, found = tampered(written, tmp_path, f"UPDATE x SET window_end = window_end || '{zone}' WHERE user = 'u0'")
    assert not found.same
    assert f"'2026-01-01 10:05:00{zone}'" in str(found.plain())


@pytest.mark.parametrize("written", ["sqlite"], indirect=True)
def test_rows_doubled_in_both_tables_are_named_and_not_the_same(
    written: tuple[str, Path, Pipeline], tmp_path: Path
) -> None:
    double = [
        statement.format(table)
        for table in ("x", "x_shadow")
        for statement in (
            "CREATE TABLE copy AS SELECT * FROM {}",
            "INSERT INTO copy SELECT * FROM {} WHERE user = 'u0'",
            "DROP TABLE {}",
            "ALTER TABLE copy RENAME TO {}",
        )
    ]
    _, found = tampered(written, tmp_path, *double)
    plain = found.plain()
    assert not found.same
    assert (plain["same"], plain["here"]["only"], plain["there"]["only"], plain["different"]) == (False, 0, 0, 0)
    assert plain["here"]["repeated"] == plain["there"]["repeated"] == 6
    for table in ("x", "x_shadow"):
        said = next(line for line in str(found).splitlines() if line.startswith(f"{table} has more than one row of a"))
        key, values = said.split(" key, first ")[1].split(" u0: ")
        assert key == "[2026-01-01 10:00:00, 2026-01-01 10:05:00)"
        one, other = values.split(" and ")
        assert one == other
        assert one.startswith("total ") or ", total " in one
    assert str(found).endswith("not the same")
