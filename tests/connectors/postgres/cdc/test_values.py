"""PostgreSQL's text output as JSON."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.connectors.postgres.cdc.server import connected
from windrow.connectors.postgres.cdc.values import TypeCatalog, array_to_json, text
from windrow.connectors.postgres.client import Server

CASES: list[tuple[str, str, Any]] = [
    ("smallint", "-7", -7),
    ("bigint", "9223372036854775807", 9223372036854775807),
    ("oid", "4294967295", 4294967295),
    ("float8", "'1e-300'", 1e-300),
    ("float8", "'NaN'", "NaN"),
    ("float4", "'-Infinity'", "-Infinity"),
    ("numeric(12,2)", "1", 1.00),
    ("numeric", "'NaN'", "NaN"),
    ("boolean", "true", True),
    ("bytea", r"'\x0102ff'", "AQL/"),
    ("date", "'2026-01-02'", 20455),
    ("date", "'1969-12-31'", -1),
    ("date", "'infinity'", "infinity"),
    ("date", "'0044-03-15 BC'", "0044-03-15 BC"),
    ("time", "'10:00:01.5'", 36_001_500_000),
    ("time", "'24:00'", 86_400_000_000),
    ("timetz", "'10:00:01+02'", "10:00:01+02"),
    ("timestamp", "'2026-01-01 10:00:00.123456'", 1_767_261_600_123_456),
    ("timestamp", "'1969-12-31 23:59:59.999999'", -1),
    ("timestamp", "'infinity'", "infinity"),
    ("timestamp", "'12026-01-01 10:00'", "12026-01-01 10:00:00"),
    ("timestamptz", "'2026-01-01 12:00:00.5+02'", "2026-01-01T10:00:00.5Z"),
    ("timestamptz", "'-infinity'", "-infinity"),
    ("interval", "'1 day 2 hours'", "P1DT2H"),
    ("jsonb", """'{"a": [1, "x"]}'""", '{"a": [1, "x"]}'),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("text", "E'a\"\\\\\n\u2028é'", 'a"\\\n\u2028é'),
    ("int[]", "'[2:4]={1,2,NULL}'", [1, 2, None]),
    ("text[]", """'{"a,b","NULL",NULL,"q\\"q\\\\",""}'""", ["a,b", "NULL", None, 'q"q\\', ""]),
    ("text[]", "'{{a,b},{c,d}}'", [["a", "b"], ["c", "d"]]),
    ("date[]", "'{2026-01-02}'", [20455]),
    ("int2vector", "'1 2 3'", "1 2 3"),
    ("cents", "5", 5),
    ("prices", "'{5,6}'", [5, 6]),
    ("mood", "'ok'", "ok"),
]


@pytest.fixture
def types(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("CREATE DOMAIN cents AS bigint; CREATE DOMAIN prices AS cents[]; CREATE TYPE mood AS ENUM ('ok')")
    return database


def test_values_of_types(types: str) -> None:
    catalog = TypeCatalog()
    with connected(Server(types, "source")) as sql:
        for name, literal, expected in CASES:
            [(oid,)] = sql.execute("SELECT $1::regtype::oid", (name.partition("(")[0],)).fetchall()
            with sql.cursor().copy(f"COPY (SELECT {literal}::{name}) TO STDOUT") as copy:
                [[value]] = copy.rows()
            catalog.learn(sql, [int(str(oid))])
            assert json.loads(catalog.to_json(int(str(oid)))(str(value))) == expected, (name, literal)


def test_a_type_that_was_dropped_is_text(database: str) -> None:
    catalog = TypeCatalog()
    with connected(Server(database, "source")) as sql:
        catalog.learn(sql, [4_000_000_000])
    assert catalog.to_json(4_000_000_000)("x") == '"x"'


LETTERS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@given(st.lists(st.none() | LETTERS))
def test_an_array_of_text_is_read_back(values: list[str | None]) -> None:
    quoted = ["NULL" if one is None else '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"' for one in values]
    assert json.loads(array_to_json(f"{{{','.join(quoted)}}}", text)) == values
