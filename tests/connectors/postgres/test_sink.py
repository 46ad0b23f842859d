"""What only the PostgreSQL sink does."""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from tests.contracts.steps import RUN, change, edges, pipeline, step
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors.open_sinks import open_database
from windrow.connectors.postgres.client import connect, server
from windrow.connectors.postgres.sink import PostgresTables
from windrow.connectors.registry import sink_connector
from windrow.connectors.tables import layout
from windrow.engine.keys import MAX_KEY_BYTES
from windrow.errors import PipelineError, SinkError, SinkUnavailableError
from windrow.model import DecimalType, Decode, Field, PostgresSink, StringType
from windrow.testing.servers.postgres import Postgres


@pytest.fixture
def model(database: str) -> Pipeline:
    return pipeline(PostgresSink(database, "spend"))


def sink_of(model: Pipeline, lock_seconds: float = 20) -> PostgresTables:
    assert isinstance(model.sink, PostgresSink)
    return PostgresTables(sink_spec_of(model), lock_seconds=lock_seconds)


def query(model: Pipeline, sql: str) -> list[tuple[object, ...]]:
    assert isinstance(model.sink, PostgresSink)
    with psycopg.connect(model.sink.url, autocommit=True) as db:
        cursor = db.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def sink(model: Pipeline) -> Iterator[PostgresTables]:
    sink = sink_of(model)
    sink.open(RUN)
    yield sink
    sink.close()


@pytest.mark.usefixtures("sink")
def test_column_types(model: Pipeline) -> None:
    types = query(
        model,
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name IN ('spend', 'spend_dead') ORDER BY table_name, ordinal_position",
    )
    time = "timestamp with time zone"
    assert types == [
        *(("window_start", time), ("window_end", time), ("user", "text"), ("total", "numeric"), ("events", "bigint")),
        *(("pane", "text"), ("revision", "integer")),
        *(("source", "text"), ("partition", "integer"), ("offset", "bigint"), ("log_time", time), ("reason", "text")),
        ("raw", "bytea"),
    ]
    of_total = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = 'total' ORDER BY attrelid"
    assert query(model, of_total)[:2] == [("numeric(38,2)",)] * 2


def test_changes_of_a_key_in_one_step(model: Pipeline, sink: PostgresTables) -> None:
    sink.commit(0, step(model, [change("insert", 0, name, Decimal(1), 1) for name in ("B", "C", "D")]))
    rows = [
        change("insert", 0, "A", Decimal(1), 1),
        change("update_after", 0, "C", Decimal(3), 3, revision=1),
        change("delete", 0, "A", Decimal(1), 1),
        change("delete", 0, "B", Decimal(1), 1),
        change("delete", 0, "D", Decimal(1), 1),
        change("insert", 0, "B", Decimal(2), 2),
        change("insert", 5, "E", Decimal(5), 5),
        change("update_after", 5, "E", Decimal(6), 6, revision=1),
    ]
    sink.commit(1, step(model, rows))
    assert query(model, 'SELECT "user", events, revision FROM spend ORDER BY 1') == [
        ("B", 2, 0),
        ("C", 3, 1),
        ("E", 6, 1),
    ]
    assert query(model, "SELECT seq, op FROM spend_changes WHERE epoch = 1 ORDER BY seq") == [
        (number, row[0]) for number, row in enumerate(rows)
    ]
    # what rows go through is the session's, and empty
    assert query(model, "SELECT relname FROM pg_class WHERE relname LIKE 'windrow%' AND relpersistence <> 'p'") == [
        ("windrow_changed",),
        ("windrow_gone",),
    ]


def test_many_rows(model: Pipeline, sink: PostgresTables) -> None:
    """More than are encoded at a time, none of them in order."""
    rows = [change("insert", 5 * (n * 7919 % 300), f"user-{n}", Decimal(n) / 100, n) for n in range(120_000)]
    sink.commit(0, step(model, rows))
    again = [
        change("update_after", 5 * (n * 7919 % 300), f"user-{n}", Decimal(-n), n, revision=1) for n in range(60_000)
    ]
    sink.commit(1, step(model, again))
    assert query(model, "SELECT count(*), max(seq), count(DISTINCT seq) FROM spend_changes WHERE epoch = 0") == [
        (120_000, 119_999, 120_000)
    ]
    wrong = "(events < 60000 AND (total, revision) <> (-events, 1)) OR (events >= 60000 AND total * 100 <> events)"
    assert query(model, f"SELECT count(*), count(DISTINCT events) FROM spend WHERE NOT ({wrong})") == [
        (120_000, 120_000)
    ]


