"""Functions that an expression may call, what macros hide, the sizes of values, and the sandbox."""

import socket
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from windrow.errors import PipelineError
from windrow.expressions import analyse, functions
from windrow.expressions.engine import database
from windrow.expressions.functions import PURE, WHY, CatalogueEntry, Overload, catalogue, refuse_bound, table
from windrow.expressions.macros import OWN_FUNCTIONS
from windrow.model import DoubleType, Field, LongType, StringType, TimestampType

FIELDS = (
    Field("s", StringType()),
    Field("n", LongType()),
    Field("a", LongType()),
    Field("x", DoubleType()),
    Field("t", TimestampType("micros")),
)


def refusal(text: str) -> str:
    with pytest.raises(PipelineError) as refused:
        analyse(text, FIELDS)
    assert "\n" not in refused.value.message
    return refused.value.message


def test_the_table_has_each_function_of_this_duckdb_and_all_are_reviewed() -> None:
    lacking = [
        (name, text)
        for name, entry in catalogue().items()
        for text in entry.scalars | entry.macros
        if text not in {one.text for one in table().get(name, ())}
    ]
    assert lacking == []
    assert {one.depends for overloads in table().values() for one in overloads} <= {*PURE, *WHY} - {"unreviewed"}


REFUSED = [(name, one) for name, overloads in table().items() for one in overloads if one.depends not in PURE]


def test_no_function_that_depends_on_more_than_its_record_is_accepted() -> None:
    accepted = []
    for name, one in REFUSED:
        if one.kind == "aggregate" or name not in catalogue():
            continue
        arguments = ", ".join("NULL" if one.kind == "macro" else argument(type_) for type_ in one.parameters)
        message = refusal(f'"{name}"({arguments})')
        if not any(why in message for why in WHY.values()):
            accepted.append((name, message))
    assert accepted == []


def argument(type_: str) -> str:
    return {"VARCHAR": "s", "TIME WITH TIME ZONE": "t::TIMETZ", "TIMESTAMP WITH TIME ZONE": "t"}.get(type_, "NULL")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ago(INTERVAL 1 DAY)", "has ago(), which can differ between runs"),
        ("pg_conf_load_time()", "has pg_conf_load_time(), which can differ between runs"),
        ("pg_postmaster_start_time()", "can differ between runs"),
        ("get_current_timestamp()", "can differ between runs"),
        ("coalesce(t, transaction_timestamp())", "can differ between runs"),
        ("age(t AT TIME ZONE 'UTC')", "call it with two arguments"),
        ("uuidv7()::VARCHAR", "can differ between runs"),
        ("generate_subscripts([n], 1)", "has generate_subscripts(), which uses several rows"),
        ("regexp_split_to_table(s, ',')", "has regexp_split_to_table(), which uses several rows"),
        ("geomean(x)", "has geomean(), which uses several rows"),
        ("weighted_avg(x, x)", "uses several rows"),
        ("json_group_array(s)::VARCHAR", "uses several rows"),
        ("array_agg(n)", "calls array_agg(), an aggregate function"),
        ("SUM(n)", "calls sum(), an aggregate function"),
        ("list_aggr([x], 'reservoir_quantile', 0.5)", "has reservoir_quantile() of a list, which can differ"),
        ("list_aggr([x], 'reservoir' || '_quantile', 0.5)", "has reservoir_quantile() of a list, which can differ"),
        ("list_approx_count_distinct([x])", "with different releases of DuckDB"),
        ("list_aggr([x], 'approx_count_distinct')", "with different releases of DuckDB"),
        # the day of a time with a zone is that of the clock
        ("(t::TIMETZ AT TIME ZONE 'America/New_York')::VARCHAR", "has timezone(), which can differ between runs"),
        ("json_serialize_plan(s)::VARCHAR", "has json_serialize_plan(), which can read files"),
        ("stats(s)", "has stats(), which uses several rows"),
        (
            "hash(s)::VARCHAR",
            "different releases of DuckDB; results must depend on the log alone; use md5_number_lower()",
        ),
        ("getvariable('a')", "can differ between runs"),
        ("error(s)", "has error(), which does more than return a value"),
        ("sleep_ms(n)", "has sleep_ms(), which does more than return a value"),
        ("system.main.now()", "uses now() with a schema or as a method"),
        ("s.repeat(n)", "uses repeat() with a schema or as a method"),
    ],
)
def test_what_hides_more_than_the_record_is_refused_by_name(text: str, why: str) -> None:
    assert why in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "age(t, t)::VARCHAR",
        "hour(t)",
        "strftime(t, '%Y')",
        "date_trunc('day', t)",
        "t + INTERVAL 1 DAY",
        "n + 1",
        "t - t > INTERVAL 1 HOUR",
        "list_sum([n, a])::BIGINT",
        "list_aggr([x], 'stddev_samp')",
        "array_to_string([s, s], ',')",
        "split_part(s, ',', 1)",
        "list_max(list_transform([n], lambda y: y + a))",
        "km(x, x, x, x)",
        "hours(t, t)",
        "md5_number_lower(s)::DECIMAL(20, 0)",
    ],
)
def test_what_is_a_function_of_the_record_is_accepted_also_through_a_macro(text: str) -> None:
    assert analyse(text, FIELDS).text == text


