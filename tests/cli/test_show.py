"""`windrow show`: rows of the tables that a pipeline writes."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from windrow.cli import main

PIPELINE = """\
name: spend
source: {log: {path: spend}}
decode: {user: string, t: timestamp, amount: "decimal(12,2)", note: "string?"}
time: {field: t, delay: 0s}
key: user
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count(), mean: total / events, last: last(note)}
emit: {lateness: 0s}
sink: SINK
"""
COLUMNS = "window_start, window_end, user, total, events, mean, last, pane, revision"
GRAPH = """\
name: spend
sources:
  purchases:
    source: {log: {path: spend}}
    decode: {user: string, t: timestamp, amount: "decimal(12,2)", note: "string?"}
    time: {field: t, delay: 0s}
streams:
  bought: {from: purchases, select: [user, amount]}
sinks:
  spend: {from: bought, sink: {sqlite: {path: spend.db, table: spend}}}
  again: {from: bought, sink: {sqlite: {path: again.db, table: spend}}}
  third: {from: bought, sink: {sqlite: {path: spend.db, table: late}}}
"""
RECORDS = [
    ("ann", "10:00", "1.50", 'a, "b"'),
    ("bob", "10:01", "20.00", "2\nlines \u001b[31m"),
    ("zoë", "10:02", "3.00", None),
    ("ann", "10:07", "0.10", "東京"),
    ("late", "10:01", "9.00", None),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to work in, with a log and pipelines in it."""
    monkeypatch.chdir(tmp_path)
    Path("spend").mkdir()
    lines = [
        json.dumps({"user": user, "t": f"2026-03-02T{at}:00Z", "amount": amount, "note": note})
        for user, at, amount, note in RECORDS
    ]
    Path("spend/partition-0.jsonl").write_bytes("\n".join([*lines, ""]).encode() + b"\xff{\n")
    write("{sqlite: {path: spend.db, table: spend}}")
    Path("graph.yaml").write_text(GRAPH)


def write(sink: str) -> None:
    Path("pipeline.yaml").write_text(PIPELINE.replace("SINK", sink))


def ran(file: str = "pipeline.yaml") -> None:
    """Run the pipeline to the end of its log."""
    result = CliRunner().invoke(main, ["run", file, "--until-end", "--host", "memory"])
    assert result.exit_code == 0, result.output


