"""What PostgreSQL holds of a topic, compared row by row with what the definition says of it, in SQL.

The oracle's reader decides which records are good; everything after that is a query over all of them: the watermark at
a record is the greatest event time before it in its partition, minus the delay, and the verdict follows from it. So a
day of records takes DuckDB's memory limit and some room on the disk, and no process keeps them.

All records of a user are in one partition, and partitions neither join nor become idle, so nothing depends on steps.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.authoring.load import open_pipeline
from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.open_sources import open_source
from windrow.model import KafkaSource, WindowNode
from windrow.testing.oracle import LogRecord
from windrow.testing.oracle.answer import WindowedSource
from windrow.testing.oracle.reading import DeadLetterError, read

SECOND = 1_000_000
DELAY, LATENESS, WINDOW = 10 * SECOND, 60 * SECOND, 10 * SECOND

_SHOWN = 5
_CHUNK, _FETCHED = 100_000, 50_000
_RECORDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("user_id", pa.string()),
        ("time", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        ("n", pa.int64()),
        ("note", pa.string()),
    ]
)


def pipeline(servers: str, topic: str, url: str) -> str:
    """Return the text of what runs: purchases without copies by user and 10 s, the copies, and what notes say."""

    def table(name: str, more: str = "") -> str:
        return f'{{postgres: {{url: "{url}", table: {name}{more}}}}}'

    return f"""\
name: soak
sources:
  purchases:
    source: {{kafka: {{servers: "{servers}", topic: {topic}}}}}
    decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)", n: "long?", note: "string?"}}
    time: {{field: event_time, delay: 10s, future: 1h}}
    lateness: 1m
streams:
  unique: {{from: purchases, deduplicate: {{by: [user_id, event_time, amount], within: 1m}}}}
  spent:
    from: unique
    key: user_id
    window: {{tumbling: 10s}}
    aggregate: {{total: sum(amount), n: sum(n), events: count()}}
    emit: {{lateness: 1m}}
  noted: {{from: purchases, where: note IS NOT NULL}}
  codes: {{from: noted, derive: {{code: CAST(note AS BIGINT)}}, select: [user_id, code]}}
  newest:
    from: noted
    key: user_id
    window: {{tumbling: 10s}}
    aggregate: {{newest: last_in_log(note), code: CAST(newest AS BIGINT)}}
    emit: {{lateness: 1m}}
sinks:
  to_spent: {{from: spent, sink: {table("spent")}}}
  to_copies: {{from: unique.duplicates, sink: {table("copies", ", changelog: false")}}}
  to_codes: {{from: codes, sink: {table("codes", ", changelog: false")}}}
  to_newest: {{from: newest, sink: {table("newest", ", changelog: false")}}}
"""


_JUDGED = f"""
    WITH clocks AS (
        SELECT *, "time" - (("time" % {WINDOW}) + {WINDOW}) % {WINDOW} AS start, octet_length(encode(user_id)) AS size,
            max("time") OVER (
                PARTITION BY partition ORDER BY "offset" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) - {DELAY} AS watermark
        FROM records
    )
    SELECT * EXCLUDE size, size > 2048 AS is_long,
        coalesce(watermark >= "time" + {LATENESS}, false) AS is_expired,
        coalesce(watermark >= start + {WINDOW}, false) AS is_late
    FROM clocks
"""
"""`records` with the start of their window and their verdicts; of those that are dead letters these are null."""
_ACCEPTED = """
    SELECT *, row_number() OVER (
            PARTITION BY user_id, "time", amount ORDER BY watermark NULLS FIRST, partition, "offset"
        ) = 1 AS is_first
    FROM judged WHERE reason IS NULL AND NOT is_expired AND NOT is_long
