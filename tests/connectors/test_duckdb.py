"""What only the DuckDB sink does."""

from __future__ import annotations

import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.contracts.steps import DAY, MINUTE, RUN, change, edges, pipeline, step
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline
from tests.waiting import join

from windrow.connectors.database import Condition
from windrow.connectors.duckdb.connector import DuckDBSink
from windrow.connectors.duckdb.tables import DuckDBFile, DuckDBTables, translate
from windrow.connectors.open_sinks import open_database
from windrow.connectors.sink import Run
from windrow.connectors.tables import layout
from windrow.engine.changelog import StepOutput
from windrow.errors import PipelineError, SinkAddressError, SinkError, SinkUnavailableError
from windrow.model import Aggregate, Count


@pytest.fixture
def model(tmp_path: Path) -> Pipeline:
    return pipeline(DuckDBSink(str(tmp_path / "spend.duckdb"), "spend"))


def query(model: Pipeline, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(model.sink.place) as db:
        return db.execute(sql).fetchall()


def opened(model: Pipeline, busy: float = 5) -> DuckDBTables:
    sink = DuckDBTables(sink_spec_of(model), busy=busy)
    sink.open(RUN)
    return sink


def test_columns_have_types_of_their_own_and_the_key_is_a_comment(model: Pipeline) -> None:
    opened(model).commit(0, step(model, [change("insert", 10, "A", Decimal("7.10"), 2)]))
    assert query(model, "SELECT column_name, column_type FROM (DESCRIBE spend)") == [
        ("window_start", "TIMESTAMP WITH TIME ZONE"),
        ("window_end", "TIMESTAMP WITH TIME ZONE"),
        ("user", "VARCHAR"),
        ("total", "DECIMAL(38,2)"),
        ("events", "BIGINT"),
        ("pane", "VARCHAR"),
        ("revision", "INTEGER"),
    ]
    assert query(model, "SELECT epoch_us(window_start), total FROM spend") == [
        ((DAY + 10 * MINUTE).timestamp() * 1e6, Decimal("7.10"))
    ]
    [(comment,)] = query(model, "SELECT comment FROM duckdb_tables() WHERE table_name = 'spend'")
    assert comment == '{"key": ["window_start", "window_end", "user"]}'
    query(model, "COMMENT ON TABLE spend IS 'mine'")
    with pytest.raises(SinkError, match="primary key of table 'spend' is missing"):
        opened(model)


def test_windows_beyond_the_years_1_to_9999_are_stored_and_found(model: Pipeline) -> None:
    opened(model).commit(0, edges(model))
    table = layout(sink_spec_of(model)).result
    with open_database(model.sink).snapshot() as snapshot:
        late = Condition("window_start", ">", 253_402_300_000_000_000)
        (rows,) = snapshot.rows(table, table.key, [late])
        assert rows["window_end"].cast(pa.int64()).to_pylist() == [253_402_300_920_000_000]
        wide = Condition("total", "=", Decimal("0.001"))
        assert (snapshot.count(table), snapshot.count(table, [wide])) == (2, 0)


def test_between_two_steps_the_file_is_free_and_whole(model: Pipeline) -> None:
    sink = opened(model)
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    folder = Path(model.sink.place).parent
    assert [path.name for path in folder.iterdir()] == ["spend.duckdb"]
    sql = "SELECT count(*) FROM spend"
    code = f"import duckdb; print(duckdb.connect({model.sink.place!r}).execute({sql!r}).fetchall())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[(1,)]\n"
    sink.commit(1, step(model, [change("insert", 5, "A", Decimal(1), 1)]))
    assert query(model, "SELECT count(*) FROM spend") == [(2,)]


@pytest.mark.parametrize("name", ["windrow_spend", "Windrow_Rows", "windrow_rows_"])
def test_a_result_table_may_have_a_name_like_windrows_own(model: Pipeline, name: str) -> None:
    model = pipeline(DuckDBSink(model.sink.place, name))
    sink = opened(model)
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1), change("insert", 5, "A", Decimal(1), 1)]))
    sink.commit(
        1, step(model, [change("update_after", 0, "A", Decimal(2), 2), change("delete", 5, "A", Decimal(1), 1)])
    )
    assert query(model, f"SELECT total FROM {name}") == [(Decimal(2),)]
    keyed = "SELECT count(*) FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY' AND table_name = ?"
    with duckdb.connect(model.sink.place) as db:
        assert db.execute(keyed, [name]).fetchall() == [(0,)]