def test_what_this_duckdb_has_beside_the_table_is_refused_on_use_with_its_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = dict(table())
    del known["upper"]
    known["hour"] = tuple(one for one in known["hour"] if "TIMESTAMP WITH" not in one.text)
    known["fdiv"] = (Overload("macro", "(x, y) AS x", "record"),)
    monkeypatch.setattr(functions, "table", lambda: known)
    analyse.cache_clear()
    release = duckdb.__version__
    assert f"calls upper(): DuckDB {release} has it, but this version of windrow does" in refusal("upper(s)")
    assert f"calls hour(): DuckDB {release} has it with (TIMESTAMP WITH TIME ZONE)" in refusal("hour(t)")
    assert f"calls fdiv(): DuckDB {release} defines it as floor((x / y))" in refusal("fdiv(n, a)")
    assert analyse("hour(t AT TIME ZONE 'UTC')", FIELDS).columns == ("t",)
    analyse.cache_clear()


def test_a_function_of_another_release_is_unknown_where_it_has_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = CatalogueEntry({"scalar"}, {"(BIGINT) -> BIGINT", "(VARCHAR) -> BIGINT"}, set())
    monkeypatch.setattr(functions, "catalogue", lambda: {"abs": entry})
    monkeypatch.setattr(functions, "table", lambda: {"abs": (Overload("scalar", "(BIGINT) -> BIGINT", "record"),)})
    refuse_bound("abs", ("BIGINT",))
    with pytest.raises(PipelineError, match=r"has it with \(VARCHAR\)"):
        refuse_bound("abs", ("VARCHAR",))


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("repeat(s, n)", True),
        ("repeat([s], n)[1]", True),
        ("lpad(s, n::INTEGER, ' ')", True),
        ("rpad(s, n::INTEGER, ' ')", True),
        ("len(range(n))", True),
        ("len(range(a, n))", True),
        ("len(range(a, n, 1))", True),
        ("len(generate_series(n))", True),
        ("len(range(t, t + to_seconds(n), INTERVAL 1 MILLISECOND))", True),
        ("len(range(t AT TIME ZONE 'UTC', (t + to_seconds(n)) AT TIME ZONE 'UTC', INTERVAL 1 MILLISECOND))", True),
        ("len(list_resize([s], n))", True),
        ("len(array_resize([s], n, s))", True),
        ("bar(x, 0, 1, n)", True),
        ("bitstring('1', n::INTEGER)::VARCHAR", True),
        ("len(equi_width_bins(0, 10, n, false))", True),
        ("levenshtein(repeat(s, 4000), repeat(s, (n // 1000)::BIGINT))", True),
        ("len(range(n, a))", False),
        ("len(range(a, n, 0))", False),
        ("len(replace(repeat(s, 20000), s, repeat(s, (n // 100)::BIGINT)))", True),
        ("len(regexp_replace(repeat(s, 20000), s, repeat(s, (n // 100)::BIGINT), 'g'))", True),
        ("len(list_resize([s], (n // 100)::BIGINT, repeat(s, 1000)))", True),
    ],
)
def test_a_record_cannot_ask_for_more_than_a_fixed_size(text: str, *, is_refused: bool) -> None:
    """The largest of them would be 40 MB: with a bound by memory, none would fail."""
    expression = analyse(text, FIELDS, frozenset("s"))
    row = (
        "'a' AS s, unnest([5000000::BIGINT]) AS n, 1::BIGINT AS a, 0.5::DOUBLE AS x, '2026-01-01 00:00Z'::TIMESTAMPTZ t"
    )
    of = f"(SELECT {row})"
    query = f"SELECT TRY({expression.sql}) IS NULL FROM {of}"
    assert database().cursor().execute(query).fetchall() == [(is_refused,)]
    small = of.replace("5000000", "20")
    assert database().cursor().execute(f"SELECT {expression.sql} IS NULL FROM {small}").fetchall() == [(False,)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("list_transform([n], lambda y: repeat(s, y))[1]", "calls repeat() within a lambda"),
        ("list_transform([n], lambda y: lpad(s, 5000, ' '))[1]", "a constant of at most 100"),
        ("list_transform([n], lambda y: range(1000))[1][1]", "calls range() within a lambda"),
        ("list_reduce(string_split(s, ','), lambda p, q: p || p)", "can make its result a multiple of 'p'"),
        ("list_reduce([s], lambda p, q: replace(p, 'a', upper(p)))", "can make its result a multiple of 'p'"),
        ("list_reduce(string_split(s, ''), lambda p, q: hex(p))", "can make its result a multiple of 'p'"),
        ("list_reduce(string_split(s, ''), lambda p, q: replace(p, 'a', 'aa'))", "use 'p' once, as in p || ',' || q"),
        ("list_reduce(string_split(s, ''), lambda p, q: [p]::VARCHAR)", "can make its result a multiple of 'p'"),
        ("list_reduce(string_split(s, ''), lambda p, q: {'a': p} || q)", "can make its result a multiple of 'p'"),
        ("list_reduce(string_split(s, ''), lambda p, q: format('{}', [p]))", "can make its result a multiple of 'p'"),
        ("len([n] + [a])", "calls +() with a list or a BIGNUM; concatenate lists with ||"),
        ("(s::BIGNUM - 1)::VARCHAR", "calls -() with a list or a BIGNUM"),
        (
            "len(list_transform(range(100000), lambda y: list_transform(range(100), lambda z: z + y)))",
            "allocates more than 10,000,000 bytes and items for every record",
        ),
        ("format(s, n)", "a format that is not a constant text"),
        ("format('{:>{}}', s, n)", "a width is a number of at most 100"),
        ("format('{:>1000000000}', s)", "a width is a number of at most 100"),
        ("printf('%*d', n, n)", "a width is a number of at most 100"),
        ("printf('%1000000000d', n)", "a width is a number of at most 100"),
    ],
)
def test_a_size_that_cannot_be_bounded_by_the_record_is_refused(text: str, why: str) -> None:
    assert why in refusal(text)