"""
"""What the deduplication reads; a record is a copy if another one came first."""


def _revisions(given: str) -> str:
    """Return SQL with the rows of each window and user in their order: the on-time pane, then each late record."""
    return f"""
        WITH turns AS (
            SELECT *, CASE WHEN is_late THEN row_number() OVER (
                PARTITION BY start, user_id, is_late ORDER BY partition, "offset"
            ) ELSE 0 END AS turn
            FROM {given}
        ), panes AS (
            SELECT start, user_id, turn, sum(amount) AS total, sum(n) AS n, count(*) AS events,
                arg_max(note, "offset") AS note
            FROM turns GROUP BY ALL
        )
        SELECT start, user_id, CASE turn WHEN 0 THEN 'on_time' ELSE 'late' END AS pane,
            row_number() OVER rows_of - 1 AS revision, sum(total) OVER rows_of AS total, sum(n) OVER rows_of AS n,
            sum(events) OVER rows_of AS events, note
        FROM panes WINDOW rows_of AS (PARTITION BY start, user_id ORDER BY turn)
    """


_TABLES = {
    "judged": _JUDGED,
    "accepted": _ACCEPTED,
    "spent": _revisions("accepted WHERE is_first"),
    "noted": "FROM judged WHERE reason IS NULL AND note IS NOT NULL",
    "newest": _revisions("noted WHERE NOT is_expired AND NOT is_long"),
}
_LAST = "QUALIFY row_number() OVER (PARTITION BY start, user_id ORDER BY revision DESC) = 1"
_CODED = "(FROM noted WHERE TRY_CAST(note AS BIGINT) IS NOT NULL)"
_WINDOW = f"start, start + {WINDOW}, user_id"
_NAME = f"""
    'window ' || strftime(make_timestamp(start), '%Y-%m-%dT%H:%M:%SZ') || ' to '
    || strftime(make_timestamp(start + {WINDOW}), '%Y-%m-%dT%H:%M:%SZ') || ', user_id=' || user_id
"""
_DEAD_ROW = f"""
    SELECT NULL, NULL, 'expression', {_NAME} FROM newest WHERE TRY_CAST(note AS BIGINT) IS NULL
"""


_AT = 'partition, "offset"'


def _late(given: str) -> str:
    """Return SQL with the late output of a source's door, where a record's window is its own microsecond."""
    return (
        f'SELECT partition, "offset", "time", "time" + 1, (watermark - "time" - 1) // 1000 FROM {given} '
        "WHERE is_expired AND reason IS NULL"
    )


def _dead(given: str, *more: str) -> str:
    """Return SQL with dead letters: records that are not good, those with a long key, and others."""
    bad = f"SELECT {_AT}, reason, '' FROM judged WHERE reason IS NOT NULL"
    long = f"SELECT {_AT}, 'long key', '' FROM {given} WHERE is_long AND NOT is_expired AND reason IS NULL"
    return " UNION ALL ".join((bad, long, *more))


def _micros(column: str) -> str:
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


_BOUNDS = f"{_micros('window_start')}, {_micros('window_end')}"
_CHANGES = f"""
    SELECT {_BOUNDS}, user_id, row_number() OVER (PARTITION BY window_start, user_id ORDER BY epoch, seq) - 1,
        op, pane, revision, total, n, events
    FROM spent_changes
