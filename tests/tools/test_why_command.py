"""`windrow show --why`: what it prints, and errors that say what is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windrow.cli import main

PIPELINE = """\
name: spend
source: {log: {path: payments}}
decode: {user_id: string, at: timestamp, amount: "decimal(12,2)"}
time: {field: at, delay: 1m}
key: user_id
window: {tumbling: 5m}
aggregate: {total: sum(amount), payments: count()}
emit: {lateness: 10m}
sink: {sqlite: {path: spend.db, table: spend}}
"""
PAYMENTS = [
    ("u17", "10:05:10", "12.50"),
    ("u18", "10:05:40", "7.00"),
    ("u17", "10:08:55", "13.00"),
    ("u17", "10:07:30", "n/a"),
    ("u18", "10:11:30", "20.00"),
    ("u17", "10:09:20", "10.00"),
    ("u17", "10:12:00", "1.00"),
    ("u18", "10:21:45", "3.00"),
    ("u17", "10:06:00", "99.00"),
]
ROW = ["--where", "user_id=u17", "--where", "window_start=2026-11-20T10:05"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to work in, with a log, and a pipeline that has read it."""
    monkeypatch.chdir(tmp_path)
    Path("payments").mkdir()
    lines = (
        json.dumps({"user_id": user, "at": f"2026-11-20T{at}Z", "amount": amount}) for user, at, amount in PAYMENTS
    )
    Path("payments/partition-0.jsonl").write_text("".join(f"{line}\n" for line in lines))
    Path("spend.yaml").write_text(PIPELINE)
    result = CliRunner().invoke(main, ["run", "spend.yaml", "--until-end", "--host", "memory"])
    assert result.exit_code == 0, result.output


def why(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["show", "spend.yaml", *words, "--why"])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    return result


def test_a_row_is_named_by_its_columns_or_by_key_and_window() -> None:
    shown = why(*ROW).stdout
    assert shown.startswith("spend: user_id=u17, window 2026-11-20 10:05:00 to 2026-11-20 10:10:00 UTC\n")
    assert why("spend", *ROW).stdout == shown
    assert why("--key", "user_id=u17", "--window", "2026-11-20T10:07").stdout == shown


def test_it_is_printed_as_json() -> None:
    found = json.loads(why(*ROW, "--json").stdout)
    assert found["counts"] == {"on_time": 2, "late": 1, "expired": 1}
    assert [one["verdict"] for one in found["records"]] == ["on_time", "on_time", "late", "expired"]
    assert found["row"]["total"] == found["replayed"]["total"] == "35.50"
    assert found["revisions"][1]["before"]["total"] == "25.50"
    assert found["differences"] == []


def test_few_records_are_listed_of_many() -> None:
    out = why(*ROW, "--limit", "1").stdout
    assert "4 records of the log: 2 on time, 1 late, 1 expired" in out
    assert "... and 2 more records: --limit shows more" in out


def test_a_row_that_is_not_there() -> None:
    out = why("--where", "user_id=u17", "--where", "window_start=2026-11-20T10:20").stdout
    assert "there is no such row" in out
    assert "The records of the log give no such row either; the low watermark is at 2026-11-20 10:20:45." in out


def test_records_that_are_lost_are_missed() -> None:
    Path("payments/partition-0.jsonl").write_text("")
    out = why(*ROW).stdout
    assert "0 records of the log" in out
    assert "  the table has a row, but the log gives no row" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--where", "user_id=u17"], "--where window_start=2026-11-20T10:10:00Z"),
        (["--where", "user_id=eve"], "no row has that key"),
        (["--key", "user_id=u17", "--window", "2026-11-20T10:21"], "--where window_start=2026-11-20T10:10:00Z"),
        ([*ROW, "--since", "2026-11-20"], "--where, --key and --window alone"),
        (["--where", "window_start=noon"], "is a time, such as"),
        (["late"], "--why explains a row of spend"),
        ([*ROW, "--csv"], "leave out --csv and --order"),
    ],
)
def test_errors_say_what_is_there(words: list[str], message: str) -> None:
    assert message in why(*words, code=2).stderr


def test_a_checkpoint_is_for_why_alone() -> None:
    result = CliRunner().invoke(main, ["show", "spend.yaml", "--checkpoint", "there"])
    assert (result.exit_code, result.stderr) == (2, "windrow: --checkpoint is used only with --why: leave it out\n")


def test_control_characters_of_a_dead_letter_are_spelt() -> None:
    with Path("payments/partition-0.jsonl").open("ab") as log:
        log.write(b'{"user_id": "u17\x07\xff"}\n')
    assert CliRunner().invoke(main, ["run", "spend.yaml", "--until-end", "--host", "memory", "--fresh"]).exit_code == 0
    assert '    {"user_id": "u17\\x07\\xff"}' in why(*ROW).stdout.splitlines()


def test_any_dead_letter_may_be_of_a_row_without_a_key() -> None:
    Path("spend.yaml").write_text(PIPELINE.replace("key: user_id\n", ""))
    assert CliRunner().invoke(main, ["run", "spend.yaml", "--until-end", "--host", "memory", "--fresh"]).exit_code == 0
    assert "1 dead letter that may belong to it: the row has no key to look for in them" in (
        why("--window", "2026-11-20T10:05").stdout.splitlines()
    )
