"""The examples can be run as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.docs.pages import ROOT

import windrow as wr
from windrow.cli import main

EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in {".yaml", ".py"})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_check_finds_no_errors(example: Path) -> None:
    result = CliRunner().invoke(main, ["check", "--json", str(example)])
    assert result.exit_code == 0, result.output
    (checked,) = json.loads(result.output)["pipelines"]
    # how many key groups are good depends on the machine
    assert [finding for finding in checked["findings"] if finding["where"] != "key_groups"] == []


def test_both_forms_say_the_same() -> None:
    assert wr.load(ROOT / "examples" / "user_spend.py") == wr.load(ROOT / "examples" / "user_spend.yaml")


def test_the_example_runs_over_a_generated_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    made = runner.invoke(main, ["generate", "data/spend", "--events", "2000", "--json"])
    assert made.exit_code == 0, made.output
    ran = runner.invoke(
        main, ["run", str(ROOT / "examples" / "user_spend.yaml"), "--until-end", "--host", "memory", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["events"] == json.loads(made.stdout)["records"]
    assert Path("spend.db").exists()
