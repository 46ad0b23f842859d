"""`windrow transcript`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windrow.cli import main

STORIES = Path(__file__).parents[1] / "transcripts"
GOOD = STORIES / "worked_example.yaml"


def transcript(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["transcript", *map(str, arguments)])


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    path = tmp_path / "failing.yaml"
    path.write_text(GOOD.read_text().replace('["10:00", A, 8]', '["10:00", A, 9]'))
    return path


def test_good_stories() -> None:
    result = transcript(GOOD, STORIES / "too_late.yaml")
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["ok", "ok"]


def test_rebatch() -> None:
    result = transcript(GOOD, "--rebatch", "2", "--seed", "3", "--host", "memory")
    assert result.exit_code == 0, result.output
    assert "5 cuts" in result.stdout


def test_failing_story(failing: Path) -> None:
    result = transcript(GOOD, failing)
    assert result.exit_code == 1
    assert [line.split()[0] for line in result.stdout.splitlines() if line[0] != " "] == ["ok", "FAILED"]
    assert '! ["10:00", A, 9]   ["10:00", A, 8]' in result.stdout


def test_json(failing: Path) -> None:
    result = transcript(GOOD, failing, "--json")
    assert result.exit_code == 1
    plain = json.loads(result.stdout)
    assert [story["ok"] for story in plain["stories"]] == [True, False]
    assert plain["stories"][1]["differences"][0]["what"] == "final"


def test_malformed_stories_run_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.read_text().replace("steps:", "step:"))
    result = transcript(GOOD, bad, tmp_path / "missing.yaml")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"{bad}:8: 'step' is not a key of story" in result.stderr
    assert "missing.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_pipeline_is_told_apart_from_a_story(tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text("name: user-spend\nsource: {log: {path: spend}}\nsink: {sqlite: {path: spend.db, table: t}}\n")
    result = transcript(pipeline)
    said = "this is a pipeline, not a story; check it with `windrow check`, run it with `windrow run`"
    assert (result.exit_code, result.stderr) == (2, f"windrow: {pipeline}:1: {said}\n")


@pytest.mark.parametrize(
    "arguments", [[], [GOOD, "--host", "paper"], [GOOD, "--rebatch", "0"], [GOOD, "--rebatch", "x"]]
)
def test_wrong_arguments(arguments: list[str | Path]) -> None:
    assert transcript(*arguments).exit_code == 2


def test_help_and_errors_need_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from windrow.cli import main\n"
        "try: main(['transcript', sys.argv[1]])\n"
        "except SystemExit as exc: print(exc.code)\n"
        "print([name for name in ('pyarrow', 'duckdb', 'pandas', 'numpy', 'pyspark') if name in sys.modules])"
    )
    for argument, code_ in (("--help", "0"), (str(tmp_path / "missing.yaml"), "2")):
        done = subprocess.run([sys.executable, "-c", code, argument], check=True, capture_output=True, text=True)
        assert done.stdout.splitlines()[-2:] == [code_, "[]"]
