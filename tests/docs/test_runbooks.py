"""The runbooks and the tables of alerts: they are those of the table of conditions, and each command does its work."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks

from windrow.authoring.sections.alerts import alert_words
from windrow.model import Alerts, LatencyLimit, ShareLimit
from windrow.telemetry.health import CONDITIONS, Condition

DOCS = ROOT / "docs"
RUNBOOKS = DOCS / "runbooks"
COMMANDS = list(
    dict.fromkeys(line for block in blocks("sh") if block.page.parent == RUNBOOKS for line in block.text.splitlines())
)


def test_the_commands_are_those_of_a_run_of_the_main_job() -> None:
    assert COMMANDS
    assert [line for line in COMMANDS if not re.match(r"windrow \w+ spend\.yaml\b", line)] == []


def alert_of(condition: Condition) -> str:
    """The name of a condition in Prometheus."""
    return f"Windrow{condition.name.title().replace('-', '')}"


def table(page: Path, head: str) -> list[list[str]]:
    """The rows of the table of a page that has a header."""
    lines = page.read_text(encoding="utf-8").partition(f"| {head} |\n")[2].splitlines()[1:]
    rows = lines[: next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def test_runbooks_have_the_words_of_their_conditions() -> None:
    heads = {name: (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0] for name in CONDITIONS}
    assert heads == {name: f"# {name}: {condition.measure}" for name, condition in CONDITIONS.items()}
    listed = table(RUNBOOKS / "README.md", "alert | raised when")
    assert listed == [[f"[{name}]({name}.md)", condition.measure] for name, condition in CONDITIONS.items()]


def test_the_guide_has_the_words_and_the_limits_of_conditions() -> None:
    # a limit that is not the default is written with those that are
    lines = alert_words(Alerts(latency=LatencyLimit(1))).splitlines()
    limits = {name: text for name, _, text in (line.partition(": ") for line in lines)}
    assert CONDITIONS["no-step"].fill("<span>") == "2m"
    limits |= {"no-step": "for 2m", "checkpoint": "at once", "latency": "off"}
    rows = table(DOCS / "guides" / "alerts.md", "alert | raised when | default")
    assert [(name, measure, default.partition("; ")[0]) for name, measure, default in rows] == [
        (f"[`{name}`](../runbooks/{name}.md)", condition.measure, limits[name])
        for name, condition in CONDITIONS.items()
    ]


def test_the_guide_to_monitoring_has_the_severities_and_the_limits() -> None:
    rows = {
        row[0].strip("`"): row[1:] for row in table(DOCS / "guides" / "monitoring.md", "alert | severity | raised if")
    }
    assert {alert: severity for alert, (severity, _) in rows.items()} == {
        alert_of(condition): condition.severity for condition in CONDITIONS.values()
    }
    for condition in CONDITIONS.values():
        words = rows[alert_of(condition)][1]
        if condition.name != "checkpoint":
            assert condition.fill("<in words>") in words
        if isinstance(condition.limit, ShareLimit):
            assert f"more than {condition.limit.share * 100:g} %" in words


@pytest.mark.long
@pytest.mark.service
def test_each_command_does_its_work(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "user_spend.yaml", tmp_path / "spend.yaml")
    windrow = [sys.executable, "-m", "windrow"]

    def run(*words: str) -> str:
        ran = subprocess.run([*windrow, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{shlex.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    run("generate", "data/spend", "--events", "200000")
    run("run", "spend.yaml", "--until-end")
    for line in COMMANDS:
        words = shlex.split(line)[1:]
        # a live run does not end
        said = run(*words, *(["--until-end"] if words[0] == "run" else []))
        assert said.strip(), line
