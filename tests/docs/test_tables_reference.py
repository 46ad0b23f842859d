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
OF_T = {"window_start", "window_end", "user_id", "total", "events"}
SHORT = {"timestamp with time zone": "timestamptz"}
TABLES = (*layout(PIPELINE).own, OUTBOX, *SHARED, REDRIVES, RELAYS)


def heading(table: Table) -> str:
    name = PIPELINE.sink.table
    return table.name.replace(name, "T", 1)


@pytest.mark.parametrize("table", TABLES, ids=heading)
def test_a_table_is_as_it_is_made(table: Table) -> None:
    section = re.search(rf"^## {heading(table)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = re.findall(r"^- `(\w+)` \(([a-z]+(?:\(\d+,\d+\))?)\)", section[1], re.MULTILINE)
    types = postgres_types(table)
    # the changes have the columns of the result table too
    columns = [name for name in table.columns if not (heading(table) == "T_changes" and name in OF_T)]
    assert rows == [(column, SHORT.get(types[column], types[column])) for column in columns]


def test_sqlite_and_duckdb_have_the_types_of_postgres_in_their_words() -> None:
    words = re.findall(r"^\| ([a-z0-9(),]+) \| ([A-Z]+) \| ([A-Z0-9(), ]+) \|$", TEXT, re.MULTILINE)
    of = {name: (sqlite, duckdb) for name, sqlite, duckdb in words}
    for table in set(TABLES) - {OUTBOX, RELAYS}:  # PostgreSQL's alone
        sqlite, duckdb = sqlite_types(table, "numeric"), duckdb_types(table)
        for column, kind in postgres_types(table).items():
            assert of[SHORT.get(kind, kind)] == (sqlite[column], duckdb[column])


def test_there_are_no_other_tables() -> None:
    headings = re.findall(r"^## (T\w*|windrow_\w+)$", TEXT, re.MULTILINE)
    assert headings == [heading(table) for table in TABLES]
