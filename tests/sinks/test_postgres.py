"""What only the PostgreSQL sink does."""

from __future__ import annotations

import pickle
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal

import psycopg
import pytest
from tests.contracts.steps import RUN, change, edges, pipeline, step
from tests.servers.postgres import Postgres

from windrow.errors import PipelineError, SinkError
from windrow.model import Aggregate, Count, Pipeline, PostgresSink
from windrow.sinks.base import ParallelSink
from windrow.sinks.postgres import PostgresTable
from windrow.sinks.postgres.staging import stage_names


@pytest.fixture
def model(database: str) -> Pipeline:
    return pipeline(PostgresSink(database, "spend"))


def sink_of(model: Pipeline, lock_seconds: float = 20) -> PostgresTable:
    assert isinstance(model.sink, PostgresSink)
    return PostgresTable(model, model.sink, lock_seconds=lock_seconds)


def query(model: Pipeline, sql: str) -> list[tuple[object, ...]]:
    assert isinstance(model.sink, PostgresSink)
    with psycopg.connect(model.sink.url, autocommit=True) as db:
        cursor = db.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def staged(model: Pipeline) -> int:
    counts = " + ".join(f"(SELECT count(*) FROM {name})" for name in stage_names("spend"))
    ((count,),) = query(model, f"SELECT {counts}")
    assert isinstance(count, int)
    return count


@pytest.fixture
def sink(model: Pipeline) -> Iterator[PostgresTable]:
    sink = sink_of(model)
    sink.open(RUN)
    yield sink
    sink.close()


def test_column_types(model: Pipeline, sink: PostgresTable) -> None:
    assert isinstance(sink, ParallelSink)
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


def test_parts_from_many_processes_merge_in_the_order_of_their_tokens(model: Pipeline, sink: PostgresTable) -> None:
    blob = pickle.dumps(sink)

    def stage(part: int) -> str:
        rows = [change("insert", 5 * part, f"user-{n}", Decimal(part), n) for n in range(50)]
        shared = change("insert" if part == 0 else "update_after", 0, "shared", Decimal(part), part, revision=part)
        dead = [["spend", part, 1, None, "malformed", b"x"]]
        remote: PostgresTable = pickle.loads(blob)  # noqa: S301 - our own
        return remote.stage(0, [step(model, rows), step(model, [shared], dead=dead)])

    with ThreadPoolExecutor(4) as pool:
        tokens = list(pool.map(stage, range(4)))
    assert staged(model) == 4 * 52
    sink.merge(0, tokens)
    assert staged(model) == 0
    assert query(model, "SELECT count(*), max(seq), count(DISTINCT seq) FROM spend_changes") == [(204, 203, 204)]
    assert query(model, "SELECT seq, total FROM spend_changes WHERE \"user\" = 'shared' ORDER BY seq") == [
        (51 * part + 50, Decimal(part)) for part in range(4)
    ]
    assert query(model, "SELECT total, revision FROM spend WHERE \"user\" = 'shared'") == [(3, 3)]
    assert query(model, "SELECT count(*) FROM spend") == [(201,)]
    assert query(model, "SELECT count(*) FROM spend_dead") == [(4,)]


def test_a_key_deleted_by_a_later_part_is_gone_and_one_inserted_again_is_not(
    model: Pipeline, sink: PostgresTable
) -> None:
    first = [change("insert", 0, "A", Decimal(1), 1), change("delete", 0, "B", Decimal(1), 1)]
    second = [change("delete", 0, "A", Decimal(1), 1), change("insert", 0, "B", Decimal(2), 2)]
    sink.merge(0, [sink.stage(0, [step(model, first)]), sink.stage(0, []), sink.stage(0, [step(model, second)])])
    assert query(model, 'SELECT "user", total FROM spend') == [("B", 2)]


