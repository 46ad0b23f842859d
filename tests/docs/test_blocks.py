"""Each fenced block of a page is run or checked by a test, or is listed here with the reason why it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.docs.pages import PAGES, ROOT, Block, blocks, blocks_of

from windrow.api.pipeline_file import read_document

ELSEWHERE = {
    ("docs/guides/change-data-capture.md", "json"): "test_change_data_capture.py",
    ("docs/guides/python.md", "json"): "test_python_guide.py",
    ("docs/guides/python.md", "pycon"): "test_python_guide.py",
    ("docs/reference/cli.md", ""): "test_cli_reference.py",
    ("docs/reference/sql.md", "sql"): "test_sql_reference.py",
}
"""The blocks of a page in a language, and the test that runs them."""

NOT_RUN: dict[str, dict[str, tuple[str, ...]]] = {}
"""By reason: pages (a name or a pattern), and how each block begins."""

FRAGMENT = "yml"
"""The language of a part of a pipeline."""
"""Runs that take longer than a test may, or a machine of the reader's own."""


def covered_by(block: Block) -> str | None:
    """Return the test or the reason that covers a block."""
    page = str(block.page.relative_to(ROOT))
    if block.language == "console":
        return "test_sessions.py"
    if block.title is not None:
        used = any(later.language == "console" and later.number > block.number for later in blocks_of(block.page))
        return "test_sessions.py" if used else ELSEWHERE.get((page, block.language))
    if block.language in {"yaml", "python"}:
        return "test_pages.py"
    if block.language == FRAGMENT:
        return "below"
    return ELSEWHERE.get((page, block.language)) or _reason(block)


def _reason(block: Block) -> str | None:
    page = block.page.relative_to(ROOT)
    for reason, pages in NOT_RUN.items():
        for pattern, beginnings in pages.items():
            if page.match(pattern) and block.text.startswith(beginnings):
                return reason
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_is_run_or_has_a_reason(page: Path) -> None:
    missing = [f"{page.name}:{block.line} ({block.language or 'no language'})" for block in blocks_of(page) if not covered_by(block)]
    assert missing == [], "make it a `console` session, or a file of one (title=\"NAME\"), or list it in NOT_RUN"
