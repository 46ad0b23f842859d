"""The page on SQL: each of its pipelines is one, and each type and option in it is known."""

from __future__ import annotations

import pytest
from tests.docs.pages import ROOT, Block, blocks

from windrow.authoring.checks import validate
from windrow.authoring.pipeline_file import read_document

PAGE = ROOT / "docs" / "reference" / "sql.md"
SQL = [block for block in blocks("sql") if block.page == PAGE]
TABLES = next(block for block in SQL if "PRIMARY KEY" in block.text)
_UNUSED = ("no stream reads it", "no sink writes its rows")


@pytest.mark.parametrize("block", [block for block in SQL if block is not TABLES], ids=lambda block: block.name)
def test_examples_are_pipelines(block: Block) -> None:
    whole = block.text if block.text.startswith("SET") else TABLES.text + block.text
    document = read_document(whole, "example.sql")
    errors = [
        f"{document.place(one.where)}: {one.message}" for one in validate(document.pipeline) if one.level == "error"
    ]
    assert [one for one in errors if not any(unused in one for unused in _UNUSED)] == []


def test_the_first_example_is_the_one_in_examples() -> None:
    example = (ROOT / "examples" / "user_spend.sql").read_text(encoding="utf-8")
    assert SQL[0].text in example
