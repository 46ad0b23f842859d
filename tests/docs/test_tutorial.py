"""The tutorial: its chapters lead to each other, and the cells of its notebook give what they show.

What its commands print is compared by `test_sessions.py`.
"""

from __future__ import annotations

import doctest
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import pytest
from tests.docs.pages import ROOT, blocks
from tests.docs.sessions import files_of

CHAPTERS = sorted((ROOT / "docs" / "tutorial").glob("[1-9]-*.md"))
NOTEBOOK = ROOT / "docs" / "tutorial" / "3-notebook.md"


def test_chapters_are_listed_and_lead_to_the_next() -> None:
    contents = (ROOT / "docs" / "tutorial" / "README.md").read_text(encoding="utf-8")
    assert [f"({page.name})" for page in CHAPTERS if f"({page.name})" not in contents] == []
    for page, following in pairwise(CHAPTERS):
        assert page.read_text(encoding="utf-8").rstrip().rpartition("\nNext: ")[2].endswith(f"({following.name}).")


def test_the_cells_of_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in files_of(NOTEBOOK):
        assert block.title is not None
        file = tmp_path / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
    text = "\n".join(block.text for block in blocks("pycon") if block.page == NOTEBOOK)
    cells = doctest.DocTestParser().get_doctest(text, {}, NOTEBOOK.name, str(NOTEBOOK), 0)
    said: list[str] = []
    with mpl.rc_context({"backend": "agg"}):
        found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(cells, out=said.append)
    assert found.attempted
    assert not found.failed, "".join(said)
