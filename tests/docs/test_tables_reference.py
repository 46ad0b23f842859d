"""docs/reference/tables.md has every table, its columns in order, and their types in both databases."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT
from tests.graphs import sink_spec_of

from windrow.authoring.pipeline_file import parse_pipeline
from windrow.connectors.duckdb.tables import sql_types as duckdb_types
from windrow.connectors.postgres.session import sql_types as postgres_types
from windrow.connectors.sqlite.rows import sql_types as sqlite_types
from windrow.connectors.tables import REDRIVES, RELAYS, SHARED, Table, layout, outbox

TEXT = (ROOT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
PIPELINE = sink_spec_of(parse_pipeline((ROOT / "examples" / "user_spend.yaml").read_text(encoding="utf-8")))
OUTBOX = outbox(PIPELINE.sink.table)
TABLES = (*layout(PIPELINE).own, OUTBOX, *SHARED, REDRIVES, RELAYS)


def heading(table: Table) -> str:
    name = PIPELINE.sink.table
    return table.name.replace(name, "T", 1)


@pytest.mark.parametrize("table", TABLES, ids=heading)
def test_a_table_is_as_it_is_made(table: Table) -> None:
    section = re.search(rf"^## {heading(table)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert section is not None
    sqlite, postgres = sqlite_types(table, "numeric"), postgres_types(table)
    if table in (OUTBOX, RELAYS):  # PostgreSQL's alone
        rows = re.findall(r"^\| `(\w+)` \| ([a-z ]+) \|", section[1], re.MULTILINE)
        assert rows == [(column, postgres[column]) for column in table.columns]
        return
    rows = re.findall(r"^\| `(\w+)` \| ([A-Z]+) \| ([a-z ]+) \|", section[1], re.MULTILINE)
    assert rows == [(column, sqlite[column], postgres[column]) for column in table.columns]


def test_duckdb_has_the_types_of_postgres_in_its_words() -> None:
    words = dict(re.findall(r"^\| ([a-z ]+) \| ([A-Z0-9(), ]+) \|$", TEXT, re.MULTILINE))
    for table in set(TABLES) - {OUTBOX, RELAYS}:
        postgres = postgres_types(table)
        assert duckdb_types(table) == {name: words[postgres[name]] for name in table.columns}


def test_there_are_no_other_tables() -> None:
    headings = re.findall(r"^## (T\w*|windrow_\w+)$", TEXT, re.MULTILINE)
    assert headings == [heading(table) for table in TABLES]
