"""What grows faster than its record: bounds on its size, judged from the record alone, and how sound they are."""

from __future__ import annotations

import re
import resource

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from windrow.engine.decode.evaluation import Evaluator
from windrow.errors import PipelineError
from windrow.expressions import Computed, analyse
from windrow.expressions.engine import database
from windrow.expressions.sizes import Sizes, size_sql
from windrow.expressions.syntax import parse
from windrow.model import Field, LongType, StringType

FIELDS = (Field("s", StringType()), Field("n", LongType()), Field("a", LongType()))

GROWING = (
    "length(list_transform(range(n), lambda y: s)::VARCHAR)",
    "len(list_transform(range(n), lambda y: s || y))",
    "len(list_transform(string_split(s, ''), lambda y: list_transform(string_split(s, ''), lambda z: y || z)))",
    "len(list_transform(range(n), lambda y: string_split(s, '')))",
    "len(list_transform(range(n), lambda y: repeat(s, 20)))",
    "len(list_transform(range(n), lambda y: len(replace(s, 'a', 'bb'))))",
    "len(list_transform(range(n), lambda y: regexp_replace(y::VARCHAR, '.', s)))",
    "to_json(list_transform(range(n), lambda y: [s, s]))::VARCHAR",
    "len(list_transform(range(n), lambda y: {'b': s, 'c': map {s: y}}))",
    "len([s for y in range(n) if y >= 0])",
    "len(list_filter(range(n), lambda y: upper(s || y) = s))",
    "len(list_zip(list_transform(range(n), lambda y: s), [n]))",
    "len(list_reduce(list_transform(range(n), lambda y: y::VARCHAR), lambda p, q: p || s))",
    "list_aggr(list_transform(range(n), lambda y: s), 'string_agg', '-')",
    "array_to_string(list_transform(list_transform(range(n), lambda y: y), lambda y: s), ',')",
    "invoke(lambda p, q: len(list_transform(p, lambda y: q)), range(n), s)",
    "len(list_transform(range(n), lambda y: format('{0}{0}', s)))",
    "len(list_transform(from_json('[' || s || ']', '[\"BIGINT\"]'), lambda y: s))",
    "concat_ws(s, string_split(s, ''))",
    "len(list_select([s], list_transform(range(n), lambda y: 1))::VARCHAR)",
    "len(json_pretty('[' || repeat('[', length(s)) || repeat(']', length(s)) || ']'))",
    "len(json_extract(repeat('[', length(s)) || repeat(']', length(s)), '$..*'))",
    "len((repeat('[', length(s)) || repeat(']', length(s)))->>('$.' || '.*'))",
)
"""Expressions that take memory for the product of a text's length and of a number or another length."""


@pytest.mark.parametrize("text", GROWING)
def test_what_grows_faster_than_its_record_fails_where_it_is_too_large(text: str) -> None:
    expression = analyse(text, FIELDS, frozenset("s"))
    short, long = ("1,1", 20), ("1," * 5000 + "1", 50_000)
    rows = pa.table({"s": [short[0], long[0], short[0]], "n": [short[1], long[1], short[1]]})
    columns = Evaluator((Computed("v", "v", expression),))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (values,), failed = columns.compute(rows)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert list(failed) == [1]
    why = failed[1]
    assert (
        why.endswith("() would produce more than 10,000,000 bytes and items for one record")
        or "recursion depth of 128" in why
    )
    assert values[0].is_valid
    assert values[0] == values[2]
    for row in range(3):  # in another cut
        (alone,), failed = columns.compute(rows.slice(row, 1))
        assert (failed, alone[0]) == ({0: why} if row == 1 else {}, values[row])


