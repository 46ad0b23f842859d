"""`windrow doctor`: what it prints, its exit codes, and a review of a run from beginning to end."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, events

from windrow.authoring.load import open_pipeline
from windrow.cli import main
from windrow.telemetry.history import HistoryWriter, RunRecord, history_of
from windrow.telemetry.reports import Fault
from windrow.testing.servers.kafka import Kafka
from windrow.tools.doctor.examine import disk

PIPELINE = """\
name: user-spend
source: {log: {path: spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m, future: 1h}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount)}
emit: {lateness: 1h}
key_groups: 2
sink: {sqlite: {path: spend.db, table: spend}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a pipeline in it, which is not below one for temporary files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("windrow.tools.doctor.examine.TEMPORARY", ())
    Path("pipeline.yaml").write_text(PIPELINE)
    return tmp_path


def doctor(*options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "pipeline.yaml", *options])


def found(*options: str) -> dict[str, dict[str, Any]]:
    """The worst finding of each rule."""
    order = ["fine", "unknown", "advice", "serious"]
    said = json.loads(doctor(*options, "--json").stdout)
    return {one["rule"]: one for one in sorted(said["findings"], key=lambda one: order.index(one["severity"]))}


def test_a_pipeline_that_never_ran_is_reviewed_by_its_design() -> None:
    result = doctor()
    assert (result.exit_code, result.stderr) == (0, "")
    head, *lines = result.stdout.splitlines()
    assert head.startswith("user-spend: ")
    assert "serious" not in head
    assert max(map(len, lines)) <= 120
    # many rules say it, and it is written once
    (line,) = [line for line in lines if "no run has written a history here" in line and "Backpressure" in line]
    assert "Dead letters" in line
    assert {"Delay", "Retention"} <= {one["title"] for one in found().values() if one["severity"] == "unknown"}


def test_it_needs_neither_spark_nor_a_broker() -> None:
    Path("pipeline.yaml").write_text(
        PIPELINE.replace("{log: {path: spend}}", '{kafka: {servers: "127.0.0.1:1", topic: spend}}')
    )
    script = (
        "import sys, windrow.cli\n"
        "try: windrow.cli.main(['doctor', 'pipeline.yaml'])\n"
        "finally: print('pyspark' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"
    assert "Lost records, Retention: no Kafka broker can be reached at 127.0.0.1:1" in ran.stdout


def test_a_password_in_the_file_is_serious_with_its_line() -> None:
    url = "postgresql://windrow:hunter2@localhost:1/spend"
    Path("pipeline.yaml").write_text(
        PIPELINE.replace("{sqlite: {path: spend.db, table: spend}}", f'\n  postgres: {{url: "{url}", table: spend}}')
    )
    result = doctor()
    assert result.exit_code == 1
    assert "Secrets (pipeline.yaml:11): sink.postgres.url has a password in plain text" in result.stdout
    assert "hunter2" not in result.output + doctor("--json").output
    secret = found()["secrets"]
    assert (secret["severity"], secret["file"], secret["line"]) == ("serious", "pipeline.yaml", 11)


def test_a_pipeline_that_is_wrong_is_not_reviewed() -> None:
    Path("pipeline.yaml").write_text(PIPELINE.replace("[user_id]", "[user]"))
    assert doctor().exit_code == 2
    assert CliRunner().invoke(main, ["doctor", "missing.yaml"]).exit_code == 2


def test_a_secret_in_what_a_run_wrote_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTORED", "correct horse")
    url = "postgresql://windrow:${DOCTORED}@localhost:1/spend"
    Path("pipeline.yaml").write_text(
        PIPELINE.replace("{sqlite: {path: spend.db, table: spend}}", f'{{postgres: {{url: "{url}", table: spend}}}}')
    )
    path = history_of(Path(".windrow/user-spend"))
    with HistoryWriter(path, RunRecord.here("user-spend", "stream"), pytest.fail) as history:
        history.on_trouble(Fault("no password matches correct horse", "sink"))
        history.begin()
    secret = found()["secrets"]
    assert (secret["severity"], "progress.sqlite contains a secret" in secret["found"]) == ("serious", True)
    assert "correct horse" not in secret["found"]


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_the_width_of_the_terminal_counts(option: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    result = doctor(*option)
    if not option:
        # a command stays on one line
        lines = [line for line in result.stdout.splitlines() if "windrow " not in line]
        assert max(map(len, lines)) <= 60
    else:
        plain = json.loads(result.stdout)
        assert sum(plain["counts"].values()) == len(plain["findings"])
        assert plain["checkpoint"] == ".windrow/user-spend"


def test_a_topic_and_a_database_are_looked_at(kafka: Kafka, topic: Callable[..., str], database: str) -> None:
    name = topic(2, retention_ms="3600000")
    kafka.produce(name, 0, [value for _, value in events(50, partitions=1)])
    text = PIPELINE.replace("{log: {path: spend}}", f'{{kafka: {{servers: "{kafka.servers}", topic: {name}}}}}')
    sink = f'{{postgres: {{url: "{database}", table: spend}}}}'
    Path("pipeline.yaml").write_text(text.replace("{sqlite: {path: spend.db, table: spend}}", sink))
    assert "no run has written it" in found()["tables"]["found"]
    ran = CliRunner().invoke(main, ["run", "pipeline.yaml", "--until-end", "--host", "memory"])
    assert ran.exit_code == 0, ran.output
    rules = found()
    assert "a run whose checkpoint is not here" in rules["tables"]["found"]
    assert (rules["retention"]["severity"], rules["retention"]["found"]) == ("advice", f"{name} keeps records for 1h")
    assert rules["parallelism"]["found"].startswith("2 partitions, 2 key groups")
    with psycopg.connect(database) as connection:
        connection.execute("ALTER TABLE spend DROP CONSTRAINT spend_pkey")
    rules = found()
    assert (rules["tables"]["severity"], "the primary key" in rules["tables"]["found"]) == ("serious", True)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files but those that SQLite has beside a database while it is read."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal"))]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.usefixtures("spark")