def test_a_relative_path_stays_the_file_that_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = pipeline(DuckDBSink("spend.duckdb", "spend"))
    sink, elsewhere = opened(model), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    assert list(elsewhere.iterdir()) == []
    monkeypatch.chdir(tmp_path)
    assert query(model, "SELECT count(*) FROM spend") == [(1,)]


def test_a_file_that_was_removed_is_not_made_anew_by_a_step(model: Pipeline) -> None:
    sink = opened(model)
    Path(model.sink.place).unlink()
    with pytest.raises(SinkError, match=r"spend.duckdb was removed while a run was writing to it"):
        sink.commit(0, step(model))
    assert not Path(model.sink.place).exists()


HOLD = """
import duckdb, sys
db = duckdb.connect(sys.argv[1], read_only=True)
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_that_holds_the_file_is_waited_for_and_then_named(model: Pipeline) -> None:
    sink, one = opened(model, busy=0.05), step(model, [change("insert", 0, "A", Decimal(1), 1)])
    words = [sys.executable, "-c", HOLD, model.sink.place]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        message = r"spend.duckdb is open elsewhere, .*: close it there \(.*lock"
        with pytest.raises(SinkUnavailableError, match=message):
            sink.commit(0, one)
        # who only reads is let in beside another reader
        with open_database(model.sink).snapshot() as snapshot:
            assert snapshot.count(layout(sink_spec_of(model)).result) == 0
        patient = DuckDBTables(sink_spec_of(model), busy=30)

        def write() -> None:
            patient.open(RUN)
            patient.commit(0, one)

        writer = threading.Thread(target=write)
        writer.start()
        assert other.stdin is not None
        other.stdin.close()
        join(writer)
    assert query(model, "SELECT count(*) FROM spend") == [(1,)]


def test_readers_of_one_process_share_the_file_and_a_writer_waits_for_them(model: Pipeline) -> None:
    sink, database = opened(model, busy=30), open_database(model.sink)
    table = layout(sink_spec_of(model)).result
    sink.commit(0, step(model, [change("insert", 0, user, Decimal(1), 1) for user in "AB"]))
    with database.snapshot() as one, database.snapshot() as other:
        turns = zip(one.rows(table, ["user"]), one.rows(table, ["user"]), other.rows(table, ["user"]), strict=True)
        assert [[rows["user"].to_pylist() for rows in turn] for turn in turns] == [[["A", "B"]] * 3]
        busy = DuckDBTables(sink_spec_of(model), busy=0.01)
        with pytest.raises(SinkUnavailableError, match="another thread of this process has used it"):
            busy.open(RUN)
        writer = threading.Thread(target=sink.commit, args=(1, step(model, [change("insert", 5, "A", Decimal(1), 1)])))
        writer.start()
        assert one.count(table) == 2
    join(writer)
    assert query(model, "SELECT count(*) FROM spend") == [(3,)]


def many(model: Pipeline, op: str, windows: int, users: int, revision: int) -> StepOutput:
    """A step that changes every user in as many windows, twice."""
    plain = step(model, [change(op, 0, "A", Decimal(1), 1)]).changes
    rows = np.arange(windows * users * 2) // 2
    names = pa.array([f"user-{user}" for user in range(users)]).take(pa.array(rows % users))
    starts = pa.array((rows // users) * 300_000_000 + round(DAY.timestamp() * 1e6))
    columns = {
        "op": pa.array([op, "update_after"] * (len(rows) // 2)),
        "pane": pa.repeat("late", len(rows)),
        "revision": pa.array([2 * revision, 2 * revision + 1] * (len(rows) // 2), pa.int32()),
        "window_start": starts,
        "window_end": pa.compute.add(starts, 300_000_000),
        "user": names,
        "total": pa.array(rows).cast(pa.decimal128(38, 0)),
        "events": pa.array(rows),
    }
    changes = pa.table({name: columns[name].cast(plain.schema.field(name).type) for name in plain.column_names})
    return StepOutput(changes.cast(plain.schema), *(getattr(step(model), part) for part in ("late", "dead", "clocks")))


def test_steps_that_revise_every_row_neither_fail_nor_fill_the_disk(tmp_path: Path) -> None:
    model = pipeline(DuckDBSink(str(tmp_path / "spend.duckdb"), "spend", changelog=False))
    sink, sizes = opened(model), []
    for epoch in range(12):
        sink.commit(epoch, many(model, "update_after" if epoch else "insert", 20, 500, epoch))
        sizes.append(Path(model.sink.place).stat().st_size)
    deletes = step(model, [change("delete", 0, f"user-{user}", Decimal(1), 1) for user in range(500)])
    sink.commit(12, deletes)
    sink.commit(13, many(model, "insert", 1, 500, 13))
    found = 'SELECT count(*), count(DISTINCT (window_start, "user")), min(revision), max(revision) FROM spend'
    assert query(model, found) == [(10_000, 10_000, 23, 27)]
    assert max(sizes) < 4 * sizes[0] + 1_000_000


def test_an_internal_error_of_duckdb_ends_one_transaction_alone(model: Pipeline) -> None:
    file = DuckDBFile(model.sink.place)
    beyond = pa.table({"n": pa.array([2**60], pa.timestamp("s"))})  # a time that DuckDB has no text of
    with file.writing() as session:
        session.execute("CREATE TABLE t (n INT)")
    with pytest.raises(SinkError), file.writing() as session:
        session.cursor().register("beyond", beyond).execute("INSERT INTO t SELECT n::VARCHAR FROM beyond")
    with file.writing() as session:
        session.execute("INSERT INTO t VALUES (2)")
    with file.reading() as session:
        assert session.execute("FROM t") == [(2,)]


def test_names_ignore_case_and_a_view_is_no_table(model: Pipeline) -> None:
    with pytest.raises(PipelineError, match=r"'user' and 'USER' are the same to DuckDB"):
        DuckDBTables(sink_spec_of(pipeline(model.sink, aggregates=(Aggregate("USER", Count()),))))
    opened(model).commit(0, step(model))
    again = DuckDBTables(sink_spec_of(pipeline(DuckDBSink(model.sink.place, "Spend"))))
    assert again.open(RUN) == 0
    other = pipeline(DuckDBSink(str(Path(model.sink.place).with_name("other.duckdb")), "spend"))
    query(other, "CREATE VIEW spend_late AS SELECT 1")
    with pytest.raises(SinkError, match=r"'spend_late' is a view, not a table"):
        opened(other)


def test_letters_beyond_ascii_that_differ_in_case_name_two_tables(model: Pipeline) -> None:
    other = Run("other", "run-1")
    one, two = (
        pipeline(DuckDBSink(model.sink.place, name), name=run.pipeline) for name, run in (("Ä", RUN), ("ä", other))
    )
    opened(one).commit(0, step(one, [change("insert", 0, "A", Decimal(1), 1)]))
    sink = DuckDBTables(sink_spec_of(two), busy=5)
    assert sink.open(other) is None
    sink.commit(0, step(two))
    database = open_database(model.sink)
    assert (database.stands("Ä"), database.stands("ä")) == ((RUN, 0), (other, 0))
    assert query(model, 'SELECT (SELECT count(*) FROM "Ä"), (SELECT count(*) FROM "ä")') == [(1, 0)]


def test_a_path_where_no_database_can_be(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but longer than the header of one would be\n" * 999)
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "spend.duckdb", r"the folder .*none of .* does not exist: create it"),
        (tmp_path / "notes.txt", "is not a DuckDB database: give the sink another path"),
        (tmp_path / "spend.duckdb?v=1", r"DuckDB cannot write a file with '\?' in its path"),
    ):
        with pytest.raises(SinkAddressError, match=message):
            opened(pipeline(DuckDBSink(str(path), "spend")))
    assert (tmp_path / "notes.txt").read_text().startswith("not a database")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (duckdb.IOException("IO Error: Cannot open file: Permission denied"), "may not be written"),
        (duckdb.IOException("IO Error: No space left on device\nmore"), r"disk is full.*device\)"),
        (duckdb.FatalException("Fatal Error: checksum"), "check the disk"),
        (
            duckdb.IOException("IO Error: Detached database 'f', but CHECKPOINT during DETACH failed."),
            "could not be merged with its log",
        ),
        (
            duckdb.IOException("IO Error: storage version number 70, but we can only read storage versions between"),
            "another version of DuckDB",
        ),
        (duckdb.IOException("IO Error: Corrupt database file: computed checksum"), "is damaged: restore it"),
        (duckdb.OutOfMemoryException("Out of Memory Error: x"), "DuckDB says: Out of Memory"),
    ],
)
def test_each_error_says_what_to_do(error: duckdb.Error, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        raise translate(error, "spend.duckdb")