def test_what_a_later_part_inserts_stays_though_an_earlier_one_has_updated_the_same(
    model: Pipeline, sink: PostgresTable
) -> None:
    """As when a key is forgotten in one step of a batch and comes back in the next."""
    parts = [
        [change("insert", 0, "A", Decimal(1), 1), change("update_after", 0, "A", Decimal(2), 2, revision=1)],
        [change("delete", 0, "A", Decimal(2), 2, revision=2), change("insert", 0, "A", Decimal(7), 7)],
        [change("insert", 0, "B", Decimal(3), 3)],
        [change("update_after", 0, "B", Decimal(4), 4, revision=1)],
    ]
    sink.merge(0, [sink.stage(0, [step(model, part)]) for part in parts])
    assert query(model, 'SELECT "user", events FROM spend ORDER BY 1') == [("A", 7), ("B", 4)]


def test_an_epoch_without_parts(model: Pipeline, sink: PostgresTable) -> None:
    sink.merge(0, [])
    sink.merge(1, [sink.stage(1, [])])
    assert query(model, "SELECT epoch FROM windrow_epochs ORDER BY epoch") == [(0,), (1,)]


def test_what_no_merge_names_has_no_effect(model: Pipeline, sink: PostgresTable) -> None:
    lost = step(model, [change("insert", 0, "lost", Decimal(1), 1)])
    sink.stage(0, [lost])
    sink.merge(0, [sink.stage(0, [step(model, [change("insert", 0, "kept", Decimal(1), 1)])])])
    sink.stage(0, [lost])
    sink.commit(1, step(model))
    sink.close()
    assert staged(model) == 1
    again = sink_of(model)
    assert again.open(RUN) == 1
    again.close()
    assert staged(model) == 0
    assert query(model, 'SELECT "user" FROM spend') == [("kept",)]


def test_a_repeated_merge_removes_what_was_staged_for_it(model: Pipeline, sink: PostgresTable) -> None:
    output = step(model, [change("insert", 0, "A", Decimal(1), 1)])
    sink.commit(0, output)
    sink.merge(0, [sink.stage(0, [output])])
    assert staged(model) == 0
    assert query(model, "SELECT count(*) FROM spend_changes") == [(1,)]


def test_somebody_who_reads_the_staging_tables_does_not_stop_a_step(model: Pipeline, sink: PostgresTable) -> None:
    assert isinstance(model.sink, PostgresSink)
    with psycopg.connect(model.sink.url) as db:
        db.execute("SELECT count(*) FROM spend_stage_changes")
        sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    # until the tables that it was staged in are used again
    for epoch, name in ((1, "B"), (2, "C")):
        sink.commit(epoch, step(model, [change("insert", 0, name, Decimal(1), 1)]))
    assert staged(model) == 0
    assert query(model, "SELECT count(*) FROM spend") == [(3,)]


def test_a_step_is_staged_while_the_one_before_is_merged(model: Pipeline, sink: PostgresTable) -> None:
    first, second = (
        sink.stage(epoch, [step(model, [change("insert", 0, name, Decimal(1), 1)])])
        for epoch, name in enumerate(("A", "B"))
    )
    sink.merge(0, [first])
    assert staged(model) == 1
    sink.merge(1, [second])
    assert staged(model) == 0
    assert query(model, 'SELECT "user" FROM spend ORDER BY 1') == [("A",), ("B",)]


def test_an_insert_of_a_row_that_is_there_replaces_it(model: Pipeline, sink: PostgresTable) -> None:
    sink.commit(0, step(model, [change("insert", 0, name, Decimal(1), 1) for name in ("A", "B")]))
    again = [change("insert", 0, "A", Decimal(2), 2), change("update_after", 0, "B", Decimal(3), 3, revision=1)]
    sink.commit(1, step(model, [*again, change("insert", 0, "C", Decimal(4), 4)]))
    assert query(model, 'SELECT "user", events FROM spend ORDER BY 1') == [("A", 2), ("B", 3), ("C", 4)]