def test_a_run_is_reviewed_whole(folder: Path) -> None:
    Files(folder / "spend", 2).append(events(3_000, partitions=2))
    pipeline = open_pipeline("pipeline.yaml").runnable()
    checkpoint = folder / ".windrow" / "user-spend"
    Runner(checkpoint).bounded(pipeline, 1_000)
    before = contents(folder)
    first = doctor()
    assert "restoring a copy of the checkpoint" in first.stderr
    rules = found()
    assert contents(folder) == before
    # the log has many records that are late, or cannot be read
    wrong = {one["rule"] for one in rules.values() if one["severity"] == "serious"}
    assert wrong <= {"delay", "verdicts", "dead-letters"}
    assert first.exit_code == int(bool(wrong))
    assert rules["checkpoint"]["severity"] == "fine"
    assert "a copy was restored" in rules["checkpoint"]["found"]
    assert rules["tables"]["found"].startswith("spend belongs to this run, at epoch ")
    assert rules["lost-records"]["severity"] == "fine"

    # each damage is found by its rule
    def damaged(act: Callable[[], object], rule: str, text: str) -> None:
        shutil.copytree(folder, kept := folder.with_name(f"{folder.name}-kept"), dirs_exist_ok=True)
        act()
        one = found("--no-restore")[rule]
        assert (one["severity"], text in one["found"]) == ("serious", True), one
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        shutil.rmtree(kept)

    def forget_epochs() -> None:
        with closing(sqlite3.connect("spend.db")) as database, database:
            database.execute("DELETE FROM windrow_epochs WHERE epoch > 0")
            database.execute("UPDATE windrow_epochs SET epoch = -5")

    def drop_column() -> None:
        with closing(sqlite3.connect("spend.db")) as database, database:
            database.execute("ALTER TABLE spend DROP COLUMN total")

    log, file = Path("spend/partition-0.jsonl"), checkpoint / "spark/metadata"
    text = PIPELINE.replace("tumbling: 5m", "tumbling: 1m")
    damaged(forget_epochs, "tables", "at epoch -5")
    damaged(drop_column, "tables", "has no column 'total'")
    damaged(lambda: os.truncate(log, 100), "lost-records", "partition 0")
    damaged(lambda: file.write_bytes(b"{}"), "checkpoint", "metadata is damaged")
    damaged(lambda: Path("pipeline.yaml").write_text(text), "checkpoint", 'window.tumbling: "5m" there, "1m" here')
    # a file whose checksum is gone as well is found by the restore alone
    for path in [*checkpoint.glob("spark/state/*/*/*.zip"), *checkpoint.glob("spark/state/*/*/*.changelog")]:
        path.write_bytes(path.read_bytes()[:20])
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    one = found()["checkpoint"]
    assert (one["severity"], "cannot be restored" in one["found"]) == ("serious", True), one


def test_a_disk_is_known_by_its_folder(tmp_path: Path) -> None:
    found = disk(tmp_path / "new" / "checkpoint")
    assert 0 < found.free <= found.total
    assert found.kind
    assert not found.is_temporary or found.kind in {"tmpfs", "ramfs"}
    shm = Path("/dev/shm")  # noqa: S108 - it is looked at alone
    assert not shm.is_dir() or disk(shm).is_temporary