def test_null_in_a_column_that_came_to_the_table_on_the_way(model: Pipeline, sink: PostgresTables) -> None:
    """The schema says that a count is never null; the table has it so if it had rows before."""
    query(model, "ALTER TABLE spend ALTER events DROP NOT NULL; ALTER TABLE spend_changes ALTER events DROP NOT NULL")
    rows = step(model, [change("insert", 0, "A", Decimal(1), 1), change("insert", 0, "B", Decimal(1), 1)])
    schema = rows.changes.schema
    place = schema.get_field_index("events")
    assert not schema.field(place).nullable
    columns = [*rows.changes.columns]
    columns[place] = pa.array([None, 1], pa.int64())
    sink.commit(0, replace(rows, changes=pa.table(columns, schema=schema)))
    assert query(model, 'SELECT "user", events FROM spend ORDER BY 1') == [("A", None), ("B", 1)]


def test_an_insert_of_a_row_that_is_there_replaces_it(model: Pipeline, sink: PostgresTables) -> None:
    sink.commit(0, step(model, [change("insert", 0, name, Decimal(1), 1) for name in ("A", "B")]))
    again = [change("insert", 0, "A", Decimal(2), 2), change("update_after", 0, "B", Decimal(3), 3, revision=1)]
    sink.commit(1, step(model, [*again, change("insert", 0, "C", Decimal(4), 4)]))
    assert query(model, 'SELECT "user", events FROM spend ORDER BY 1') == [("A", 2), ("B", 3), ("C", 4)]


def test_a_crash_of_the_server_takes_nothing_that_is_committed(
    postgres: Postgres, model: Pipeline, sink: PostgresTables
) -> None:
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    query(model, "CHECKPOINT")
    output = step(model, [change("insert", 5, "A", Decimal(1), 1)])
    postgres.kill()
    postgres.start()
    with pytest.raises(SinkError, match="connection"):
        sink.commit(1, output)
    again = sink_of(model)
    assert again.open(RUN) == 0
    again.commit(1, output)
    again.close()
    assert query(model, "SELECT count(*) FROM spend_changes") == [(2,)]


def test_a_second_run_is_refused_while_the_first_is_open(model: Pipeline, sink: PostgresTables) -> None:
    second = sink_of(model, lock_seconds=0.05)
    acts: list[Callable[[], object]] = [lambda: second.open(RUN), second.clear]
    for act in acts:
        with pytest.raises(SinkError, match="a run that writes table 'spend' is still running"):
            act()
    assert isinstance(model.sink, PostgresSink)
    other = pipeline(PostgresSink(model.sink.url, "other"), name="other")
    with closing(sink_of(other)) as elsewhere:
        elsewhere.open(RUN)
    sink.close()
    second.open(RUN)
    second.close()


def test_a_refused_open_lets_go_of_the_lock(model: Pipeline) -> None:
    query(model, "CREATE TABLE spend (x integer)")
    with pytest.raises(SinkError, match="no column"):
        sink_of(model).open(RUN)
    query(model, "DROP TABLE spend")
    with closing(sink_of(model, lock_seconds=1)) as sink:
        assert sink.open(RUN) is None


def test_tables_of_one_name_in_two_schemas(model: Pipeline, sink: PostgresTables) -> None:
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    query(model, 'CREATE SCHEMA "o""ther"')
    assert isinstance(model.sink, PostgresSink)
    there = pipeline(PostgresSink(f"{model.sink.url}?options=-csearch_path%3D%22o%22%22ther%22%2Cpublic", "spend"))
    with closing(sink_of(there)) as second:
        assert second.open(RUN) is None
        second.commit(0, step(there, [change("insert", 0, "B", Decimal(1), 1)]))
    assert query(model, 'SELECT "user" FROM public.spend') == [("A",)]
    assert query(model, 'SELECT "user" FROM "o""ther".spend') == [("B",)]
    nowhere = pipeline(PostgresSink(f"{model.sink.url}?options=-csearch_path%3Dnowhere", "spend"))
    with pytest.raises(SinkError, match="no schema of this user's search_path exists"):
        sink_of(nowhere).open(RUN)


