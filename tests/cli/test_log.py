"""`windrow log`: lists the segments of an embedded log, trims and compacts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windrow.cli import main
from windrow.connectors.log.source import LogFolder
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.runtime.stream.steps import StepOffsets

DAY = 86_400_000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a log of two partitions."""
    monkeypatch.chdir(tmp_path)
    Path("spend").mkdir()
    for partition in (0, 1):
        lines = [json.dumps({"user": "ab"[n % 2], "n": n, "_log_time": n * DAY}) for n in range(10)]
        Path(f"spend/partition-{partition}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def log(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["log", *words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    return result


def test_a_log_is_listed_with_its_segments() -> None:
    log("compact", "spend", "--key", "user", "--active", "90")
    log("trim", "spend", "--before", "1=8")
    segments = json.loads(log("list", "spend", "--json").stdout)["segments"]
    assert [(one["partition"], one["kind"], one["first"], one["end"], one["records"]) for one in segments] == [
        (0, "compacted", 0, 8, 2),
        (0, "active", 8, 10, 2),
        (1, "active", 8, 10, 2),
    ]
    assert [one["last_time"] for one in segments] == ["1970-01-08 00:00:00", *["1970-01-10 00:00:00"] * 2]
    lines = log("list", "spend").stdout.splitlines()
    assert lines[0].split()[:4] == ["partition", "segment", "first", "end"]
    assert lines[1].split()[:5] == ["0", "compacted", "0", "8", "2"]


@pytest.mark.parametrize(
    ("bound", "left"),
    [
        (["--before", "1970-01-04"], 3),
        (["--older-than", "1d"], 10),
        (["--before", "0=4,1=4"], 4),
        (["--max-size", "100"], 8),
        (["--max-size", "1k"], 0),
    ],
)
def test_records_beyond_a_bound_are_removed(bound: list[str], left: int) -> None:
    would = log("trim", "spend", *bound, "--dry-run").stdout
    assert not list(Path("spend").glob("*.json"))
    done = log("trim", "spend", *bound).stdout
    assert done == would.replace("would remove", "removed")
    last = json.loads(log("list", "spend", "--json").stdout)["segments"][0]
    assert last["first"] == left
    assert log("trim", "spend", *bound).stdout == "spend: nothing to trim\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trim", "spend"], "choose the records to remove: --before, --older-than or --max-size"),
        (["trim", "spend", "--before", "7=1"], "has no partition 7; it has 0, 1"),
        (["trim", "spend", "--before", "0=11"], "partition 0 ends at offset 10, before 11"),
        (["trim", "spend", "--max-size", "2X"], "'2X' is not a size"),
        (["trim", "nowhere", "--max-size", "2"], "there is no log folder nowhere"),
        (["trim", "spend", "--max-size", "2", "--checkpoint", "c"], "c is not the checkpoint of a run that reads"),
    ],
)
def test_bad_input_is_refused(words: list[str], said: str) -> None:
    assert said in log(*words, code=2).stderr


@pytest.mark.parametrize(
    "words", [["trim", "spend", "--before", "0=5"], ["compact", "spend", "--key", "user", "--active", "0"]]
)
def test_what_a_run_has_not_read_stays(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".windrow/spend").mkdir(parents=True)
    checkpoint = Checkpoint(Path(".windrow/spend"), None, (0, 1), {"source": {"log": {"path": "spend"}}})  # type: ignore[arg-type]
    monkeypatch.setattr(Checkpoint, "read", lambda _: checkpoint)
    monkeypatch.setattr(Checkpoint, "offsets", lambda _: {0: 4, 1: 10})
    refused = log(*words, code=2).stderr
    assert "the run of the checkpoint .windrow/spend has read partition 0 of spend only up to offset 4" in refused
    assert not list(Path("spend").glob("*.json"))
    assert "removed" in log(*words, "--force").stdout


def test_a_graph_that_reads_the_log_is_known_by_its_first_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = LogFolder("spend")
    read = {str(p): folder.noted(p, folder.after(p, 4)) for p in (0, 1)}
    Path(".windrow/graph").mkdir(parents=True)
    checkpoint = Checkpoint(Path(".windrow/graph"), None, (0, 1), {"streams": {}})  # type: ignore[arg-type]
    monkeypatch.setattr(Checkpoint, "read", lambda _: checkpoint)
    monkeypatch.setattr(Checkpoint, "batch", 0)
    monkeypatch.setattr(Checkpoint, "note", lambda *_: StepOffsets({"sources": [{}, read]}))
    assert "only up to offset 4" in log("trim", "spend", "--before", "1=5", code=2).stderr
    assert "removed" in log("trim", "spend", "--before", "1=4").stdout


def test_a_key_has_names_and_a_damaged_checkpoint_holds_back() -> None:
    assert "--key 'user,': give the fields of the key" in log("compact", "spend", "--key", "user,", code=2).stderr
    Path(".windrow/spend/spark").mkdir(parents=True)
    Path(".windrow/spend/windrow.json").write_text("{")
    assert "windrow.json" in log("trim", "spend", "--before", "0=5", code=2).stderr
    assert not list(Path("spend").glob("*.kept.json"))
    assert "removed" in log("trim", "spend", "--before", "0=5", "--force").stdout
