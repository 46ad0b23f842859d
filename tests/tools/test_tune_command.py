"""`windrow tune`: what it prints, the change of the file, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.client.test_progress import REPORT
from tests.runtime.spend import Files, events
from tests.short_forms import Pipeline, short_form

from windrow.authoring.load import open_pipeline
from windrow.cli import main
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.history import HistoryWriter, RunRecord

PIPELINE = """\
name: user-spend
source: {log: {path: spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m}  # agreed with the shops
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount)}
emit: {lateness: 1h, late: each}
sink: {sqlite: {path: spend.db, table: spend}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a log and a pipeline in it."""
    monkeypatch.chdir(tmp_path)
    Files(tmp_path / "spend", 2).append(events(3_000, partitions=2))
    Path("pipeline.yaml").write_text(PIPELINE)
    return tmp_path


def tune(*options: str) -> Result:
    return CliRunner().invoke(main, ["tune", "pipeline.yaml", *options])


def test_the_change_of_the_file_is_a_diff() -> None:
    result = tune("--log", "--late", "2%", "--expired", "1%")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("user-spend: from the log (exact)\n")
    assert "\n-time: {field: event_time, delay: 10m}  # agreed with the shops\n+time: " in result.output
    assert 'time.delay: "10m" there, "' in result.output
    assert "applies from the next record on; watermarks never decrease\n" in result.output
    assert Path("pipeline.yaml").read_text() == PIPELINE


def test_the_change_is_written_and_nothing_else_changes() -> None:
    result = tune("--log", "--late", "2%", "--expired", "1%", "--write", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["written"]
    assert found["can_resume"]
    (delay,), (lateness,) = found["delays"], found["latenesses"]
    assert found["changes"] == {"time.delay": delay["chosen"], "emit.lateness": lateness["chosen"]}
    assert [part["partition"] for part in delay["partitions"]] == [0, 1]
    before, after = PIPELINE.splitlines(), Path("pipeline.yaml").read_text().splitlines()
    assert [number for number, (one, two) in enumerate(zip(before, after, strict=True)) if one != two] == [3, 7]
    assert after[3].endswith("}  # agreed with the shops")
    again = json.loads(tune("--log", "--late", "2%", "--expired", "1%", "--json").stdout)
    assert (again["changes"], again["diff"], again["effects"]) == ({}, "", [])


def test_a_goal_that_is_not_met_writes_nothing() -> None:
    result = tune("--log", "--late", "0.1%", "--write")
    assert result.exit_code == 1
    assert "not met: time.delay: 2,9" in result.output
    assert "records are too few: measuring a share as small as the goal takes 10,000" in result.output
    assert Path("pipeline.yaml").read_text() == PIPELINE


def test_a_log_without_records_meets_no_goal() -> None:
    for file in Path("spend").iterdir():
        file.write_text("")
    result = tune("--log")
    assert (result.exit_code, "nothing to change" in result.output) == (1, False)
    assert "not met: there are no records to choose from" in result.output


def test_what_meets_only_some_goals_is_not_written() -> None:
    result = tune("--log", "--late", "2%", "--expired", "0.01%", "--write")
    assert result.exit_code == 1
    assert "pipeline.yaml: not written, since not all goals are met" in result.stderr
    assert Path("pipeline.yaml").read_text() == PIPELINE


def record(checkpoint: Path) -> None:
    """Write a history in which a hundredth of the records is up to 20 minutes behind."""
    seconds = np.concatenate([np.zeros(99_000), np.full(1_000, 1_200)]).astype(np.int64)
    report = replace(REPORT, committed=1, lateness={0: Histogram.of(seconds * 1_000_000), 1: Histogram((5,))})
    with HistoryWriter(checkpoint / "progress.sqlite", RunRecord.here("user-spend", "stream"), pytest.fail) as history:
        history.on_step(report)


def test_the_history_of_a_run_is_read() -> None:
    record(Path(".windrow/user-spend"))
    result = tune()
    assert result.exit_code == 0, result.output
    assert "progress.sqlite (ranges up to the size of windows and buckets; --log is exact)" in result.output
    # all of them are behind by more than the windows are long, but by 20 minutes at most
    assert "time.delay: 10m now, 20m chosen; 100,005 records" in result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["10m", "now", "1,000", "(1.0", "%)", "0", "(0", "%)", "1.00", "x"] in rows
    # of those that are behind by 15 to 20 minutes, a window of 5 may hold all or none
    rows = [line.split()[:9] for line in tune("--within", "15m").output.splitlines()]
    assert ["15m", "chosen", "0", "to", "1,000", "(0", "%", "to", "1.0"] in rows
    record(Path("other"))
    found = json.loads(tune("--checkpoint", "other", "--quantile", "99.9", "--json").stdout)
    assert found["delays"][0]["chosen"] == 1_200_000_000
    assert found["latenesses"][0]["chosen"] is None


def test_without_a_history_the_log_is_proposed() -> None:
    result = tune()
    assert result.exit_code == 2
    assert "stream host, or choose another checkpoint; or use --log to read the log itself" in result.output


def test_a_pipeline_in_python_is_not_written() -> None:
    Path("pipeline.py").write_text("import windrow as wr\n\npipeline = wr.load('pipeline.yaml')\n")
    result = CliRunner().invoke(main, ["tune", "pipeline.py", "--log", "--late", "2%"])
    assert result.exit_code == 0, result.output
    assert "time.delay: 10m now, " in result.output
    assert "@@" not in result.output
    result = CliRunner().invoke(main, ["tune", "pipeline.py", "--log", "--write"])
    assert (result.exit_code, "does not edit" in result.output) == (2, True)


def test_a_missing_lateness_is_added() -> None:
    Path("pipeline.yaml").write_text(PIPELINE.replace("emit: {lateness: 1h, late: each}\n", ""))
    result = tune("--log", "--late", "2%", "--expired", "0.5%", "--write")
    assert result.exit_code == 0, result.output
    assert "\n+emit: {lateness: " in result.output
    written = short_form(open_pipeline("pipeline.yaml").runnable())
    assert isinstance(written, Pipeline)
    assert written.emit.lateness > 0


def test_a_value_that_two_keys_share_is_left_alone() -> None:
    Path("pipeline.yaml").write_text(PIPELINE.replace("lateness: 1h", "lateness: *d").replace("10m", "&d 10m"))
    result = tune("--log", "--late", "2%")
    assert result.exit_code == 2
    assert "pipeline.yaml:4: time.delay is shared with another key by an alias: set it to" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--late", "0.1"), "'0.1' is not a share; write a percentage such as 0.1%"),
        (("--late", "101%"), "'101%' is not a share"),
        (("--quantile", "100"), "'100' is not a quantile"),
        (("--quantile", "0.999"), "'0.999' is not a quantile; write a percentage from 1 to 100, such as 99.9"),
        (("--log", "--checkpoint", "x"), "--log reads the log instead of a history"),
    ],
)
def test_wrong_options_are_refused(options: tuple[str, ...], message: str) -> None:
    result = tune(*options)
    assert result.exit_code == 2
    assert message in result.output