def test_the_schema_of_a_sink_comes_before_the_search_path(database: str) -> None:
    of_path, own = (pipeline(PostgresSink(database, "spend", schema=schema)) for schema in (None, 'it\'s "own"'))
    refused = pytest.raises(SinkError, match=r"no schema .*own.*: CREATE SCHEMA")
    with refused:
        sink_of(own).open(RUN)
    query(of_path, 'CREATE SCHEMA "it\'s ""own"""')
    for model, user in ((of_path, "A"), (own, "B")):
        with closing(sink_of(model)) as sink:
            assert sink.open(RUN) is None
            sink.commit(0, step(model, [change("insert", 0, user, Decimal(1), 1)]))
    assert query(of_path, 'SELECT "user" FROM public.spend') == [("A",)]
    assert query(of_path, 'SELECT "user" FROM "it\'s ""own""".spend') == [("B",)]
    with open_database(own.sink).snapshot() as snapshot:
        assert snapshot.count(layout(sink_spec_of(own)).result) == 1
        (rows,) = snapshot.rows(layout(sink_spec_of(own)).result, ["user"])
        assert rows["user"].to_pylist() == ["B"]
    # a run that had the schema in its url continues
    by_path = f"{database}?options=-csearch_path%3D%22it's%5C%20%22%22own%22%22%22"
    with closing(sink_of(pipeline(PostgresSink(by_path, "spend")))) as sink:
        assert sink.open(RUN) == 0


def test_a_view_is_no_table(model: Pipeline) -> None:
    query(model, "CREATE VIEW spend_late AS SELECT 1")
    with pytest.raises(SinkError, match=r"'spend_late' .* is not a table"):
        sink_of(model).open(RUN)


def test_a_view_that_depends_on_a_table_stops_a_fresh_start(model: Pipeline, sink: PostgresTables) -> None:
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    sink.close()
    query(model, "CREATE VIEW best AS SELECT max(total) FROM spend")
    with pytest.raises(SinkError, match="drop what depends on the table first"):
        sink.clear()
    assert query(model, "SELECT count(*) FROM spend") == [(1,)]


@pytest.mark.parametrize("name", ["x" * 60, "é" * 28])
def test_names_that_postgresql_would_cut_off(name: str) -> None:
    with pytest.raises(PipelineError, match="longer than the 63 bytes"):
        sink_of(pipeline(PostgresSink("postgresql://", name)))


def test_a_narrower_numeric_would_round_and_is_refused(model: Pipeline, sink: PostgresTables) -> None:
    sink.close()
    query(model, "ALTER TABLE spend ALTER COLUMN total TYPE numeric(10,1)")
    with pytest.raises(
        SinkError, match=re.escape("column 'total' of table 'spend' is numeric(10,1), not numeric(38,2)")
    ):
        sink_of(model).open(RUN)


def test_a_numeric_of_an_earlier_version_is_kept(model: Pipeline, sink: PostgresTables) -> None:
    sink.close()
    for table in ("spend", "spend_changes"):
        query(model, f"ALTER TABLE {table} ALTER COLUMN total TYPE numeric")
    more = step(model, [change("insert", 0, "A", Decimal("12345678901234567890.12"), 1)])
    again = sink_of(model)
    again.open(RUN)
    again.commit(0, more)
    again.close()
    assert query(model, "SELECT total::text FROM spend") == [("12345678901234567890.12",)]


def test_more_digits_after_the_point_are_had_by_what_the_refusal_says(model: Pipeline, sink: PostgresTables) -> None:
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal("1.25"), 1)]))
    sink.close()
    finer = replace(model, decode=Decode((*model.decode.fields[:2], Field("amount", DecimalType(14, 4)))))
    with pytest.raises(SinkError, match=r"is numeric\(38,2\), not numeric\(38,4\) .*--fresh \(ALTER TABLE") as refusal:
        sink_of(finer).open(RUN)
    for statement in str(refusal.value).partition("--fresh (")[2].removesuffix(")").split("; "):
        query(model, statement)
    again = sink_of(finer)
    again.open(RUN)
    again.commit(1, step(finer, [change("insert", 0, "B", Decimal("1.1234"), 1)]))
    again.close()
    assert query(model, "SELECT total::text FROM spend ORDER BY 1") == [("1.1234",), ("1.2500",)]


