"""What only the SQLite sink does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.steps import RUN, change, edges, pipeline, step
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors.sink import Follows, Run
from windrow.connectors.sqlite.rows import values
from windrow.connectors.sqlite.tables import SqliteTables, translate
from windrow.errors import PipelineError, SinkAddressError, SinkError
from windrow.model import Aggregate, Count, SqliteSink, Sum


@pytest.fixture
def model(tmp_path: Path) -> Pipeline:
    return pipeline(SqliteSink(str(tmp_path / "spend.db"), "spend"))


def sink_of(model: Pipeline, busy: float = 5) -> SqliteTables:
    assert isinstance(model.sink, SqliteSink)
    return SqliteTables(sink_spec_of(model), busy=busy)


def query(model: Pipeline, sql: str) -> list[tuple[object, ...]]:
    assert isinstance(model.sink, SqliteSink)
    with closing(sqlite3.connect(model.sink.path, isolation_level=None)) as db:
        return db.execute(sql).fetchall()


@pytest.fixture
def sink(model: Pipeline) -> Iterator[SqliteTables]:
    sink = sink_of(model)
    sink.open(RUN)
    yield sink
    sink.close()


def test_times_are_text_and_decimals_numbers(model: Pipeline, sink: SqliteTables) -> None:
    rows = [("A", Decimal("7.00"), 2), ("B", Decimal("0.10"), 1)]
    sink.commit(0, step(model, [change("insert", 10, *row) for row in rows]))
    assert query(model, "SELECT * FROM spend") == [
        ("2026-01-01 00:10:00", "2026-01-01 00:15:00", "A", 7, 2, "on_time", 0),
        ("2026-01-01 00:10:00", "2026-01-01 00:15:00", "B", 0.1, 1, "on_time", 0),
    ]
    assert query(model, "SELECT typeof(total) FROM spend") == [("integer",), ("real",)]
    assert query(model, "SELECT sum(total), datetime(window_start, '+1 hour') FROM spend") == [
        (7.1, "2026-01-01 01:10:00")
    ]
    assert query(model, "SELECT committed_at < datetime('now', '+1 minute') FROM windrow_epochs") == [(1,)]


def test_a_step_is_not_written_to_a_file_that_was_removed(model: Pipeline, sink: SqliteTables) -> None:
    Path(model.sink.place).unlink()
    with pytest.raises(SinkError, match=r"spend.db was removed while a run was writing to it"):
        sink.commit(0, step(model))


def test_windows_beyond_the_years_1_to_9999(model: Pipeline, sink: SqliteTables) -> None:
    sink.commit(0, edges(model))
    assert query(model, "SELECT window_start, window_end FROM spend") == [
        ("0000-12-31 23:58:00", "0001-01-01 00:03:00"),
        ("9999-12-31 23:57:00", "10000-01-01 00:02:00"),
    ]


def test_decimals_as_text_keep_all_digits(tmp_path: Path) -> None:
    path = str(tmp_path / "spend.db")
    model = pipeline(SqliteSink(path, "spend", decimals="text"))
    values = ["123456789012345678901234567890123456.78", "0.00", "-0.05", "1234.50", "-10.00"]
    sink = sink_of(model)
    sink.open(RUN)
    sink.commit(0, step(model, [change("insert", 0, f"u{n}", Decimal(v), n) for n, v in enumerate(values)]))
    sink.close()
    assert query(model, "SELECT total, typeof(total) FROM spend ORDER BY user") == [(v, "text") for v in values]
    with pytest.raises(SinkError, match=r"column 'total' of table 'spend' is TEXT, not NUMERIC"):
        sink_of(pipeline(SqliteSink(path, "spend"))).open(RUN)


def test_a_decimal_that_is_null_is_null_as_text_and_as_a_number(tmp_path: Path) -> None:
    for decimals in ("numeric", "text"):
        path = str(tmp_path / f"{decimals}.db")
        aggregates = (Aggregate("total", Sum("amount"), where="amount > 5"), Aggregate("events", Count()))
        model = pipeline(SqliteSink(path, "spend", decimals=decimals), aggregates=aggregates)
        sink = sink_of(model)
        sink.open(RUN)
        wide = Decimal(10**15)
        rows = [("A", None, 1), ("B", wide, 1), ("C", None, 1)]
        sink.commit(0, step(model, [change("insert", 0, *row) for row in rows]))
        sink.close()
        found = query(model, "SELECT user, total FROM spend ORDER BY user")
        assert found == [("A", None), ("B", 10**15 if decimals == "numeric" else f"{10**15}.00"), ("C", None)]


def test_table_and_column_names_ignore_case(model: Pipeline, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"'user' and 'USER' are the same to SQLite"):
        sink_of(pipeline(SqliteSink("x.db", "spend"), aggregates=(Aggregate("USER", Count()),)))
    first = sink_of(model)
    first.open(RUN)
    first.commit(0, step(model))
    first.close()
    second = pipeline(SqliteSink(str(tmp_path / "spend.db"), "SPEND"), name="other")
    with pytest.raises(SinkError, match="belongs to pipeline 'spend'"):
        sink_of(second).open(Run("other", "run-9"))
    with closing(sink_of(pipeline(SqliteSink(str(tmp_path / "spend.db"), "Spend")))) as again:
        assert again.open(RUN) == 0


@pytest.mark.parametrize("follower", [RUN, Run(RUN.pipeline, "run-2")], ids=["the same run", "one that follows"])
def test_a_table_has_one_owner_however_its_name_is_spelt(model: Pipeline, tmp_path: Path, follower: Run) -> None:
    path = str(tmp_path / "spend.db")
    before, after = (sink_of(pipeline(SqliteSink(path, name))) for name in ("Spend", "spend"))
    before.open(RUN)
    before.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    before.close()
    for _ in range(2):  # and again as its owner
        assert after.open(follower, Follows(RUN, 0)) == 0
    after.commit(1, step(model, [change("insert", 0, "B", Decimal(1), 1)]))
    after.close()
    assert query(model, "SELECT table_name, run FROM windrow_tables") == [("spend", follower.id)]
    assert query(model, "SELECT user FROM Spend") == [("A",), ("B",)]


def test_a_view_is_no_table(model: Pipeline) -> None:
    query(model, "CREATE VIEW spend_late AS SELECT 1")
    with pytest.raises(SinkError, match=r"'spend_late' .* is a view, not a table"):
        sink_of(model).open(RUN)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    model = pipeline(SqliteSink(str(tmp_path / "none" / "spend.db"), "spend"))
    with pytest.raises(SinkAddressError, match=r"the folder .*none of .*spend.db does not exist: create it"):
        sink_of(model).open(RUN)
    sink_of(model).clear()


@pytest.mark.parametrize("path", ["spend.db", "deeper/spend.db"])
def test_a_folder_that_is_a_file(tmp_path: Path, path: str) -> None:
    (tmp_path / "afile").write_text("x")
    model = pipeline(SqliteSink(str(tmp_path / "afile" / path), "spend"))
    with pytest.raises(SinkAddressError, match=r"afile in .*spend.db is a file, not a folder"):
        sink_of(model).open(RUN)


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SinkAddressError, match="is a folder"):
        sink_of(pipeline(SqliteSink(str(tmp_path), "spend"))).open(RUN)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than the header of one would be, by quite a bit, so it is read\n" * 9)
    sink = sink_of(pipeline(SqliteSink(str(path), "spend")))
    acts: list[Callable[[], object]] = [lambda: sink.open(RUN), sink.clear]
    for act in acts:
        with pytest.raises(SinkAddressError, match=r"notes.txt is not an SQLite database: give the sink another path"):
            act()
    assert path.read_text().startswith("not a database")


def test_a_name_that_sqlite_keeps_for_itself(tmp_path: Path) -> None:
    model = pipeline(SqliteSink(str(tmp_path / "spend.db"), "sqlite_spend"))
    with pytest.raises(SinkError, match="reserved for internal use"):
        sink_of(model).open(RUN)


def test_another_writer_is_waited_for_and_then_named(model: Pipeline) -> None:
    sink = sink_of(model, busy=0.05)
    sink.open(RUN)
    assert isinstance(model.sink, SqliteSink)
    with closing(sqlite3.connect(model.sink.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkError, match="is locked by another writer: end it"):
            sink.commit(0, step(model))
        other.execute("ROLLBACK")
    sink.commit(0, step(model))
    sink.close()


def test_a_trigger_that_refuses_rows(model: Pipeline, sink: SqliteTables) -> None:
    query(model, "CREATE TRIGGER no BEFORE INSERT ON spend BEGIN SELECT raise(ABORT, 'not today'); END")
    with pytest.raises(SinkError, match=r"spend.db refused a row \(not today\)"):
        sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    assert query(model, "SELECT count(*) FROM spend_changes") == [(0,)]


def test_a_full_disk(model: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def on_a_small_disk(*args: Any, **kwargs: Any) -> sqlite3.Connection:  # noqa: ANN401 - as sqlite3's
        db: sqlite3.Connection = connect(*args, **kwargs)
        db.execute("PRAGMA max_page_count = 40")
        return db

    rows = [change("insert", 0, f"user-{n}", Decimal(1), 1) for n in range(2000)]
    with monkeypatch.context() as small, closing(sink_of(model)) as sink:
        small.setattr(sqlite3, "connect", on_a_small_disk)
        sink.open(RUN)
        sink.commit(0, step(model))
        with pytest.raises(SinkError, match="the disk is full: make room"):
            sink.commit(1, step(model, rows))
    assert query(model, "SELECT count(*) FROM spend_changes") == [(0,)]
    with closing(sink_of(model)) as sink:
        assert sink.open(RUN) == 0
        sink.commit(1, step(model, rows))
    assert query(model, "SELECT count(*) FROM spend") == [(2000,)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SQLITE_CANTOPEN", "cannot be opened"),
        ("SQLITE_READONLY_DIRECTORY", "may not be written"),
        ("SQLITE_IOERR_WRITE", "check the disk"),
        ("SQLITE_CORRUPT", "is damaged"),
        ("SQLITE_FULL", "the disk is full"),
        ("SQLITE_MISUSE", "SQLite says: x"),
    ],
)
def test_each_error_says_what_to_do(name: str, message: str) -> None:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorname = name
    assert message in str(translate(error, "spend.db"))


def test_it_can_be_opened_in_one_thread_and_used_in_another(model: Pipeline, sink: SqliteTables) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(sink.commit, 0, step(model, [change("insert", 0, "A", Decimal(1), 1)])).result()
    assert query(model, "SELECT count(*) FROM spend") == [(1,)]


def test_a_whole_sum_beyond_15_digits_is_an_integer(tmp_path: Path) -> None:
    model = pipeline(SqliteSink(str(tmp_path / "a.db"), "spend"), aggregates=(Aggregate("total", Sum("amount")),))
    sink = sink_of(model)
    sink.open(RUN)
    values = ["9007199254740993.00", "9223372036854775807.00", "1.25", "-9223372036854775808.00", "3.00"]
    sink.commit(0, step(model, [change("insert", 0, f"u{n}", Decimal(v)) for n, v in enumerate(values)]))
    sink.close()
    stored = query(model, "SELECT total FROM spend ORDER BY user")
    assert stored == [(9007199254740993,), (9223372036854775807,), (1.25,), (-9223372036854775808,), (3,)]


def test_a_column_may_hold_more_than_two_gib() -> None:
    """Arrow's arrays of bytes do not, and a step's dead letters may come to that."""
    chunk = pa.array([bytes(64 << 20)])
    rows = pa.table({"value": pa.chunked_array([chunk] * 33), "offset": range(33)})
    assert [(len(value), offset) for value, offset in values(rows, "numeric")] == [
        (64 << 20, offset) for offset in range(33)
    ]


@given(sizes=st.lists(st.integers(0, 120_000), max_size=6))
def test_rows_in_any_chunks_come_whole_and_in_order(sizes: list[int]) -> None:
    begins = np.cumsum([0, *sizes])
    chunks = [pa.array(np.arange(begin, begin + size)) for begin, size in zip(begins, sizes, strict=False)]
    rows = pa.table({"offset": pa.chunked_array(chunks, pa.int64())})
    assert list(values(rows, "numeric")) == [(number,) for number in range(begins[-1])]
