"""The walk through replay, diff and promote: what the page shows is what comes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.docs.pages import ROOT, blocks

from windrow.cli import main

PAGE = ROOT / "docs" / "guides" / "replay.md"
_SECONDS = re.compile(r"\(?\d+\.\d s\)?( \([\d,]+( events)?/s\))?")


def test_the_walk_gives_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    [pipeline] = [block.text for block in blocks("yaml") if block.page == PAGE]
    walks = [block.text for block in blocks("") if block.page == PAGE and block.text.startswith("$ ")]
    assert len(walks) == 2
    for walk, lateness in zip(walks, ("10m", "1h"), strict=True):
        Path("spend.yaml").write_text(pipeline.replace("lateness: 10m", f"lateness: {lateness}"))
        for part in walk.removeprefix("$ ").split("\n$ "):
            command, _, shown = part.partition("\n")
            result = CliRunner().invoke(main, command.split()[1:])
            left_out = shown.startswith("...\n")
            told = result.stdout.partition("\n")[2] if left_out else result.stdout
            assert _SECONDS.sub("", told).strip() == _SECONDS.sub("", shown.removeprefix("...\n")).strip(), command
            assert result.exit_code == ("not the same" in shown)
