"""Rows that an SQLite table cannot hold are dead letters, and nothing is left of them in the table."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from tests.contracts.steps import FIELDS, RUN, change, pipeline, step
from tests.examples import examples
from tests.graphs import as_graph, sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors.database import Condition
from windrow.connectors.open_sinks import open_database, open_sinks
from windrow.connectors.sqlite.tables import SqliteTables
from windrow.connectors.tables import layout
from windrow.engine.schema import MICROS
from windrow.model import (
    Aggregate,
    Avg,
    DecimalType,
    Decode,
    Emit,
    Field,
    LogSource,
    LongType,
    Max,
    SqliteSink,
    Sum,
)
from windrow.runtime.memory import MemoryRun
from windrow.telemetry.reports import StepReport

WIDE = Decimal("12345678901234567.89")
"""A decimal that NUMERIC would round."""
WHY = (
    "out of range: total: 12345678901234567.89: SQLite's NUMERIC keeps 15 digits: let the sink have `decimals: text` "
    "in a new table"
)
Mode = Literal["accumulate", "retract"]


def model_of(path: Path, mode: Mode = "accumulate") -> Pipeline:
    return pipeline(
        SqliteSink(str(path), "spend"), aggregates=(Aggregate("total", Sum("amount")),), emit=Emit(mode=mode)
    )


def query(model: Pipeline, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(model.sink.place, isolation_level=None)) as db:
        return db.execute(sql).fetchall()


def committed(model: Pipeline, *steps: list[list[Any]]) -> list[int]:
    """Commit steps; return how many dead letters each has."""
    sink = SqliteTables(sink_spec_of(model, "sums"))
    sink.open(RUN)
    refused = [sink.commit(epoch, step(model, rows))[0].num_rows for epoch, rows in enumerate(steps)]
    sink.close()
    return refused


def test_a_row_that_numeric_would_change_is_a_dead_letter_and_the_others_are_there(tmp_path: Path) -> None:
    model = model_of(tmp_path / "a.db")
    assert committed(model, [change("insert", 0, "A", Decimal(1)), change("insert", 0, "B", WIDE)]) == [1]
    assert query(model, "SELECT user, total FROM spend") == [("A", 1)]
    assert query(model, "SELECT user, total FROM spend_changes") == [("A", 1)]
    assert query(model, 'SELECT source, "partition", "offset", log_time, reason FROM spend_dead') == [
        (
            "sums",
            None,
            None,
            None,
            f"{WHY}: at window 2026-01-01T00:00:00Z to 2026-01-01T00:05:00Z, user=B",
        )
    ]
    assert [json.loads(raw) for (raw,) in query(model, "SELECT raw FROM spend_dead")] == [
        {
            "window_start": "2026-01-01T00:00:00Z",
            "window_end": "2026-01-01T00:05:00Z",
            "user": "B",
            "total": "12345678901234567.89",
        }
    ]


def test_the_earlier_revision_of_a_row_that_does_not_fit_is_taken_back(tmp_path: Path) -> None:
    model = model_of(tmp_path / "a.db")
    later = change("update_after", 0, "A", WIDE, pane="late", revision=1)
    assert committed(model, [change("insert", 0, "A", Decimal(1))], [later]) == [0, 1]
    assert query(model, "SELECT * FROM spend") == []
    assert query(model, "SELECT op, pane, revision, total FROM spend_changes") == [
        ("insert", "on_time", 0, 1),
        ("delete", "late", 1, 1),
    ]


def test_a_run_counts_the_rows_that_did_not_fit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    amounts = {"A": ["1"], "B": ["9999999999.99", "9999999999.98", "9999999999.98"]}
    rows = [{"user": user, "t": 0, "amount": one} for user, those in amounts.items() for one in those]
    (log / "partition-0.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    # a mean has six digits more
    model = replace(
        model_of(tmp_path / "a.db"), source=LogSource(str(log)), aggregates=(Aggregate("mean", Avg("amount")),)
    )
    reports: list[StepReport] = []
    MemoryRun(as_graph(model), open_sinks(as_graph(model)), None).run(reports.append)
    assert sum(report.rejected for report in reports) == 1
    assert [report.dead_reasons for report in reports if report.rejected] == [{"out of range: mean": 1}]
    assert query(model, "SELECT user, mean FROM spend") == [("A", 1)]
    assert query(model, "SELECT source, count(*) FROM spend_dead") == [("spend", 1)]


moves = st.lists(
    st.tuples(st.sampled_from("AB"), st.sampled_from([Decimal(1), Decimal(2), WIDE, WIDE + 1, None])), max_size=12
)


def changelog_of(moves: list[tuple[str, Decimal | None]], mode: Mode) -> list[list[Any]]:
    """The changelog in which users get these sums, one after another; None takes the row back."""
    now: dict[str, tuple[int, Decimal]] = {}
    revisions: dict[str, int] = {}
    rows = []
    for user, total in moves:
        before, revision = now.pop(user, None), revisions.get(user, -1) + 1
        if total is None:
            if before is not None:
                rows.append(change("delete", 0, user, before[1], pane="late", revision=before[0] + 1))
                revisions[user] += 1
            continue
        if before is not None and mode == "retract":
            rows.append(change("update_before", 0, user, before[1], pane="late", revision=before[0]))
        op = "insert" if before is None else "update_after"
        rows.append(change(op, 0, user, total, pane="late", revision=revision))
        now[user], revisions[user] = (revision, total), revision
    return rows


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=moves, cut=st.integers(0, 12), mode=st.sampled_from(["accumulate", "retract"]))
@example(moves=[("A", Decimal(1)), ("A", WIDE), ("A", Decimal(2))], cut=1, mode="retract")
def test_the_changelog_is_the_same_in_every_cut_and_makes_the_table(
    tmp_path: Path, moves: list[tuple[str, Decimal | None]], cut: int, mode: Mode
) -> None:
    rows = changelog_of(moves, mode)
    found = []
    for number, steps in enumerate(([rows], [rows[:cut], rows[cut:]], [[row] for row in rows])):
        if mode == "retract" and any(one and one[-1][0] == "update_before" for one in steps):
            continue  # both halves of an update are in one step
        path = tmp_path / f"{number}.db"
        path.unlink(missing_ok=True)
        model = model_of(path, mode)
        refused = committed(model, *steps)
        sql = "SELECT op, revision, user, total FROM spend_changes ORDER BY epoch, seq"
        found.append((query(model, sql), query(model, "SELECT user, total FROM spend ORDER BY user"), sum(refused)))
    changes, table, refused_rows = found[0]
    assert all(one == found[0] for one in found)
    assert refused_rows == sum(row[0] in {"insert", "update_after"} and row[-1] >= WIDE for row in rows)
    last = dict(moves)
    assert table == [(user, last[user]) for user in sorted(last) if last[user] in {1, 2}]
    here: dict[str, Any] = {}
    for op, _, user, total in changes:
        if op in {"update_before", "delete"}:
            assert here[user] == total
        if op == "insert":
            assert user not in here
        if op == "delete":
            del here[user]
        elif op != "update_before":
            here[user] = total
    assert sorted(here.items()) == table


SUMS = [2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**19 - 1, 10**37, 7, -1, 0]
"""Sums of longs, some of which are no 64-bit integers."""


def sums_of(path: Path, **more: Any) -> Pipeline:  # noqa: ANN401 - any part of a sink
    fields = (*FIELDS, Field("n", LongType()), Field("d", DecimalType(38, 0)))
    aggregates = (Aggregate("total", Sum("n")), Aggregate("most", Max("d")))
    return pipeline(SqliteSink(str(path), "spend", **more), aggregates=aggregates, decode=Decode(fields))


def test_sums_of_longs_are_integers_and_text_where_they_are_wider(tmp_path: Path) -> None:
    model = sums_of(tmp_path / "a.db")
    rows = [change("insert", 0, f"u{at}", Decimal(total), Decimal(-total)) for at, total in enumerate(SUMS)]
    assert committed(model, rows) == [0]
    stored = query(model, "SELECT total, typeof(total), typeof(most) FROM spend ORDER BY user")
    assert [int(total) for total, _, _ in stored] == SUMS
    assert [kind for _, kind, _ in stored] == ["integer" if -(2**63) <= total < 2**63 else "text" for total in SUMS]
    assert [kind for _, _, kind in stored] == ["integer" if -(2**63) <= -total < 2**63 else "text" for total in SUMS]
    # and are read as numbers, whatever they are stored as
    table = layout(sink_spec_of(model)).result
    with open_database(model.sink).snapshot() as snapshot:
        (found,) = snapshot.rows(table, ["total"])
        assert found["total"].to_pylist() == sorted(map(Decimal, SUMS))
        for operator, kept in (("=", 1), ("<", 7), (">", 1)):
            assert snapshot.count(table, [Condition("total", operator, Decimal(10**19 - 1))]) == kept  # type: ignore[arg-type]
        assert found.schema.field("window_start").type == MICROS


def test_a_table_of_an_earlier_version_keeps_its_columns_and_lacks_what_they_cannot_hold(tmp_path: Path) -> None:
    model = sums_of(tmp_path / "a.db")
    assert committed(model) == []
    for table in ("spend", "spend_changes"):
        (sql,) = query(model, f"SELECT sql FROM sqlite_master WHERE name = '{table}'")[0]
        query(model, f"DROP TABLE {table}")
        query(model, sql.replace('"total"', '"total" NUMERIC').replace('"most"', '"most" NUMERIC'))
    rows = [change("insert", 0, f"u{at}", Decimal(total), Decimal(1)) for at, total in enumerate(SUMS)]
    assert committed(model, rows) == [3]
    # 1e37 is exact in a double with 15 digits
    assert [int(Decimal(str(total))) for (total,) in query(model, "SELECT total FROM spend ORDER BY user")] == [
        total for total in SUMS if -(2**63) <= total < 2**63 or total == 10**37
    ]


@pytest.mark.parametrize("decimals", ["numeric", "text"])
def test_a_sum_that_is_a_key_orders_as_a_number(tmp_path: Path, decimals: Literal["numeric", "text"]) -> None:
    model = replace(sums_of(tmp_path / "a.db", decimals=decimals), key=("d",), aggregates=(Aggregate("n", Max("n")),))
    assert committed(model, [change("insert", 0, Decimal(one), 1) for one in SUMS]) == [0]
    table = layout(sink_spec_of(model)).result
    with open_database(model.sink).snapshot() as snapshot:
        (found,) = snapshot.rows(table, table.key)
        assert found["d"].to_pylist() == sorted(map(Decimal, SUMS))
    sink = SqliteTables(sink_spec_of(model, "sums"))
    sink.open(RUN)
    sink.commit(1, step(model, [change("delete", 0, Decimal(one), 1) for one in SUMS]))
    sink.close()
    assert query(model, "SELECT * FROM spend") == []
