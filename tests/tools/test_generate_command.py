"""`windrow generate`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.waiting import wait_until

from windrow.cli import main
from windrow.testing.servers.kafka import Kafka
from windrow.tools.generate import FraudSpec, LogSpec, write_log


def generate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["generate", *arguments])


def lines(folder: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in folder.iterdir())


def test_a_log(tmp_path: Path) -> None:
    result = generate(str(tmp_path / "spend"), "--events", "5000", "--partitions", "3")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{tmp_path}/spend: 5,000 records in 3 partitions: ")
    assert lines(tmp_path / "spend") == 5000


def test_an_empty_target_is_wrong_input() -> None:
    refused = generate("")
    assert refused.exit_code == 2
    assert "TARGET is empty: give a folder" in refused.stderr


def test_a_duration_that_is_too_short_is_told_with_its_unit(tmp_path: Path) -> None:
    told = generate(str(tmp_path / "spend"), "--duration", "0s")
    assert (told.exit_code, "duration must be at least 1ms, not 0s" in told.stderr) == (2, True)


def test_every_option_reaches_the_spec(tmp_path: Path) -> None:
    options = (
        "--events 3000 --users 20 --partitions 2 --seed 9 --start 2025-06-01T12:00:00 --duration 1h --disorder 30s "
        "--late-share 0.1 --malformed-share 0.2 --duplicate-share 0.3 --hot-key-share 0.4 --log-time --json"
    )
    result = generate(str(tmp_path / "a"), *options.split())
    spec = LogSpec(
        events=3000,
        users=20,
        partitions=2,
        seed=9,
        start=1_748_779_200_000_000,
        duration=3_600_000_000,
        disorder=30_000_000,
        late_share=0.1,
        malformed_share=0.2,
        duplicate_share=0.3,
        hot_key_share=0.4,
        log_time=True,
    )
    made = write_log(spec, tmp_path / "b")
    for partition in ("partition-0.jsonl", "partition-1.jsonl"):
        assert (tmp_path / "a" / partition).read_bytes() == (tmp_path / "b" / partition).read_bytes()
    summary = json.loads(result.stdout)
    assert summary.pop("seconds") >= 0
    assert summary == {"target": str(tmp_path / "a"), "partitions": 2, **vars(made)}


def test_the_logs_of_nexmark(tmp_path: Path) -> None:
    folder = str(tmp_path / "nexmark")
    result = generate(folder, "--kind", "nexmark", "--events", "5000", "--partitions", "1")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{folder}: 100 persons, 300 auctions and 4,600 bids, each in 1 partition (")
    assert {log.name: lines(log) for log in Path(folder).iterdir()} == {"persons": 100, "auctions": 300, "bids": 4600}
    summary = json.loads(generate(folder, "--kind", "nexmark", "--events", "50", "--overwrite", "--json").stdout)
    assert (summary["records"], summary["bids"]) == (50, 46)


def test_an_option_of_purchases_is_none_of_nexmark(tmp_path: Path) -> None:
    refused = generate(str(tmp_path / "nexmark"), "--kind", "nexmark", "--late-share", "0.1")
    assert refused.exit_code == 2
    assert "--late-share applies to purchases and fraud, not to nexmark: leave it out" in refused.stderr


def test_card_purchases_with_fraud(tmp_path: Path) -> None:
    options = (
        "--kind fraud --events 3000 --cards 300 --partitions 2 --seed 9 --start 2025-06-01T12:00:00 --duration 2h "
        "--disorder 30s --late-share 0.1 --late-by 5m --duplicate-share 0.3 --fraud-share 0.1 --log-time"
    )
    result = generate(str(tmp_path / "a"), *options.split())
    assert result.exit_code == 0
    assert re.fullmatch(
        r".*/a: 3,\d{3} records in 2 partitions: \d{3} late, \d{3} duplicates, \d+ labelled as fraud .*\n",
        result.stdout,
    )
    spec = FraudSpec(
        events=3000,
        cards=300,
        partitions=2,
        seed=9,
        start=1_748_779_200_000_000,
        duration=7_200_000_000,
        disorder=30_000_000,
        late_share=0.1,
        late_by=300_000_000,
        duplicate_share=0.3,
        fraud_share=0.1,
        log_time=True,
    )
    write_log(spec, tmp_path / "b")
    names = ("partition-0.jsonl", "partition-1.jsonl", "labels.jsonl", "blocked.csv")
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert generate(str(tmp_path / "a"), "--kind", "fraud", "--events", "10").exit_code == 2
    assert generate(str(tmp_path / "a"), "--kind", "fraud", "--events", "10", "--overwrite").exit_code == 0
    assert sorted(file.name for file in (tmp_path / "a").glob("[bl]*")) == ["blocked.csv", "labels.jsonl"]


def test_a_log_is_overwritten_only_if_told(tmp_path: Path) -> None:
    folder = str(tmp_path / "spend")
    assert generate(folder, "--events", "10").exit_code == 0
    refused = generate(folder, "--events", "20")
    assert refused.exit_code == 2
    assert (
        refused.stderr
        == f"windrow: {folder} already holds a log: choose another folder, or overwrite it (--overwrite)\n"
    )
    assert generate(folder, "--events", "20", "--overwrite").exit_code == 0
    assert lines(tmp_path / "spend") == 20


@pytest.mark.parametrize(
    "arguments",
    [
        ["kafka://localhost:9092"],
        ["kafka:///spend"],
        ["kafka://localhost:9092/a/b"],
        ["kafka://localhost:9092/spend", "--kafka-servers", "localhost:9092"],
        ["kafka://localhost:9092/spend", "--overwrite"],
        ["spend", "--late-share", "2"],
        ["spend", "--cards", "300"],
        ["spend", "--kind", "fraud", "--users", "300"],
        ["spend", "--kind", "fraud", "--labels", "labels"],
        ["spend", "--kind", "fraud", "--cards", "10", "--rate", "100"],
        ["spend", "--disorder", "4"],
        ["spend", "--rate", "0"],
    ],
)
def test_what_cannot_be_is_2(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = generate(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_live_log_ends_at_its_events(tmp_path: Path) -> None:
    result = generate(str(tmp_path / "live"), "--rate", "2000", "--events", "500")
    assert result.exit_code == 0
    assert lines(tmp_path / "live") == 500


def test_a_live_log_ends_well_on_ctrl_c(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", "from windrow.cli import main; main()", "generate", "live", "--rate", "500"]
    process = subprocess.Popen([*arguments, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, env=dict(os.environ))
    live = tmp_path / "live"
    wait_until(lambda: process.poll() is not None or (live.exists() and lines(live)), "the first record")
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(output)["records"] == lines(tmp_path / "live")


def test_a_topic(kafka: Kafka) -> None:
    for target in ([f"kafka://{kafka.servers}/made"], ["made", "--kafka-servers", kafka.servers]):
        result = generate(*target, "--events", "1000", "--json")
        assert result.exit_code == 0
        summary = json.loads(result.stdout)
        assert (summary["target"], summary["records"]) == (f"kafka://{kafka.servers}/made", 1000)


def test_no_broker_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windrow.tools.generate.kafka._TIMEOUT", 1.0)
    result = generate("kafka://127.0.0.1:1/made")
    assert result.exit_code == 1
    assert result.stderr.startswith("windrow: no Kafka broker can be reached at 127.0.0.1:1")
