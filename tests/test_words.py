"""Turns of phrase that no source and no page has: they read as translated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TICS = re.compile(
    r"\bfor one in\b|\b(?<!one )of which\b|\bso many\b|(?<!there )\bis none\b|\bgoes on\b|\bmend(s|ed|ing)?\b"
)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def tics(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if TICS.search(line)]


@pytest.mark.parametrize("line", ["for one in names:", "records, of which two", "so many rows", "a row that is none"])
def test_a_tic_is_found(line: str) -> None:
    assert tics(line) == [line]


@pytest.mark.parametrize("line", ["None if there is none", "days in Berlin, one of which has 23 hours"])
def test_plain_english_has_no_tic(line: str) -> None:
    assert tics(line) == []


def test_no_source_has_a_tic() -> None:
    found = {path: tics(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "src").rglob("*.py"))}
    assert {str(path): lines for path, lines in found.items() if lines} == {}


def test_no_page_has_a_tic() -> None:
    found = {path: tics(FENCE.sub("", path.read_text(encoding="utf-8"))) for path in PAGES}
    assert {str(path): lines for path, lines in found.items() if lines} == {}
