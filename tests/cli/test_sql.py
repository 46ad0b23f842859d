"""A pipeline in SQL runs as one in YAML does."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from windrow.cli import main

_PIPELINE = """
SET 'name' = 'large-spend';
CREATE TABLE spend (
  user_id STRING, event_time TIMESTAMP_LTZ(3), amount DECIMAL(12, 2),
  WATERMARK FOR event_time AS event_time - INTERVAL '10' MINUTES
) WITH ('connector' = 'log', 'path' = 'data/spend', 'lateness' = '1d');
CREATE TABLE large WITH ('connector' = 'sqlite', 'path' = 'spend.db', 'table' = 'large');
INSERT INTO large
WITH bought AS (SELECT user_id, amount, amount * 2 AS twice FROM spend WHERE amount > 20)
SELECT user_id, sum(amount) AS total, count(*) FILTER (WHERE twice > 200) AS n, count(DISTINCT amount) AS kinds
FROM HOP(TABLE bought, DESCRIPTOR(rowtime), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)
GROUP BY window_start, window_end, user_id
HAVING total > 50;
"""
_QUERY = """
WITH log AS (SELECT user_id, event_time, amount FROM read_json('data/spend/*.jsonl', columns = {
  user_id: 'VARCHAR', event_time: 'BIGINT', amount: 'DECIMAL(12, 2)'}) WHERE amount > 20),
hops AS (SELECT *, (event_time // 300000 - unnest([0, 1])) * 300000 AS window_start FROM log)
SELECT user_id, sum(amount)::DOUBLE, count(*) FILTER (WHERE amount * 2 > 200), count(DISTINCT amount)
FROM hops GROUP BY window_start, user_id HAVING sum(amount) > 50 ORDER BY ALL
"""


def test_a_run_gives_what_duckdb_gives_over_the_whole_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("large.sql").write_text(_PIPELINE)
    runner = CliRunner()
    made = runner.invoke(
        main, ["generate", "data/spend", "--events", "1000", "--late-share", "0", "--malformed-share", "0"]
    )
    assert made.exit_code == 0, made.output
    ran = runner.invoke(main, ["run", "large.sql", "--until-end", "--host", "memory"])
    assert ran.exit_code == 0, ran.output
    with closing(sqlite3.connect("spend.db")) as database:
        rows = database.execute("SELECT user_id, total, n, kinds FROM large").fetchall()
    with duckdb.connect() as engine:
        expected = engine.execute(_QUERY).fetchall()
    assert len(expected) > 10
    assert sorted(rows) == expected


def test_what_edits_yaml_says_that_sql_is_not_edited(tmp_path: Path) -> None:
    file = tmp_path / "large.sql"
    file.write_text(_PIPELINE)
    ran = CliRunner().invoke(main, ["tune", str(file), "--write"])
    assert ran.exit_code == 2
    assert "large.sql is SQL, which this command does not edit: leave out --write" in ran.output


def test_check_says_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "large.sql"
    file.write_text(_PIPELINE.replace("sum(amount)", "sum(amuont)"))
    ran = CliRunner().invoke(main, ["check", str(file), "--json"])
    assert '"line": 10' in ran.output
    assert '"column": 17' in ran.output
