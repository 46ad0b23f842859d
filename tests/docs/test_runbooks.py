"""The sections about alerts: what is made of the table of conditions is up to date, and each command does its work."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "guides" / "alerts.md").read_text(encoding="utf-8")
COMMANDS = list(dict.fromkeys(re.findall(r"`(windrow \w+ spend\.yaml[^`]*)`", PAGE.replace("\n", " "))))


def test_the_page_has_the_conditions_of_alerts() -> None:
    with_alerts = runpy.run_path(str(ROOT / "scripts" / "docs.py"))["with_alerts"]
    assert with_alerts(PAGE) == PAGE, "run `make docs`"


def test_an_alert_without_its_section_is_an_error() -> None:
    with_alerts = runpy.run_path(str(ROOT / "scripts" / "docs.py"))["with_alerts"]
    with pytest.raises(LookupError, match=r"no section for lag$"):
        with_alerts(PAGE.replace("### lag\n\n<!-- condition -->", "### lag\n"))


@pytest.mark.long
@pytest.mark.service
def test_each_command_does_its_work(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "user_spend.yaml", tmp_path / "spend.yaml")
    windrow = [sys.executable, "-m", "windrow"]

    def run(*words: str) -> str:
        ran = subprocess.run([*windrow, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        # 1 of doctor: the folder is one for temporary files
        assert ran.returncode in {0, words[0] == "doctor"}, f"{shlex.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    run("generate", "data/spend", "--events", "200000")
    run("run", "spend.yaml", "--until-end")
    for line in COMMANDS:
        assert run(*shlex.split(line)[1:]).strip(), line