"""
_PLAIN_NUMBER = pa.decimal128(38, 0)
_MONEY = pa.decimal128(38, 2)
_KEY = (pa.int64(), pa.int64(), pa.string())
_PLACE = (pa.int32(), pa.int64())


@dataclass(frozen=True)
class Check:
    """A table, by what it should hold in DuckDB's SQL and what it does in PostgreSQL's, in columns of such types."""

    name: str
    expected: str
    actual: str
    types: tuple[pa.DataType, ...]


CHECKS = (
    Check(
        "spent",
        f"SELECT {_WINDOW}, total, n, events, pane, revision FROM spent {_LAST}",
        f"SELECT {_BOUNDS}, user_id, total, n, events, pane, revision FROM spent",
        (*_KEY, _MONEY, _PLAIN_NUMBER, pa.int64(), pa.string(), pa.int64()),
    ),
    Check(
        "spent_changes",
        f"""
        SELECT {_WINDOW}, 2 * revision, CASE revision WHEN 0 THEN 'insert' ELSE 'update_after' END, pane, revision,
            total, n, events
        FROM spent
        UNION ALL
        SELECT {_WINDOW}, 2 * revision + 1, 'update_before', next_pane, revision, total, n, events
        FROM (FROM spent SELECT *, lead(pane) OVER (PARTITION BY start, user_id ORDER BY revision) AS next_pane)
        WHERE next_pane IS NOT NULL
        """,
        _CHANGES,
        (*_KEY, pa.int64(), pa.string(), pa.string(), pa.int64(), _MONEY, _PLAIN_NUMBER, pa.int64()),
    ),
    Check(
        "copies",
        f'SELECT {_AT}, user_id, "time", amount, n, note FROM accepted WHERE NOT is_first',
        f"SELECT {_AT}, user_id, {_micros('event_time')}, amount, n, note FROM copies",
        (*_PLACE, pa.string(), pa.int64(), _MONEY, _PLAIN_NUMBER, pa.string()),
    ),
    Check(
        "codes",
        f"SELECT {_AT}, user_id, TRY_CAST(note AS BIGINT) AS code FROM noted WHERE NOT is_expired AND code IS NOT NULL",
        f"SELECT {_AT}, user_id, code FROM codes",
        (*_PLACE, pa.string(), pa.int64()),
    ),
    Check(
        "newest",
        f"""
        SELECT {_WINDOW}, note, TRY_CAST(note AS BIGINT) AS code, pane, revision
        FROM (FROM newest {_LAST}) WHERE code IS NOT NULL
        """,
        f"SELECT {_BOUNDS}, user_id, newest, code, pane, revision FROM newest",
        (*_KEY, pa.string(), pa.int64(), pa.string(), pa.int64()),
    ),
    *(
        Check(
            f"{table}_late",
            _late(given),
            f"SELECT {_AT}, {_micros('event_time')}, {_micros('window_end')}, lateness_ms FROM {table}_late",
            (*_PLACE, pa.int64(), pa.int64(), pa.int64()),
        )
        for table, given in (("spent", "judged"), ("copies", "judged"), ("codes", _CODED), ("newest", "noted"))
    ),
    *(
        Check(
            f"{table}_dead",
            dead,
            f"SELECT {_AT}, split_part(reason, ':', 1), "
            f"CASE WHEN partition IS NULL THEN substring(reason FROM 'window .*') ELSE '' END FROM {table}_dead",
            (*_PLACE, pa.string(), pa.string()),
        )
        for table, dead in {
            "spent": _dead("judged"),
            "copies": _dead("judged"),
            "codes": _dead(
                "(FROM noted WHERE false)",
                # a stream's expression is computed before the door decides
                f"SELECT {_AT}, 'expression', '' FROM noted WHERE TRY_CAST(note AS BIGINT) IS NULL",
            ),
            "newest": _dead("noted", _DEAD_ROW),
        }.items()
    ),
)


@dataclass(frozen=True)
class Verdict:
    """How many records and rows there are, and what differs."""

    records: int
    rows: dict[str, int]
    differences: list[str]

    @property
    def is_right(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    @property
    def said(self) -> str:
        """The verdict in words."""
        rows = ", ".join(f"{name} {count:,}" for name, count in self.rows.items())
        end = "\n  ".join(["THE TABLES DIFFER", *self.differences]) if self.differences else "all rows are right"
        return f"{self.records:,} records; {rows}: {end}"


class Truth:
    """What the tables of a pipeline in a file should hold of its topic; the text is `pipeline`'s."""

    def __init__(self, records: int, engine: duckdb.DuckDBPyConnection) -> None:
        self._records = records
        self._engine = engine

    def verdict(self, url: str) -> Verdict:
        """Compare the tables of a database with it."""
        differences: list[str] = []
        rows: dict[str, int] = {}
        with psycopg.connect(url) as tables:
            for check in CHECKS:
                rows[check.name], found = _compare(self._engine, tables, check)
                differences += found
        return Verdict(self._records, rows, differences)


@contextmanager
def truth(file: Path, memory: str = "4GB") -> Iterator[Truth]:
    """Read the topic of a pipeline in a file."""
    with tempfile.TemporaryDirectory(prefix="windrow-verdict-") as name:
        folder = Path(name)
        records = _decode(file, folder)
        with duckdb.connect(str(folder / "verdict.db"), config={"memory_limit": memory}) as engine:
            engine.execute(f"CREATE VIEW records AS FROM read_parquet('{folder}/*.parquet')")
            for table, sql in _TABLES.items():
                engine.execute(f"CREATE TABLE {table} AS {sql}")
            yield Truth(records, engine)


