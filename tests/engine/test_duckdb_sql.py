"""The one DuckDB of a process."""

import subprocess
import sys
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest
from tests.engine.outputs import play
from tests.engine.pipelines import MAIN, main

from windrow.engine.aggregates.kernels import count, rank
from windrow.engine.duckdb_sql import QUERIES, Connection, EvaluationError, Projection, query
from windrow.errors import RunError
from windrow.expressions.engine import EXPRESSIONS, Engine
from windrow.model import DecimalType, Decode, Field


def test_it_is_let_go_of_without_a_word_at_the_end_of_the_process() -> None:
    script = """
from windrow.engine import duckdb_sql
from windrow.engine.aggregates import kernels
kernels.count("BIGINT")
duckdb_sql.query(duckdb_sql.Connection(), "SELECT 1")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


def test_a_sum_with_too_many_digits_ends_the_run_with_what_duckdb_says_of_it() -> None:
    decode = Decode((*MAIN.decode.fields[:2], Field("amount", DecimalType(38, 0))))
    line = b'{"user": "A", "t": 1, "amount": %s}' % (b"9" * 38)
    with pytest.raises(RunError, match=r"a step cannot be computed: Overflow .*; what was committed stays"):
        play(main(decode=decode), [[(0, line)] * 3], "fire")


def numbers(*values: object, type_: pa.DataType | None = None) -> pa.Table:
    return pa.table({"n": pa.array(values, type_ or pa.int64())})


SUM = "SELECT sum(n) AS n, count(*) AS rows FROM a JOIN b USING (n)"


def test_a_query_that_is_planned_once_reads_the_tables_of_each_run() -> None:
    duck = Connection()
    for size in (2, 3, 0, 4, 20_000, 1):  # the largest is planned for its size
        found = query(duck, SUM, a=numbers(*range(size)), b=numbers(*range(size)))
        assert found.to_pylist() == [{"n": sum(range(size)) if size else None, "rows": size}]


def test_a_query_that_is_planned_once_is_planned_anew_for_other_types() -> None:
    duck = Connection()
    for type_ in (pa.int64(), pa.int64(), pa.float64(), pa.float64(), pa.int64(), pa.int64()):
        found = query(duck, "SELECT max(n) AS n FROM a", a=numbers(1, 2, type_=type_))
        assert found.equals(numbers(2, type_=type_))


def test_a_query_that_is_planned_once_is_planned_anew_for_a_type_that_metadata_make() -> None:
    duck, sql = Connection(), "SELECT typeof(j) AS type FROM a"
    for is_json in (False, False, True, True, False):
        metadata = {"ARROW:extension:name": "arrow.json"} if is_json else None
        table = pa.table({"j": ["1"]}, schema=pa.schema([pa.field("j", pa.string(), metadata=metadata)]))
        assert query(duck, sql, a=table).to_pylist() == [{"type": "JSON" if is_json else "VARCHAR"}]


def test_a_query_that_is_planned_once_goes_on_after_an_error() -> None:
    duck, sql = Connection(), "SELECT CASE WHEN n > 2 THEN error('above 2') ELSE n END AS n FROM a"
    for value in (1, 2, 3, 2, 3, 1):
        if value == 3:
            with pytest.raises(RunError, match=r"a step cannot be computed: .*above 2; what was committed stays"):
                query(duck, sql, a=numbers(value))
        else:
            assert query(duck, sql, a=numbers(value)).equals(numbers(value))


def test_queries_that_are_planned_once_do_not_see_the_tables_of_others() -> None:
    duck, projection = Connection(), Projection.of(["n + 1"], ["n"])
    for value in (1, 2, 3):
        assert query(duck, "SELECT n FROM a", a=numbers(value)).equals(numbers(value))
        assert query(duck, "SELECT n * 2 AS n FROM a", a=numbers(value + 10)).equals(numbers(2 * value + 20))
        assert projection.table(numbers(value)).equals(pa.table({"c0": [value + 1]}))


BEYOND = pa.table({"n": pa.array([2**60], pa.timestamp("s"))})
"""A time that DuckDB has no text of, which is an internal error of DuckDB."""


def test_an_internal_error_leaves_a_database_that_all_can_use() -> None:
    ranked = rank("BIGINT", Fraction(1, 2))
    before, projection = Connection(), Projection.of(["n + 1"], ["n"])
    for _ in range(3):  # the second time a query is planned for what follows
        assert query(before, "SELECT n FROM a", a=numbers(1)) == numbers(1)
        assert projection.table(numbers(1)).to_pylist() == [{"c0": 2}]
    with pytest.raises(RunError, match="a step cannot be computed"):
        query(Connection(), "SELECT n::VARCHAR FROM a", a=BEYOND)
    with pytest.raises(EvaluationError):
        Projection.of(["n::VARCHAR"], ["n"]).table(BEYOND)
    for duck in (before, Connection()):
        assert query(duck, "SELECT n FROM a", a=numbers(1)) == numbers(1)
    assert projection.table(numbers(1)).to_pylist() == [{"c0": 2}]
    counted = query(before, f"SELECT {ranked}({count('BIGINT')}(list(n))) AS n FROM a", a=numbers(3, 1, 2))
    assert counted.to_pylist() == [{"n": 2}]


@pytest.mark.parametrize("engine", [QUERIES, EXPRESSIONS])
def test_an_error_of_another_query_does_not_end_one(engine: Engine) -> None:
    duck, projection = Connection(), Projection.of(["km(n, 2, n, 2)"], ["n"])
    for _ in range(2):
        query(duck, "SELECT n FROM a", a=numbers(1))
        projection.table(numbers(1))
    with pytest.raises(duckdb.InternalException):
        engine.database().cursor().register("a", BEYOND).execute("SELECT n::VARCHAR FROM a").fetchall()
    assert query(duck, "SELECT n FROM a", a=numbers(1)) == numbers(1)
    assert projection.table(numbers(1)).to_pylist() == [{"c0": 0}]


def test_values_that_are_not_as_many_as_their_records_are_a_defect() -> None:
    with pytest.raises(RunError, match="an expression returned 3 values for 2 records; this is a defect of windrow"):
        Projection.of(["unnest(range(n))"], ["n"]).table(numbers(1, 2))


def test_a_projection_that_grows_runs_over_a_few_rows_at_a_time_and_gives_all_in_order() -> None:
    rows = numbers(3, 4, 11, 20, 1, 9, 10, 0, 2)
    whole, cut = (Projection.of(["n", "n > 0"], ["n"], grows=grows) for grows in (False, True))
    assert cut.table(rows) == whole.table(rows)
    assert cut.masks(rows).tolist() == whole.masks(rows).tolist()
    assert cut.table(rows.slice(0, 0)).num_rows == 0
    assert cut.masks(rows.slice(3, 1)).tolist() == [[True, True]]
