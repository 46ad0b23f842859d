"""The examples can be run as they are."""

from __future__ import annotations

import itertools
import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from tests.docs.pages import ROOT
from tests.waiting import wait_until

import windrow as wr
from windrow.cli import main

FRAUD, REPLICA = (ROOT / "examples" / name / "play.py" for name in ("fraud", "replica"))
PLAYED = sorted((ROOT / "examples").glob("*/play.py"))
"""Programs, which start what they need."""
PACKAGES = {file.parent for file in (ROOT / "examples").glob("*/pyproject.toml")}
"""Packages, which are to be installed."""
EXAMPLES = sorted(
    path
    for path in {*(ROOT / "examples").rglob("*")} - {*PLAYED}
    if path.suffix in {".yaml", ".sql", ".py"} and not PACKAGES.intersection(path.parents)
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_check_finds_no_errors(example: Path) -> None:
    result = CliRunner().invoke(main, ["check", "--json", str(example)])
    assert result.exit_code == 0, result.output
    (checked,) = json.loads(result.output)["pipelines"]
    # how many key groups are good depends on the machine
    assert [finding for finding in checked["findings"] if finding["where"] != "key_groups"] == []


def test_each_example_is_listed() -> None:
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    found = {path.name for path in (ROOT / "examples").iterdir() if path.name not in {"README.md", "__pycache__"}}
    assert found == set(re.findall(r"\]\(([\w.]+)\)", page))


@pytest.mark.parametrize("form", ["py", "sql"])
def test_all_forms_say_the_same(form: str) -> None:
    assert wr.load(ROOT / "examples" / f"user_spend.{form}") == wr.load(ROOT / "examples" / "user_spend.yaml")


OVER_PURCHASES = {
    "user_spend.yaml": ("spend.db", "SELECT sum(events), sum(total) FROM user_spend_5m", Decimal(0)),
    "sessions.yaml": ("visits.db", "SELECT sum(events), sum(total) FROM visits", Decimal(0)),
    # each purchase is in six windows
    "price_bands.yaml": (
        "price_bands.db",
        "SELECT sum(purchases) / 6.0, sum(total) / 6.0 FROM price_bands",
        Decimal(1),
    ),
    "shop.yaml": ("shop.db", "SELECT (SELECT sum(purchases) FROM visits), sum(total) FROM spend_5m", Decimal(0)),
    "shop_hours.yaml": ("shop.db", "SELECT sum(events), sum(total) FROM hours", Decimal(0)),
    "balances.py": ("balances.db", "SELECT sum(purchases), sum(total) FROM balances", Decimal(0)),
}


@pytest.mark.parametrize("example", OVER_PURCHASES)
def test_an_example_runs_over_a_generated_log(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, question, least = OVER_PURCHASES[example]
    runner = CliRunner()
    generate = ["generate", "data/spend", "--events", "1000", "--late-share", "0", "--malformed-share", "0"]
    made = runner.invoke(main, generate)
    assert made.exit_code == 0, made.output
    ran = runner.invoke(main, ["run", str(ROOT / "examples" / example), "--until-end", "--host", "memory", "--json"])
    assert ran.exit_code == 0, ran.output
    lines = [line for part in Path("data/spend").iterdir() for line in part.read_text().splitlines()]
    assert json.loads(ran.stdout)["events"] == len(lines)
    amounts = [json.loads(line, parse_float=Decimal)["amount"] for line in lines]
    counted = [amount for amount in amounts if amount >= least]
    with closing(sqlite3.connect(file)) as database:
        assert database.execute(question).fetchone() == pytest.approx((len(counted), float(sum(counted))))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.service
def test_alerts_come_and_stand_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, str(FRAUD), "--rate", "200", "--table"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        alerts = list(itertools.islice((line for line in running.stdout if re.match(r" *\d+ ms ", line)), 3))
        show = ["show", "fraud-demo/table.yaml", "--json", "--limit", "1000000"]

        def is_shown() -> bool:
            assert running.poll() is None
            shown = CliRunner().invoke(main, show)
            return shown.exit_code == 0 and bool(shown.output)

        wait_until(is_shown, "rows of the table", 240)
        shown = CliRunner().invoke(main, show)
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
    assert running.returncode == 0
    assert " alerts; from the log to here in " in rest
    assert len(alerts) == 3
    assert {"alert_id", "rule", "card", "text"} <= json.loads(shown.output.splitlines()[0]).keys()


def test_the_replica_is_the_table(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_URL", database)
    run = ["run", str(REPLICA.parent / "pipeline.yaml"), "--until-end", "--host", "memory", "--fresh"]
    play = [sys.executable, str(REPLICA), "--rate", "1000"]
    subprocess.run([*play, "--transactions", "1"], check=True)
    with subprocess.Popen([*play, "--transactions", "400"]) as playing:
        assert CliRunner().invoke(main, run).exit_code == 0
    assert playing.returncode == 0
    assert CliRunner().invoke(main, run).exit_code == 0
    with psycopg.connect(database) as sql:
        orders = sql.execute("SELECT id, customer, amount FROM orders ORDER BY 1").fetchall()
        spending = sql.execute("SELECT customer, count(*), sum(amount) FROM orders GROUP BY 1 ORDER BY 1").fetchall()
    with closing(sqlite3.connect("replica-demo/replica.db")) as replica:
        found = replica.execute("SELECT id, customer, amount FROM orders ORDER BY 1").fetchall()
        spent = replica.execute("SELECT customer, orders, total FROM spending ORDER BY 1").fetchall()
    assert len(orders) > 10
    assert [(*key, Decimal(str(one))) for *key, one in found] == orders
    assert [(*key, Decimal(str(one))) for *key, one in spent] == spending


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.service
def test_credits_are_deducted_once(tmp_path: Path) -> None:
    """While the run and the database are killed."""
    command = [sys.executable, str(ROOT / "examples" / "ledger" / "play.py"), "--orders", "2000", "--faults", "2"]
    ran = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "killed: the run (1), the database (1)" in ran.stdout
    assert "deductions:   2,000 events sent by the relay, for 2,000 orders\nThe ledger is right.\n" in ran.stdout