def test_of_several_hosts_the_first_that_accepts_writes_is_used(database: str, postgres: Postgres) -> None:
    standby = Postgres()
    standby.start()
    try:
        name = database.rpartition("/")[2]
        with psycopg.connect(standby.create_database(name), autocommit=True) as db:
            db.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
        hosts = [one.url.partition("@")[2].partition("/")[0] for one in (standby, postgres)]
        model = pipeline(PostgresSink(f"postgresql://postgres@127.0.0.1:1,{','.join(hosts)}/{name}", "spend"))
        sink = sink_of(model)
        assert sink.open(RUN) is None
        sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
        sink.close()
        with psycopg.connect(database) as db:
            assert db.execute('SELECT "user" FROM spend').fetchall() == [("A",)]
        assert server(model.sink.place).place == f"PostgreSQL at 127.0.0.1:1,{','.join(hosts)}/{name}"
        assert list(sink_connector(model.sink).findings(model.sink)) == []
        only = pipeline(PostgresSink(f"postgresql://postgres@127.0.0.1:1,{hosts[0]}/{name}", "spend"))
        with pytest.raises(SinkUnavailableError, match="session is read-only"):
            sink_of(only).open(RUN)
    finally:
        standby.stop()
        standby.remove()


def test_a_connection_that_breaks(model: Pipeline, sink: PostgresTables) -> None:
    name = "pid <> pg_backend_pid() AND datname = current_database()"
    query(model, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {name}")
    with pytest.raises(SinkError, match="start again"):
        sink.commit(0, step(model))


def test_a_connection_that_drops_in_silence_is_noticed_at_both_ends(database: str) -> None:
    of_kernel = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
    for url, expected in (
        (database, [30, 10, 3, 60_000]),
        (f"{database}?keepalives_idle=7&tcp_user_timeout=9000", [7, 10, 3, 9000]),
    ):
        with connect(url) as connection, socket.socket(fileno=os.dup(connection.fileno())) as one:
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert [one.getsockopt(socket.IPPROTO_TCP, option) for option in of_kernel] == expected
            told = [
                connection.execute(f"SHOW tcp_keepalives_{name}").fetchone() for name in ("idle", "interval", "count")
            ]
            assert told == [("30",), ("10",), ("3",)]


@pytest.mark.parametrize(
    ("bytes_", "said"), [(2000, "index row size .* exceeds"), (6000, "index row requires")], ids=["long", "longer"]
)
def test_a_key_that_is_too_long_for_the_index(model: Pipeline, sink: PostgresTables, bytes_: int, said: str) -> None:
    user = random.Random(1).randbytes(bytes_).hex()
    sink.commit(0, step(model, [change("insert", 0, user, Decimal(1), 1), change("insert", 0, "ann", Decimal(1), 1)]))
    assert query(model, 'SELECT "user" FROM spend_changes') == [("ann",)]
    [(reason,)] = query(model, "SELECT reason FROM spend_dead")
    assert re.match(f"refused: PostgreSQL: {said}", str(reason))


def test_keys_up_to_the_limit_fit_the_index_however_many_fields_they_have(database: str) -> None:
    texts = [f"text{n}" for n in range(8)]
    numbers = [f"number{n}" for n in range(16)]
    fields = tuple(Field(name, StringType()) for name in texts) + tuple(Field(n, DecimalType(38, 0)) for n in numbers)
    base = pipeline(PostgresSink(database, "spend"))
    decode = replace(base.decode, fields=(*base.decode.fields, *fields))
    # in mode discard the revision is a part of the primary key, too
    model = replace(base, decode=decode, key=(*texts, *numbers), emit=replace(base.emit, mode="discard"))
    # no text is short enough for a header of one byte
    sizes = [MAX_KEY_BYTES - 7 * 127, *[127] * 7]
    some = random.Random(1)
    values = [some.randbytes(size).hex()[:size] for size in sizes] + [Decimal(10**38 - 1)] * len(numbers)
    sink = sink_of(model)
    sink.open(RUN)
    sink.commit(0, step(model, [change("insert", 0, *values, Decimal(1), 1)]))
    sink.close()
    names = " + ".join(f"octet_length({name})" for name in texts)
    assert query(model, f"SELECT {names} FROM spend") == [(MAX_KEY_BYTES,)]


def test_windows_beyond_the_years_1_to_9999(model: Pipeline, sink: PostgresTables) -> None:
    sink.commit(0, edges(model))
    seconds = "SELECT extract(epoch FROM window_start)::bigint, extract(epoch FROM window_end)::bigint FROM spend"
    assert query(model, f"{seconds} ORDER BY 1") == [
        (-62_135_596_920, -62_135_596_620),
        (253_402_300_620, 253_402_300_920),
    ]