def _compare(engine: duckdb.DuckDBPyConnection, tables: psycopg.Connection[Any], check: Check) -> tuple[int, list[str]]:
    """Return the number of rows that there should be, and lines for those that are missing or too many."""
    names = [f"c{number}" for number in range(len(check.types))]
    schema = pa.schema(list(zip(names, check.types, strict=True)))
    engine.execute(f"CREATE OR REPLACE TABLE expected AS FROM ({check.expected}) AS found({', '.join(names)})")
    engine.register("part", schema.empty_table())
    engine.execute("CREATE OR REPLACE TABLE actual AS FROM part")
    for part in _fetched(tables, check.actual, schema):
        engine.register("part", part)
        engine.execute("INSERT INTO actual FROM part")
    # in the types of the tables: those of the expectation are wider, for sums
    types = engine.execute("DESCRIBE actual").fetchall()
    columns = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_, *_ in types)
    lines = []
    for what, one, other in (("missing", "expected", "actual"), ("not expected", "actual", "expected")):
        query = f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}"
        [(count,)] = engine.execute(f"SELECT count(*) FROM ({query})").fetchall()
        if count:
            shown = engine.execute(f"FROM ({query}) ORDER BY ALL LIMIT {_SHOWN}").fetchall()
            lines.append(f"{check.name}: {count:,} rows are {what}, such as {', '.join(map(_shown, shown))}")
    [(count,)] = engine.execute("SELECT count(*) FROM expected").fetchall()
    return int(count), lines


def _shown(row: tuple[Any, ...]) -> str:
    return "(" + ", ".join(str(value)[:60] for value in row) + ")"


def _fetched(tables: psycopg.Connection[Any], query: str, schema: pa.Schema) -> Iterator[pa.Table]:
    with tables.cursor("rows") as cursor:
        cursor.execute(query.encode())
        while rows := cursor.fetchmany(_FETCHED):
            yield pa.table(
                [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)],
                schema=schema,
            )


def _decode(file: Path, folder: Path) -> int:
    """Write what the topic holds, decoded, to Parquet files in a folder; return how many records that are."""
    ends = open_source(source_of(file).source.source).ends()
    tasks = [
        (file, folder, partition, at, min(at + _CHUNK, end))
        for partition, (begin, end) in sorted(ends.items())
        for at in range(begin, end, _CHUNK)
    ]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        return sum(pool.map(_decode_part, tasks))


def source_of(file: Path) -> WindowedSource:
    """Return the source of a pipeline with a window without a key, by which a record cannot fail."""
    graph = open_pipeline(str(file)).runnable()
    node = next(node for node in graph.keyed if isinstance(node, WindowNode))
    return WindowedSource(graph.name, graph.sources[0], replace(node, key=(), aggregates=()))


def read_record(source: WindowedSource, log_time: int | None, value: bytes | None) -> tuple[Any, ...]:
    """Return the reason why a record is a dead letter, or None and its fields."""
    try:
        reading = read(source, LogRecord(0, log_time, value))
    except DeadLetterError as exc:
        return str(exc), None, None, None, None, None
    fields = reading.fields or {}
    return None, fields["user_id"], reading.time, fields["amount"], fields["n"], fields["note"]


def _decode_part(task: tuple[Path, Path, int, int, int]) -> int:
    file, folder, partition, begin, end = task
    source = source_of(file)
    if not isinstance(source.source.source, KafkaSource):
        raise TypeError(source.source.source)
    rows: list[tuple[Any, ...]] = []
    for batch in KafkaTopic(source.source.source).read_ranges({partition: (begin, end)}):
        times = batch["log_time"].cast(pa.int64())
        columns = (column.to_pylist() for column in (batch["offset"], times, batch["value"]))
        rows += [(partition, at, *read_record(source, *given)) for at, *given in zip(*columns, strict=True)]
    fields = zip(zip(*rows, strict=True), _RECORDS, strict=True)
    arrays = [pa.array(column, field.type) for column, field in fields]
    pq.write_table(pa.table(arrays, schema=_RECORDS), folder / f"{partition}-{begin}.parquet")
    return len(rows)