def test_a_token_of_nobody_is_refused(model: Pipeline, sink: PostgresTable) -> None:
    for token in ("nonsense", "a/1/2/3/4/5", f"{uuid.uuid4()}/1/0/0/0", f"{uuid.uuid4()}/1/0/0/0/x"):
        with pytest.raises(SinkError, match="is not a token of stage"):
            sink.merge(0, [token])
    with pytest.raises(SinkError, match="2 of 2 rows that were staged for table 'spend_changes' are gone"):
        sink.merge(0, [f"{uuid.uuid4()}/2/0/0/0/0"])
    assert query(model, "SELECT count(*) FROM windrow_epochs") == [(0,)]


def test_staged_rows_that_a_crash_of_the_server_took_are_noticed(
    postgres: Postgres, model: Pipeline, sink: PostgresTable
) -> None:
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    query(model, "CHECKPOINT")
    output = step(model, [change("insert", 5, "A", Decimal(1), 1)])
    token = sink.stage(1, [output])
    postgres.kill()
    postgres.start()
    with pytest.raises(SinkError, match="connection"):
        sink.merge(1, [token])
    again = sink_of(model)
    assert again.open(RUN) == 0
    with pytest.raises(SinkError, match=r"1 of 1 rows that were staged .* are gone"):
        again.merge(1, [token])
    again.commit(1, output)
    again.close()
    assert query(model, "SELECT count(*) FROM spend_changes") == [(2,)]


def test_a_second_run_is_refused_while_the_first_is_open(model: Pipeline, sink: PostgresTable) -> None:
    second = sink_of(model, lock_seconds=0.05)
    acts: list[Callable[[], object]] = [lambda: second.open(RUN), second.clear]
    for act in acts:
        with pytest.raises(SinkError, match="a run that writes table 'spend' is still going"):
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


def test_tables_of_one_name_in_two_schemas(model: Pipeline, sink: PostgresTable) -> None:
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


def test_a_view_is_no_table(model: Pipeline) -> None:
    query(model, "CREATE VIEW spend_late AS SELECT 1")
    with pytest.raises(SinkError, match=r"'spend_late' .* is not a table"):
        sink_of(model).open(RUN)


def test_a_view_that_depends_on_a_table_stops_a_fresh_start(model: Pipeline, sink: PostgresTable) -> None:
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    sink.close()
    query(model, "CREATE VIEW best AS SELECT max(total) FROM spend")
    with pytest.raises(SinkError, match="drop what depends on the table first"):
        sink.clear()
    assert query(model, "SELECT count(*) FROM spend") == [(1,)]


@pytest.mark.parametrize("name", ["x" * 60, "é" * 25])
def test_names_that_postgresql_would_cut_off(name: str) -> None:
    with pytest.raises(PipelineError, match="longer than the 63 bytes"):
        sink_of(pipeline(PostgresSink("postgresql://", name)))
    with pytest.raises(PipelineError, match=r"'stage_token' is windrow's own name"):
        sink_of(pipeline(PostgresSink("postgresql://", "t"), aggregates=(Aggregate("stage_token", Count()),)))


def test_a_narrower_numeric_would_round_and_is_refused(model: Pipeline, sink: PostgresTable) -> None:
    sink.close()
    query(model, "ALTER TABLE spend ALTER COLUMN total TYPE numeric(10,1)")
    with pytest.raises(SinkError, match=re.escape("column 'total' of table 'spend' is numeric(10,1), not numeric")):
        sink_of(model).open(RUN)


def test_a_connection_that_breaks(model: Pipeline, sink: PostgresTable) -> None:
    name = "pid <> pg_backend_pid() AND datname = current_database()"
    query(model, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {name}")
    with pytest.raises(SinkError, match="start again"):
        sink.commit(0, step(model))


def test_windows_beyond_the_years_1_to_9999(model: Pipeline, sink: PostgresTable) -> None:
    sink.commit(0, edges(model))
    seconds = "SELECT extract(epoch FROM window_start)::bigint, extract(epoch FROM window_end)::bigint FROM spend"
    assert query(model, f"{seconds} ORDER BY 1") == [
        (-62_135_596_920, -62_135_596_620),
        (253_402_300_620, 253_402_300_920),
    ]
