"""Names and values are never SQL, whatever is in them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.connectors.tables import quote
from windrow.model import (
    Aggregate,
    CollectList,
    Count,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    LogSource,
    Max,
    PostgresSink,
    Sink,
    SqliteSink,
    StringType,
    TimestampType,
    Tumbling,
)
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings

NAMES = [
    'a"b; drop table x',
    "a'b; DROP TABLE spend; --",
    'x") VALUES (1); DROP TABLE windrow_epochs; --',
    "select",
    "/* a */ --",
    "%s $1 ?1 :a {b}",
    "\\",
    "\u00e4\U0001f600",
]
VALUES = [*NAMES, "'); DROP TABLE spend; --", "\n\t", "NULL", "\\N", ""]
T0 = 1_767_225_600_000

Row = tuple[str, str, int, str]

names = st.lists(st.sampled_from(NAMES), min_size=4, max_size=4, unique=True)
values = st.lists(st.sampled_from(VALUES) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9))


def run(folder: Path, named: list[str], written: list[str], sink: Sink) -> None:
    """Take records with these values through a pipeline whose fields, key and results are named so."""
    key, time, value, result = named
    log = folder / 'it\'s a "log"; --'
    log.mkdir()
    lines = [json.dumps({key: text, time: T0 + at, value: text}) for at, text in enumerate(written)]
    # with one record a day later, and one after the end of its lateness
    lines += [json.dumps({key: "late", time: at, value: "late"}) for at in (T0 + 86_400_000, T0 - 86_400_000)]
    (log / "partition-0.jsonl").write_text("".join(f"{line}\n" for line in [*lines, "'); DROP TABLE spend; --"]))
    pipeline = Pipeline(
        name="hostile",
        source=LogSource(str(log)),
        decode=Decode((Field(key, StringType()), Field(time, TimestampType("millis")), Field(value, StringType()))),
        time=EventTime(time, Delay(0)),
        key=(key,),
        window=Tumbling(3_600_000_000),
        aggregates=(
            Aggregate(result, Max(value)),
            Aggregate(f"{result} 2", Count(), where=f"{quote(value)} <> ''"),
            Aggregate(f"{result} 3", CollectList(value, 100)),
        ),
        emit=Emit(),
        sink=sink,
        key_groups=2,
    )
    launch(
        as_graph(pipeline),
        RunSettings(folder / "checkpoint", host="memory", until_end=True),
        lambda _: None,
        lambda _: None,
    )


def expected(written: list[str]) -> list[Row]:
    counts = Counter(written)
    rows = [(text, text, count if text else 0, json.dumps([text] * count)) for text, count in counts.items()]
    return sorted([*rows, ("late", "late", 1, '["late"]')])


def told(rows: list[Row]) -> list[Row]:
    """Order rows as `expected` does, and write lists as Python does."""
    return sorted((key, most, count, json.dumps(json.loads(many))) for key, most, count, many in rows)


@given(named=names, written=values, table=st.sampled_from(NAMES))
@example(NAMES[:4], VALUES, NAMES[0])
@examples(8)
def test_hostile_names_and_values_in_sqlite(named: list[str], written: list[str], table: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x'; --.db"
        run(Path(folder), named, written, SqliteSink(str(path), table))
        columns = ", ".join(quote(name) for name in (named[0], named[3], f"{named[3]} 2", f"{named[3]} 3"))
        with closing(sqlite3.connect(path)) as db:
            rows = db.execute(f"SELECT {columns} FROM {quote(table)}").fetchall()
            [(dead,)] = db.execute(f"SELECT raw FROM {quote(f'{table}_dead')}").fetchall()
            [(late,)] = db.execute(f"SELECT record FROM {quote(f'{table}_late')}").fetchall()
    assert told(rows) == expected(written)
    assert dead == b"'); DROP TABLE spend; --"
    assert json.loads(late)[named[0]] == "late"


def test_hostile_names_and_values_in_postgres(database: str, tmp_path: Path) -> None:
    named, table = NAMES[:4], NAMES[0]
    run(tmp_path, named, VALUES, PostgresSink(database, table))
    columns = ", ".join(quote(name) for name in (named[0], named[3], f"{named[3]} 2", f"{named[3]} 3"))
    with psycopg.connect(database, cursor_factory=psycopg.RawCursor) as connection:
        rows = connection.execute(f"SELECT {columns} FROM {quote(table)}".encode()).fetchall()
    assert told(rows) == expected(VALUES)