@pytest.mark.parametrize(
    "text",
    [
        "list_transform(string_split(s, ','), lambda y: upper(trim(replace(y, '-', ''))))[1]",
        "len(list_filter(string_split(s, ','), lambda y: y <> s AND contains(s, y)))",
        "list_sum(list_transform(string_split(s, ','), lambda y: TRY_CAST(y AS BIGINT) * n))::BIGINT",
        "list_sum([n * y for y in range(30) if y > a])::BIGINT",
        "list_reduce(string_split(s, ','), lambda p, q: q)",
        "list_reduce([{'v': n, 'w': a}], lambda p, q: {'v': p.v + q.v, 'w': greatest(p.w - q.w, 0)}).v",
        "json_extract_string(s, ['$.a', '$.b'])[1]",
        "array_to_string(list_sort(list_distinct(string_split(s, ','))), ';')",
        "concat_ws('-', s, n)",
        "s->>'$.a'",
    ],
)
def test_what_grows_as_its_record_does_has_no_bound(text: str) -> None:
    assert not analyse(text, FIELDS).grows
    assert f"CAST(({text}\n)" in analyse(text, FIELDS).sql


def test_a_lambda_may_capture_a_text_and_fail_for_it_where_it_is_used() -> None:
    text = "CASE WHEN y = 'a' THEN y || s ELSE CAST(s AS BIGINT)::VARCHAR END"
    text = f"array_to_string(list_transform(string_split(s, ','), lambda y: {text}), ';')"
    expression = analyse(text, FIELDS)
    (values,), failed = Evaluator((Computed("v", "v", expression),)).compute(pa.table({"s": ["a,a", "1", "b", None]}))
    assert values.to_pylist() == ["aa,a;aa,a", "1", None, None]
    assert list(failed) == [2]


def test_many_records_of_a_large_size_are_computed_in_parts() -> None:
    expression = analyse("length(list_transform(range(n), lambda y: s)::VARCHAR)", FIELDS)
    rows = pa.table({"s": ["x" * 4000] * 60, "n": [2000] * 60})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (values,), failed = Evaluator((Computed("v", "v", expression),)).compute(rows)
    assert (values.to_pylist(), failed) == ([2000 * 4002] * 60, {})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # at once it is 500 MB and more


MEGABYTE = "x" * 1_000_000

ACCEPTED = (
    ("length(json_pretty(s))", "[" + ",".join(f'{{"a": {number}}}' for number in range(2_800)) + "]"),
    ("list_reduce(string_split(s, ','), lambda p, q: format('{};{}', p, q))", "a,b"),
    ("list_reduce(string_split(s, ','), lambda p, q: printf('%s;%s', p, q))", "a,b"),
    ("list_reduce(string_split(s, ','), lambda p, q: concat_ws(';', p, q))", "a,b"),
    ("list_reduce(string_split(s, ','), lambda p, q: replace(p || q, 'b', ''))", "a,b"),
    ("list_reduce(string_split(s, ','), lambda p, q: regexp_replace(p || q, 'b', '', 'g'))", "a,b"),
    ("length(list_reduce(string_split(s, ','), lambda p, q: p || ';' || q))", "abc," * 7_400),
    ("len(list_transform(string_split(s, ''), lambda q: json_object('a', q)))", "ab," * 7_400),
    ("len(list_transform(string_split(s, ''), lambda q: map_from_entries([{'k': q, 'v': 1}])))", "ab," * 7_400),
    ("len(list_transform(range(length(s)), lambda q: unicode(substr(s, q + 1, 1))))", "ab," * 7_400),
    ("length(replace(replace(replace(replace(s, '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '\"', '&quot;'))", MEGABYTE),
    ("json_contains(s, '1')", "[" + ",".join(["[1]"] * 10_000) + "]"),
    ("length(repeat('a', n))", "a"),
    ("len(range(n // 10))", "a"),
    ("CAST(s AS FLOAT[768])[1]", f"[{','.join(['0.5'] * 768)}]"),
    ("length(CAST(s AS BIGNUM)::VARCHAR)", "9" * 99_000),
    ("s->'a'->>'b'", '{"a": {"b": 1}}'),
)


