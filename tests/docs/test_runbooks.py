"""The runbooks: each command line does its work beside a run of the main job."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks

RUNBOOKS = ROOT / "docs" / "runbooks"
COMMANDS = list(
    dict.fromkeys(line for block in blocks("sh") if block.page.parent == RUNBOOKS for line in block.text.splitlines())
)


def test_the_commands_are_those_of_a_run_of_the_main_job() -> None:
    assert COMMANDS
    assert [line for line in COMMANDS if not re.match(r"windrow \w+ spend\.yaml\b", line)] == []


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