def test_sizes_that_are_constants_are_accepted_in_a_lambda_and_in_a_format() -> None:
    for text in (
        "list_transform([n], lambda y: lpad(y::VARCHAR, 10, '0'))[1]",
        "list_transform([[n]], lambda y: list_transform(y, lambda z: lpad(z::VARCHAR, 5, ' '))[1])[1]",
        "list_reduce([s, s], lambda p, q: p || ',' || q)",
        "list_reduce([n, a], lambda p, q: CASE WHEN p > q THEN p ELSE p * p END)",
        "format('{:>20} {:.2f} {{}} of 2026', s, x)",
        "format('http://127.0.0.1:8080/{}', s)",
        "printf('%05d of 100%% in 2026', n)",
    ):
        assert analyse(text, FIELDS).text == text


def test_the_connections_of_expressions_have_no_files_network_settings_extensions_or_variables(tmp_path: Path) -> None:
    file, here = tmp_path / "a.parquet", pa.table({"n": [1]})
    pq.write_table(here, file)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a.parquet"
        for statement in (
            f"SELECT * FROM read_parquet('{file}')",
            f"SELECT * FROM '{file}'",
            f"SELECT * FROM read_text('{file}')",
            f"SELECT * FROM glob('{tmp_path}/*')",
            f"SELECT * FROM read_parquet('{url}')",
            f"COPY (SELECT 1) TO '{tmp_path}/b.csv'",
            f"ATTACH '{tmp_path}/c.db'",
            "INSTALL httpfs",
            "SET TimeZone = 'Asia/Tokyo'",
            "SET GLOBAL threads = 4",
            "SET enable_external_access = true",
            "SET lock_configuration = false",
            "PRAGMA disable_optimizer",
            "SELECT * FROM here",
        ):
            with pytest.raises(duckdb.Error):
                database().cursor().execute(statement).fetchall()
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("text", ["km(x, x, 0 / 0, 0)", "format('{}', 1e999)", "ln(0) + x", "acos(acos(1e308)) || 'x'"])
def test_constants_that_are_no_numbers_can_be_analysed(text: str) -> None:
    assert analyse(f"CAST({text} AS VARCHAR)", FIELDS).type == StringType()


def test_items_are_distinct_in_an_order_that_no_release_changes() -> None:
    found = database().cursor().execute("SELECT list_distinct([3, 1, 2, 30, 7, 1]), array_distinct(['b', 'a', 'b'])")
    assert found.fetchall() == [([1, 2, 3, 7, 30], ["a", "b"])]


def test_functions_of_its_own_are_not_duckdbs() -> None:
    assert not {*OWN_FUNCTIONS} & {*catalogue()}