@pytest.mark.parametrize(("text", "s"), ACCEPTED, ids=[text for text, _ in ACCEPTED])
def test_what_a_record_has_room_for_is_computed(text: str, s: str) -> None:
    expression = analyse(text, FIELDS, frozenset("s"))
    (values,), failed = Evaluator((Computed("v", "v", expression),)).compute(pa.table({"s": [s], "n": [1_000_000]}))
    assert failed == {}
    assert values[0].is_valid


FAILING = (
    (
        "length(to_binary(to_binary(to_binary(to_binary(s)))))",
        MEGABYTE,
        "to_binary() would produce more than 10,000,000 bytes",
    ),
    (
        f"length({'to_json(' * 16}s{')::VARCHAR' * 16})",
        '"' * 1_000,
        "to_json() would produce more than 10,000,000 bytes",
    ),
    ("len(list_resize([]::INTEGER[10000][], n // 100))", "a", "list_resize() would produce more than 100,000 items"),
    (
        "len(CAST(s AS INTEGER[1000][]))",
        f"[{','.join(['NULL'] * 20_000)}]",
        "cast() would produce more than 10,000 bytes",
    ),
    ("length(CAST(s AS BIGNUM)::VARCHAR)", "9" * 1_000_000, "cast() would produce more than 100,000 bytes"),
    ("json_contains(s, '1')", "[" * 400_000 + "]" * 400_000, "recursion depth of 128"),
    ("json_contains(s, s)", '{"a":' * 100_000 + "1" + "}" * 100_000, "recursion depth of 128"),
    ("array_to_string(list_transform([s], lambda q: json_contains(q, '1')), '')", "[" * 400_000, "Malformed JSON"),
    (
        "length(list_reduce(string_split(s, ''), lambda p, q: p || q))",
        MEGABYTE,
        "list_reduce() would produce more than",
    ),
    ("length(repeat('a', n + 1))", "a", "repeat() would produce more than 1,000,000 bytes"),
    ("len(list_resize([1], 1000 - n))", "a", "when casting an argument of list_resize()"),
    ("timezone(s, TIMESTAMP '2026-01-01')::VARCHAR", MEGABYTE, "timezone() would compare more than 10,000,000 pairs"),
    ("jaro_similarity(s, s)", MEGABYTE, "jaro_similarity() would compare more than 10,000,000 pairs"),
    ("regexp_matches(s, s)", MEGABYTE, "regexp_matches() would compare more than 10,000,000 pairs"),
)