def show(*words: str, file: str = "pipeline.yaml", code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["show", file, *words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    return result


def rows(*words: str, file: str = "pipeline.yaml") -> list[dict[str, Any]]:
    return [json.loads(line) for line in show(*words, "--json", file=file).stdout.splitlines()]


@pytest.fixture(params=["sqlite", "text", pytest.param("postgres", marks=pytest.mark.service)])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database that the pipeline writes to."""
    if request.param == "postgres":
        write(f'{{postgres: {{url: "{request.getfixturevalue("database")}", table: spend}}}}')
    elif request.param == "text":
        write("{sqlite: {path: spend.db, table: spend, decimals: text}}")
    return str(request.param)


@pytest.mark.usefixtures("kind")
def test_rows_are_the_same_from_every_database() -> None:
    ran()
    assert show().stdout.splitlines() == [
        "window_start          window_end            user  total  events  mean  last               pane     revision",
        '2026-03-02T10:00:00Z  2026-03-02T10:05:00Z  ann    1.50       1   1.5  a, "b"             on_time         0',
        "2026-03-02T10:00:00Z  2026-03-02T10:05:00Z  bob   20.00       1  20.0  2\\nlines \\x1b[31m  on_time         0",
        "2026-03-02T10:00:00Z  2026-03-02T10:05:00Z  zoë    3.00       1   3.0                     on_time         0",
        "2026-03-02T10:05:00Z  2026-03-02T10:10:00Z  ann    0.10       1   0.1  東京               on_time         0",
    ]


@pytest.mark.usefixtures("kind")
def test_values_are_of_the_types_of_their_columns() -> None:
    ran()
    first, *_ = rows()
    assert first == {
        "window_start": "2026-03-02T10:00:00Z",
        "window_end": "2026-03-02T10:05:00Z",
        "user": "ann",
        "total": "1.50",
        "events": 1,
        "mean": 1.5,
        "last": 'a, "b"',
        "pane": "on_time",
        "revision": 0,
    }
    assert rows("--where", "user=zoë")[0]["last"] is None
    # what it printed finds the row again
    for row in rows():
        for name, value in row.items():
            if value is not None:
                assert row in rows("--where", f"{name}={value}")
    written = list(csv.DictReader(show("--csv").stdout.splitlines(keepends=True)))
    assert written == [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows()]


@pytest.mark.usefixtures("kind")
def test_rows_are_chosen_and_ordered() -> None:
    ran()
    users = [row["user"] for row in rows("--order", "total:desc")]
    assert users == ["bob", "zoë", "ann", "ann"]
    assert [row["total"] for row in rows("--where", "user=ann", "--order", "window_start:desc")] == ["0.10", "1.50"]
    # a time zone, and what would be SQL
    assert len(rows("--where", "window_start=2026-03-02T12:00+02:00", "--where", "events=1")) == 3
    assert show("--where", "user=' OR 1=1 --").stdout == "spend has no matching rows\n"
    # nulls are the last in either direction, then the key decides
    assert [row["user"] for row in rows("--order", "last", "--order", "user:desc")][-1] == "zoë"
    assert [row["user"] for row in rows("--order", "last:desc")][-1] == "zoë"
    few = show("--limit", "1", "--where", "total=1.5")
    assert few.stdout.count("\n") == 2
    assert show("--limit", "1").stdout.endswith("... and 3 more rows: --limit shows more\n")
    assert show("--limit", "0", "--csv").stderr == "... and 4 more rows: --limit shows more\n"
    assert "more" not in show("--limit", str(2**64)).output


@pytest.mark.usefixtures("kind")
def test_tables_beside_the_table() -> None:
    ran()
    assert [row["op"] for row in rows("changes")] == ["insert"] * 4
    assert rows("changes") == rows("spend_changes")
    (late,) = rows("late", "--where", "offset=4")
    assert (late["source"], late["event_time"]) == ("spend", "2026-03-02T10:01:00Z")
    assert json.loads(late["record"])["user"] == "late"
    (dead,) = rows("dead")
    assert (dead["partition"], dead["offset"], dead["log_time"], dead["raw"]) == (0, 5, None, "\\xff{")
    assert [row["reason"] for row in rows("clocks")] == ["end"]


@pytest.mark.usefixtures("kind")
def test_rows_are_chosen_by_key_window_time_and_reason() -> None:
    ran()
    assert [row["total"] for row in rows("--key", "user=ann", "--window", "2026-03-02T10:04:59.999999")] == ["1.50"]
    assert [row["total"] for row in rows("--key", "user=ann", "--since", "2026-03-02T10:05")] == ["0.10"]
    assert len(rows("changes", "--window", "2026-03-02T10:00")) == 3
    assert len(rows("late", "--key", "user=late", "--key", "amount=9.00", "--reason", "exp")) == 1
    assert show("late", "--key", "user=ann").stdout == "spend_late has no matching rows\n"
    assert len(rows("late", "--since", "2026-03-02T10:01")) == 1
    assert rows("late", "--since", "2026-03-02T10:01:00.000001") == []
    assert len(rows("dead", "--reason", "malformed")) == 1
    assert rows("dead", "--reason", "alformed") == []
    assert rows("dead", "--since", "2026-01-01") == []  # it has no log timestamp
    assert show("dead", "--reason", "m", "--limit", "0", "--csv").stderr.startswith("... and 1 more row")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dead", "--window", "2026-01-01"], "--window: table 'spend_dead' has no column 'window_start'"),
        (["--reason", "x"], "--reason: table 'spend' has no column 'reason'"),
        (["--key", "ann"], "--key 'ann' is not a condition: write --key FIELD=VALUE"),
        (["--key", "name=x"], f"--key 'name=x': table 'spend' has no column 'name'; it has {COLUMNS}"),
        (["late", "--key", "x"], "--key 'x' is not a condition: write --key FIELD=VALUE"),
        (["--where", "name=x"], f"--where 'name=x': table 'spend' has no column 'name'; it has {COLUMNS}"),
        (["--order", "name:desc"], f"--order 'name:desc': table 'spend' has no column 'name'; it has {COLUMNS}"),
        (["--order", "total:down"], "has no column 'total:down'"),
        (["--where", "user"], "--where 'user' is not a condition: write --where COLUMN=VALUE"),
        (["--where", "events=1.5"], "--where 'events=1.5': column 'events' is a whole number of 64 bits"),
        (["--where", f"events={2**63}"], "is a whole number of 64 bits"),
        (["--where", "revision=5000000000"], "is a whole number of 32 bits"),
        (["--where", "total=1e400"], "column 'total' is a decimal(38,2)"),
        (["--where", "total=1.505"], "column 'total' is a decimal(38,2)"),
        (["--where", "mean=nan"], "column 'mean' is a number"),
        (["--where", "window_start=noon"], "is a time, such as 2026-01-31 or 2026-01-31T10:05 (UTC)"),
        (["--where", "user=\udcff"], "column 'user' is text in UTF-8"),
        (["dead", "--where", "raw=x"], "column 'raw' holds bytes, which cannot be compared"),
        (["--json", "--csv"], "give --json or --csv, not both"),
        (["nothing"], "the pipeline writes no table 'nothing': choose one of spend, spend_changes, spend_late"),
    ],
)
def test_what_is_refused(words: list[str], said: str) -> None:
    ran()
    assert said in show(*words, code=2).stderr


def test_a_table_that_is_not_there(database: str) -> None:
    assert "there is no database spend.db: run the pipeline first" in show(code=2).stderr
    with closing(sqlite3.connect("spend.db")) as db:
        db.execute("CREATE TABLE other (x)")
    assert "there is no table 'spend' in spend.db: no run has written it" in show(code=2).stderr
    with closing(sqlite3.connect("spend.db")) as db:
        db.execute("CREATE TABLE spend (x)")
    assert "table 'spend' in spend.db has no column 'window_start'" in show(code=2).stderr
    write(f'{{postgres: {{url: "{database}", table: spend}}}}')
    assert "no run has written it" in show("late", code=2).stderr


def test_columns_that_no_run_has_written_yet_are_left_out() -> None:
    ran()
    text = Path("pipeline.yaml").read_text()
    Path("pipeline.yaml").write_text(text.replace("events: count()", "events: count(), most: max(amount)"))
    assert "most" not in rows()[0]
    assert "has no column 'most'" in show("--where", "most=1", code=2).stderr


def test_several_sinks() -> None:
    ran("graph.yaml")
    assert "the pipeline writes 3 tables: choose one of spend, spend, late" in show(file="graph.yaml", code=2).stderr
    # `spend` is a sink, too, and the table of another
    with closing(sqlite3.connect("again.db")) as db, db:
        db.execute("DELETE FROM spend WHERE user = 'bob'")
    assert [len(rows(sink, file="graph.yaml")) for sink in ("spend", "again", "third", "late")] == [5, 4, 5, 5]
    assert [len(rows(f"{name}_dead", file="graph.yaml")) for name in ("spend", "again", "third", "late")] == [1] * 4
    Path("graph.yaml").write_text(GRAPH.replace("  spend: {from: bought", "  first: {from: bought"))
    refused = show("spend", file="graph.yaml", code=2).stderr
    assert (
        "several databases have a table 'spend': give the name of its sink instead, one of first, again, third"
        in refused
    )
    assert len(rows("first", file="graph.yaml")) == 5


def test_a_run_that_is_writing_is_neither_waited_for_nor_stopped() -> None:
    ran()
    with closing(sqlite3.connect("spend.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM spend")
        assert len(rows()) == 4
        db.execute("COMMIT")
    assert show().stdout == "spend has no rows\n"


@pytest.mark.usefixtures("kind")
def test_names_are_names_whatever_is_in_them() -> None:
    text = Path("pipeline.yaml").read_text()
    Path("pipeline.yaml").write_text(text.replace("key: user", """key: [{'a=b" $1 ?:desc': user}]"""))
    ran()
    assert [row["total"] for row in rows("--where", 'a=b" $1 ?:desc=ann')] == ["1.50", "0.10"]
    assert [row["total"] for row in rows("--order", 'a=b" $1 ?:desc:desc', "--limit", "2")] == ["3.00", "20.00"]
    assert rows("--order", 'a=b" $1 ?:desc', "--limit", "1")[0]["total"] == "1.50"


def test_a_table_as_of_an_event_time_has_the_records_up_to_it() -> None:
    """The late record counts, as it is of that time; no run has written the table."""
    found = rows("--as-of", "2026-03-02T10:01")
    assert [(row["user"], row["total"]) for row in found] == [("ann", "1.50"), ("bob", "20.00")]
    assert not Path("spend.db").exists()
    ran()
    assert rows("--as-of", "2026-03-03") == rows()
    again = rows("again", "--as-of", "2026-03-02T10:01", file="graph.yaml")
    assert [row["user"] for row in again] == ["ann", "bob", "late"]
    assert show("--as-of", "2026-03-03").stderr == ""
    CliRunner().invoke(main, ["log", "trim", "spend", "--before", "0=1", "--force"])
    assert "warning: partition 0 begins at offset 1: the table lacks" in show("--as-of", "2026-03-03").stderr
    assert "give --as-of or --why, not both" in show("--as-of", "2026-03-02", "--why", code=2).stderr
