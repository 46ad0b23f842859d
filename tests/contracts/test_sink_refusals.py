"""In every sink, a row that cannot be written is a dead letter; its earlier revision is deleted, its next inserted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from typing import Any
from unittest import mock

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.contracts.steps import DAY, MINUTE, RUN, change, step
from tests.contracts.stores import AnyStore, PostgresStore, SqliteStore, Store, TableStore, committed
from tests.short_forms import Pipeline

from windrow.connectors import step_folder, tables
from windrow.connectors.delta import sink as delta
from windrow.connectors.duckdb.tables import DuckDBSession
from windrow.connectors.jsonl import sink as jsonl
from windrow.connectors.postgres.session import PostgresSession
from windrow.connectors.sql import tables as sql_tables
from windrow.connectors.sqlite import tables as sqlite
from windrow.connectors.tables import EPOCHS, Table
from windrow.errors import SinkError
from windrow.model import Aggregate, Decode, DoubleType, Field, Max, Min, StringType, TimestampType
from windrow.testing.servers.postgres import Postgres

BAD = Decimal(13)
STEPS = [
    [
        change("insert", 0, "A", Decimal(1), 1),
        change("insert", 0, "B", BAD, 1),
        change("insert", 0, "C", Decimal(2), 1),
    ],
    [
        change("update_before", 0, "A", Decimal(1), 1, pane="late"),
        change("update_after", 0, "A", BAD, 2, pane="late", revision=1),
        change("update_before", 0, "B", BAD, 1, pane="late"),
        change("update_after", 0, "B", Decimal(3), 2, pane="late", revision=1),
    ],
    [
        change("update_before", 0, "A", BAD, 2, pane="late", revision=1),
        change("update_after", 0, "A", Decimal(5), 3, pane="late", revision=2),
        change("update_before", 0, "C", Decimal(2), 1, pane="late"),
        change("update_after", 0, "C", BAD, 2, pane="late", revision=1),
        change("update_before", 0, "C", BAD, 2, pane="late", revision=1),
        change("update_after", 0, "C", Decimal(4), 3, pane="late", revision=2),
    ],
]
CHANGES = [
    ("insert", "A", 1, 0),
    ("delete", "A", 1, 1),
    ("insert", "A", 5, 2),
    ("insert", "B", 3, 1),
    ("insert", "C", 2, 0),
    ("delete", "C", 2, 1),
    ("insert", "C", 4, 2),
]
ROWS = [("A", 5, 2), ("B", 3, 1), ("C", 4, 2)]
CUTS = {"one by one": STEPS, "at once": [list(chain(*STEPS))]}
STORABLE = tables.storable_dead
PLACES = {
    "sqlite": (sqlite, "values"),
    "duckdb": (DuckDBSession, "_over"),
    "postgres": (PostgresSession, "_copy"),
    "delta": (step_folder, "encode_parquet"),
    "parquet": (step_folder, "encode_parquet"),
    "jsonl": (jsonl, "json_objects"),
}
"""Where each sink converts rows."""


def failing(write: Callable[..., Any]) -> Callable[..., Any]:
    """A function that fails for rows of a table with the bad value."""

    def wrapper(*arguments: Any) -> Any:  # noqa: ANN401 - those of any sink
        for rows in arguments:
            if isinstance(rows, pa.Table | pa.RecordBatch) and "total" in rows.schema.names:
                totals = rows.column("total")
                if pc.any(pc.equal(totals, pa.scalar(BAD, totals.type))).as_py():
                    msg = f"unlucky at {id(rows):#x}\nof {rows.num_rows}"
                    raise ValueError(msg)
        return write(*arguments)

    return wrapper


@pytest.fixture
def fault(store: AnyStore) -> Iterator[None]:
    """Have the sink fail to convert rows with the bad value."""
    target, name = PLACES[store.settings().section]
    with mock.patch.object(target, name, failing(getattr(target, name))):
        yield


def constrain(store: Store, table: str = "spend", check: str = "total <> 13") -> None:
    """Have the database refuse rows with the bad value in an empty table, as a user might."""
    if isinstance(store, PostgresStore):
        store.query(f"ALTER TABLE {table} ADD CONSTRAINT lucky CHECK ({check})")
        return
    is_sqlite = isinstance(store, SqliteStore)
    of = "sql, '' FROM sqlite_master WHERE name" if is_sqlite else "sql, comment FROM duckdb_tables() WHERE table_name"
    [(sql, comment)] = store.query(f"SELECT {of} = '{table}'")
    begin, _, end = sql.rpartition(")")
    store.query(f"DROP TABLE {table}")
    store.query(f"{begin}, CONSTRAINT lucky CHECK ({check})){end}")
    if comment:
        store.query(f"COMMENT ON TABLE {table} IS '{comment}'")


def found(store: AnyStore, model: Pipeline) -> tuple[list[Any], list[Any], list[Any]]:
    """The changelog by key, the rows, and the dead letters by key."""
    changes = [(row["op"], row["user"], row["total"], row["revision"]) for row in store.changes(model)]
    rows = [(row["user"], row["total"], row["revision"]) for row in store.result(model)]
    dead = store.read(store.tables(model).dead)
    letters = [(row["source"], row["partition"], row["offset"], row["reason"], json.loads(row["raw"])) for row in dead]
    return sorted(changes, key=lambda row: row[1]), sorted(rows), sorted(letters, key=lambda row: row[3])


def letters_of(reason: str) -> list[Any]:
    start, end = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
    return [
        (
            "spend",
            None,
            None,
            f"{reason}: at window {start} to {end}, user={user}",
            {"window_start": start, "window_end": end, "user": user, "total": "13.00", "events": events},
        )
        for user, events in (("A", 2), ("B", 1), ("C", 2))
    ]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.usefixtures("fault")
def test_a_row_that_cannot_be_converted_is_a_dead_letter(store: AnyStore, cut: str) -> None:
    model = store.model()
    committed(store, model, *(step(model, rows) for rows in CUTS[cut]))
    assert found(store, model) == (CHANGES, ROWS, letters_of("internal: write: ValueError: unlucky at ..."))


@pytest.mark.parametrize("cut", CUTS)
def test_a_row_that_the_database_refuses_is_a_dead_letter(store: Store, cut: str) -> None:
    model = store.model()
    committed(store, model)
    constrain(store)
    committed(store, model, *(step(model, rows) for rows in CUTS[cut]))
    changes, rows, letters = found(store, model)
    assert (changes, rows) == (CHANGES, ROWS)
    reason = letters[0][3].partition(": at window")[0]
    assert reason.startswith("refused: ")
    assert "lucky" in reason or "total" in reason
    assert letters == letters_of(reason)


LATE = [["spend", 0, at, DAY, DAY, DAY + 5 * MINUTE, at, "expired", f'{{"user": "{at}"}}'] for at in range(4)]


@pytest.mark.parametrize("cut", CUTS)
def test_a_late_row_that_the_database_refuses_is_a_dead_letter(store: Store, cut: str) -> None:
    model = store.model()
    committed(store, model)
    constrain(store, "spend_late", "lateness_ms % 2 = 0")
    parts = [LATE[:2], LATE[2:]] if cut == "one by one" else [LATE]
    committed(
        store, model, *(step(model, STEPS[0][:1] if not at else (), late=at_once) for at, at_once in enumerate(parts))
    )
    assert [row["offset"] for row in store.read(store.tables(model).late, '"offset"')] == [0, 2]
    assert [row["user"] for row in store.result(model)] == ["A"]
    dead = store.read(store.tables(model).dead, '"offset"')
    assert [(row["source"], row["partition"], row["offset"]) for row in dead] == [("spend", 0, 1), ("spend", 0, 3)]
    assert all(row["reason"].startswith("refused: ") and re.search("lucky|lateness", row["reason"]) for row in dead)
    assert [json.loads(row["raw"])["record"] for row in dead] == ['{"user": "1"}', '{"user": "3"}']


LETTER = ["spend", 0, 5, None, "amount: '漢' is no decimal, é", "漢".encode()]
LACKED = (
    'refused: PostgreSQL: character with byte sequence 0xe6 0xbc 0xa2 in encoding "UTF8" has no equivalent in encoding'
)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
@pytest.mark.parametrize("outbox", [False, True])
def test_a_character_that_the_encoding_lacks_ends_no_run(
    postgres: Postgres,
    encoding: str,
    outbox: bool,  # noqa: FBT001 - pytest's
) -> None:
    name = f"test_{encoding}_{outbox}".lower()
    with psycopg.connect(postgres.url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())
    store = PostgresStore(postgres.url_of(name), outbox=outbox)
    model = store.model()
    first = [change("insert", 0, user, Decimal(1), 1) for user in ("é", "漢", "😀", "A")]
    revised = [
        change("update_before", 0, "漢", Decimal(1), 1, pane="late"),
        change("update_after", 0, "漢", Decimal(2), 2, pane="late", revision=1),
    ]
    late = [["spend", 0, at, DAY, DAY, DAY, 5, "expired", f'{{"user": "{user}"}}'] for at, user in enumerate("漢é")]
    committed(store, model, step(model, first, late=late, dead=[LETTER]), step(model, revised))
    lacked = {"LATIN1": "漢😀", "SQL_ASCII": "", "EUC_JP": "😀"}[encoding]
    with psycopg.connect(store.url, client_encoding="utf8") as reader:
        rows = [user for (user,) in reader.execute('SELECT "user" FROM spend')]
        kept = [record for (record,) in reader.execute("SELECT record FROM spend_late")]
        letters = reader.execute('SELECT "offset", reason, raw FROM spend_dead').fetchall()
    assert sorted(rows) == sorted(set("é漢😀A") - set(lacked))
    is_lacked = "漢" in lacked
    assert len(kept) == 2 - is_lacked
    reasons = sorted((offset if offset is not None else -1, reason) for offset, reason, _ in letters)
    escaped = "amount: '\\u6f22' is no decimal, \\xe9" if is_lacked else LETTER[4]
    assert (5, escaped) in reasons
    assert [raw for offset, _, raw in letters if offset == 5] == ["漢".encode()]
    of_rows = [reason.rpartition("user=")[2] for offset, reason in reasons if offset == -1]
    assert sorted(of_rows) == ["\\U0001f600"] * ("😀" in lacked) + ["\\u6f22"] * 2 * is_lacked
    assert [reason for offset, reason in reasons if offset == 0] == [f'{LACKED} "LATIN1"'] * is_lacked
    assert [row["epoch"] for row in store.read(EPOCHS)] == [0, 1]
    postgres.drop_database(name)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.usefixtures("fault")
def test_dead_letters_do_not_depend_on_the_cut_without_a_changelog(store: TableStore, cut: str) -> None:
    model = store.model(sink=replace(store.settings(), changelog=False))
    steps = [[row for row in rows if row[0] != "update_before"] for rows in CUTS[cut]]
    committed(store, model, *(step(model, rows) for rows in steps))
    _, rows, letters = found(store, model)
    assert (rows, letters) == (ROWS, letters_of("internal: write: ValueError: unlucky at ..."))


def interrupted(dead: pa.Table) -> pa.Table:
    """End the process when a dead letter is written."""
    if dead.num_rows:
        raise KeyboardInterrupt
    return STORABLE(dead)


@pytest.mark.usefixtures("fault")
def test_a_step_with_such_a_row_is_written_once_after_a_crash(store: AnyStore) -> None:
    model = store.model()
    committed(store, model, step(model, STEPS[0]))
    sink = store.sink(model)
    sink.open(RUN)
    with ExitStack() as patched:
        for module in (sql_tables, step_folder, delta):
            of = module.tables if module is sql_tables else module
            patched.enter_context(mock.patch.object(of, "storable_dead", interrupted))
        patched.enter_context(pytest.raises(KeyboardInterrupt))
        sink.commit(1, step(model, STEPS[1]))
    sink.close()
    sink = store.sink(model)
    assert sink.open(RUN) == 0
    letters = [sink.commit(1, step(model, STEPS[1])) for _ in range(2)]
    assert [[dead.num_rows for dead in those or ()] for those in letters] == [[1], [0]]
    sink.close()
    committed(store, model, step(model, STEPS[2]))
    assert found(store, model) == (CHANGES, ROWS, letters_of("internal: write: ValueError: unlucky at ..."))


@pytest.mark.parametrize("error", [MemoryError("no memory"), OSError(28, "no space"), KeyboardInterrupt()])
def test_a_fault_of_the_machine_is_no_dead_letter(store: AnyStore, error: BaseException) -> None:
    model = store.model()
    committed(store, model, step(model, STEPS[0][:1]))
    sink = store.sink(model)
    sink.open(RUN)
    target, name = PLACES[store.settings().section]
    with mock.patch.object(target, name, side_effect=error), pytest.raises((type(error), SinkError)):
        sink.commit(1, step(model, STEPS[0][1:]))
    sink.close()
    assert store.read(store.tables(model).dead) == []
    assert [row["user"] for row in store.result(model)] == ["A"]


ODD: dict[str, tuple[str, list[Any]]] = {
    "not a number": ("least", [math.nan]),
    "U+0000": ("newest", ["a\0b"]),
    "U+0000 in the key": ("user", ["a\0b"]),
    "long key": ("user", ["".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(4_000))]),
    "first microsecond": ("at", [-(2**63)]),
    "before 4713 BC": ("at", [-220_000_000_000_000_000]),
    "window before 4713 BC": ("window_start", [-220_000_000_000_000_000]),
    "window after 9999": ("window_start", [2**62]),
}
"""Columns and values that are odd for some database."""
REFUSED = {
    ("sqlite", "not a number"): "refused: SQLite: NOT NULL constraint failed: spend_changes.least",
    ("postgres", "U+0000"): 'refused: PostgreSQL: invalid byte sequence for encoding "UTF8": 0x00',
    ("postgres", "U+0000 in the key"): 'refused: PostgreSQL: invalid byte sequence for encoding "UTF8": 0x00',
    ("postgres", "long key"): "refused: PostgreSQL: index row requires ",
    ("postgres", "first microsecond"): "internal: write: ValueError: Failed to write batch: Encode { reason: ",
    ("postgres", "before 4713 BC"): "refused: PostgreSQL: timestamp out of range",
    ("postgres", "window before 4713 BC"): "refused: PostgreSQL: timestamp out of range",
}
FIELDS = (
    Field("user", StringType()),
    Field("t", TimestampType("micros")),
    Field("text", StringType()),
    Field("share", DoubleType()),
)


@pytest.mark.parametrize("odd", ODD)
def test_a_value_that_a_database_cannot_hold_ends_no_run(store: AnyStore, odd: str) -> None:
    aggregates = (Aggregate("newest", Max("text")), Aggregate("at", Max("t")), Aggregate("least", Min("share")))
    model = store.model(decode=Decode(FIELDS), aggregates=aggregates)
    rows = step(model, [change("insert", 0, user, "x", DAY, 1.5) for user in ("u", "v")])
    name, values = ODD[odd]
    at = rows.changes.schema.get_field_index(name)
    field, column = rows.changes.schema.field(at), rows.changes.column(at)
    if pa.types.is_timestamp(field.type):
        column = column.cast(pa.int64())
    column = pa.array([*values, column[1].as_py()], column.type).cast(field.type)
    committed(store, model, replace(rows, changes=rows.changes.set_column(at, field, column)), step(model))
    assert "v" in [row["user"] for row in store.read(Table("spend", pa.schema([("user", pa.string())])))]
    reasons = [row["reason"] for row in store.read(store.tables(model).dead)]
    begin = REFUSED.get((store.settings().section, odd))
    assert len(reasons) == (begin is not None)
    assert all(begin is not None and reason.startswith(begin) for reason in reasons)