@pytest.mark.parametrize(("text", "s", "why"), FAILING, ids=[text[:60] for text, _, _ in FAILING])
def test_a_record_that_asks_for_too_much_fails_alone(text: str, s: str, why: str) -> None:
    expression = analyse(text, FIELDS, frozenset("s"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = pa.table({"s": [None, s], "n": [1, 1_000_000]})
    _, failed = Evaluator((Computed("v", "v", expression),)).compute(rows)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert list(failed) == [1]
    assert why in failed[1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(s::JSON::VARIANT)::VARCHAR", "has a VARIANT, whose nesting has no limit; use JSON"),
        ("len(s::INTEGER[100000])", "has an array of 100,000 items"),
        ("len([s::INTEGER[1000][1000]])", "has an array of 1,000,000 items"),
        ("len(from_json(s, '[\"FLOAT[20000]\"]'))", "has an array of 20,000 items"),
    ],
)
def test_a_type_that_has_no_bound_is_refused(text: str, why: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(why)):
        analyse(text, FIELDS, frozenset("s"))


def test_a_long_chain_of_calls_is_as_quick_as_its_length() -> None:
    text = "s"
    for number in range(30):
        text = f"replace({text}, '{number}', '<{number}>')"
    (values,), _ = Evaluator((Computed("v", "v", analyse(text, FIELDS)),)).compute(pa.table({"s": ["a30"], "n": [1]}))
    assert values[0].is_valid


def texts(names: tuple[str, ...], depth: int) -> st.SearchStrategy[str]:
    """Return expressions that are texts; `names` are the arguments of lambdas around them."""
    plain = st.sampled_from(("s", "'-'", "n::VARCHAR", *names))
    if not depth:
        return plain
    some, inner, list_ = texts(names, depth - 1), texts((*names, f"q{depth}"), depth - 1), lists(names, depth - 1)
    made = (
        "({0} || {1})",
        "replace({0}, 'a', {1})",
        "regexp_replace({0}, '(.)', '\\1\\1', 'g')",
        "upper({0})",
        "hex({0})",
        "to_json({0})::VARCHAR",
        "format('{{0}}{{0}}', {0})",
        "repeat({0}, 3)",
        "CASE WHEN {0} = {1} THEN {1} ELSE {0} END",
        "concat_ws({0}, {3}, {1})",
        "array_to_string({3}, '; ')",
        "({3})[1]",
        "({3})::VARCHAR",
        f"list_reduce({{3}}, lambda p{depth}, q{depth}: p{depth} || {{2}})",
        f"invoke(lambda q{depth}: {{2}}, {{0}})",
    )
    return st.builds(str.format, st.sampled_from(made), some, some, inner, list_) | plain


def lists(names: tuple[str, ...], depth: int) -> st.SearchStrategy[str]:
    """Return expressions that are lists of texts."""
    plain = st.sampled_from(["string_split(s, '')", *(f"string_split({name}, 'a')" for name in names)])
    if not depth:
        return plain
    some, inner, list_ = texts(names, depth - 1), texts((*names, f"q{depth}"), depth - 1), lists(names, depth - 1)
    made = (
        "string_split({0}, '')",
        "[{0}, {0}]",
        "list_concat({2}, {2})",
        "list_select({2}, [1, 1, 1])",
        f"list_transform({{2}}, lambda q{depth}: {{1}})",
        f"list_filter({{2}}, lambda q{depth}: {{1}} <> 'a')",
        f"[{{1}} for q{depth} in {{2}}]",
    )
    return st.builds(str.format, st.sampled_from(made), some, inner, list_) | plain


@examples(100)
@given(texts(("q",), 3), st.text('a-"\\', max_size=9), st.integers(0, 99))
def test_no_value_is_larger_than_the_size_that_is_computed_for_it(text: str, s: str, n: int) -> None:
    whole = f"list_transform(string_split(s, ''), lambda q: {text})"
    try:
        size = size_sql(Sizes(FIELDS).of(parse(whole), {}).size)
    except PipelineError as exc:
        assert "can make its result a multiple of" in exc.message  # noqa: PT017 - most are accepted
        return
    query = f"SELECT strlen(({whole})::VARCHAR), {size} FROM (SELECT ?::VARCHAR AS s, ?::BIGINT AS n, 0 AS a)"
    try:
        ((length, most),) = database().cursor().execute(query, [s, n]).fetchall()
    except duckdb.Error:
        return
    assert length <= 4 * most + 2  # of an empty text in a list, its text has four characters


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "s", "n", "count"),
    [
        ("len(range(n))", "a", 100_000, 3_000),
        ("length(repeat('a', n))", "a", 1_000_000, 3_000),
        ("length(lpad(s, n::INTEGER, 'x'))", "a", 100_000, 8_000),
        ("length(to_binary(to_binary(s)))", "a" * 100_000, 1, 1_000),
        ("len(list_transform(range(n), lambda q: s))", "a" * 90, 100_000, 300),
    ],
)
def test_many_records_that_are_as_large_as_they_may_be_fit_in_memory(text: str, s: str, n: int, count: int) -> None:
    evaluator = Evaluator((Computed("v", "v", analyse(text, FIELDS)),))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (values,), failed = evaluator.compute(pa.table({"s": [s] * count, "n": [n] * count}))
    assert failed == {}
    assert values.null_count == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000
