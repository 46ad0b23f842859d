"""Catalogue of aggregates: the accumulators of each function and their SQL.

- Counts, sums and means of exact numbers are exact; a mean is rounded half away from zero.
- Minimum, maximum, and the logical AND and OR are merged by the same function that creates them.
- Sets keep the distinct values, sorted. Their size is estimated by KMV (Bar-Yossef et al., Counting Distinct Elements
  in a Data Stream, 2002; Beyer et al., On Synopses for Distinct-Value Estimation Under Multiset Operations, 2007): of n
  random hashes in [0, 1), the k-th smallest is near k / n. The smallest hashes of a union are the smallest among the
  smallest hashes of its parts, so merges are exact in any order.
- Quantiles and the most frequent values keep distinct values with their counts. An approximate quantile counts buckets
  instead of values: the sign, exponent and first bits of a double, so that the middle of a bucket is within
  `1 / 2**(BITS + 1)` of all its values. Counts can be added in any order.
- First, last and collected values, and values chosen by a measure, are kept with the position of their record in the
  order, which is unique.
- The variance of exact numbers is computed from exact sums of values and squares, so it does not depend on the order of
  records. A square can have 56 digits, so each value is split into two halves and the parts of the squares are summed.
  For doubles the state is (count, mean, sum of squared distances from the mean), merged as in Chan, Golub and LeVeque,
  Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.

Values in JSON have the format of the late output: decimals are text with all digits, times are in ISO 8601.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Literal, assert_never

from windrow import model as m
from windrow.engine.aggregates import kernels
from windrow.engine.aggregates.accumulators import Accumulator, AggregateParts, AggregateSql, ArgumentSql, not_null
from windrow.engine.aggregates.custom import custom
from windrow.engine.duckdb_sql import identifier
from windrow.engine.schema import DIFF, OFFSET, PARTITION, TIME
from windrow.expressions import WindowSpec, arguments, results
from windrow.expressions.engine import sql_type
from windrow.expressions.results import MEAN_DIGITS


def compile_aggregates(spec: WindowSpec) -> tuple[AggregateSql, ...]:
    """Return the aggregates of the pipeline in declaration order."""
    declared = enumerate(zip(spec.node.aggregates, arguments(spec), results(spec), strict=True))
    return tuple(
        AggregateSql(aggregate.name, *_compile(f"__a{number}", aggregate, tuple(map(ArgumentSql.of, of)), result.type))
        for number, (aggregate, of, result) in declared
    )


def compile_running(spec: WindowSpec, *, is_changelog: bool) -> tuple[AggregateSql, ...]:
    """Return the aggregates for rows that are merged one after the other; in a changelog, `DIFF` adds or removes rows.

    The aggregates of the pipeline must not require that all rows are kept (`needs_rows`).
    """
    compiled = compile_aggregates(spec)
    if not is_changelog:
        return compiled
    return tuple(
        _invert(fold, aggregate.function, tuple(map(ArgumentSql.of, inputs)))
        for fold, aggregate, inputs in zip(compiled, spec.node.aggregates, arguments(spec), strict=True)
    )


def _invert(fold: AggregateSql, function: m.Function, inputs: tuple[ArgumentSql, ...]) -> AggregateSql:
    """Return an aggregate from which rows can be subtracted again; raise TypeError if it does not allow that."""
    match function:
        case m.Formula():
            return fold
        case m.Count():
            (rows,) = fold.accumulators
            return replace(fold, accumulators=(replace(rows, begin=_net(inputs[0].sql if inputs else None)),))
        case m.Sum() | m.Avg():
            (of,) = inputs
            # a sum of no values is null, so the number of values is needed too
            (sum_, number), average = mean(fold.accumulators[0].column.removesuffix("_sum"), of)
            sum_ = replace(sum_, begin=f"CAST(coalesce(sum({of.sql}::HUGEINT * {DIFF}), 0) AS {_WHOLE})")
            number = replace(number, begin=_net(f"{of.sql} IS NOT NULL" if of.nullable else None))
            finish = f"CASE WHEN {identifier(number.column)} > 0 THEN {identifier(sum_.column)} END"
            return AggregateSql(fold.name, (sum_, number), average if isinstance(function, m.Avg) else finish)
        case _:
            msg = f"{type(function).__name__} cannot retract a row"
            raise TypeError(msg)


def _net(condition: str | None) -> str:
    """Return the SQL of the net number of rows, counting all rows or those that satisfy a condition."""
    rows = DIFF if condition is None else f"CASE WHEN {condition} THEN {DIFF} ELSE 0 END"
    return f"CAST(sum({rows}) AS BIGINT)"


def _compile(
    column: str, aggregate: m.Aggregate, inputs: tuple[ArgumentSql, ...], result: m.DataType
) -> AggregateParts:
    match aggregate.function:
        case m.Count():
            return count(column, inputs[0].sql if inputs else None)
        case m.Custom(code, names):
            return custom(aggregate.name, column, code, names, inputs)
        case m.Formula():
            # `FormulaOperator` computes it over the finished results
            return (), f"CAST(NULL AS {sql_type(result)})"
        case function:
            return _compile_unary(column, function, *inputs)


_CALLS: Mapping[type[m.UnaryFunction], Literal["min", "max", "bool_and", "bool_or"]] = {
    m.Min: "min",
    m.Max: "max",
    m.BoolAnd: "bool_and",
    m.BoolOr: "bool_or",
    m.First: "min",
    m.Last: "max",
    m.MinBy: "min",
    m.MaxBy: "max",
    m.BottomKBy: "min",
    m.TopKBy: "max",
}
"""The SQL function that creates the accumulator."""


def _compile_unary(  # noqa: C901, PLR0911, PLR0912 - a case for each of them
    column: str, function: m.UnaryFunction, of: ArgumentSql, *measure: ArgumentSql
) -> AggregateParts:
    call = _CALLS.get(type(function), "")
    match function:
        case m.Sum():
            return total(column, of)
        case m.Avg():
            return mean(column, of)
        case m.Min() | m.Max() | m.BoolAnd() | m.BoolOr():
            return (Accumulator(column, f"{call}({of.sql})", call),), identifier(column)
        case m.CountDistinct():
            return count_distinct(column, of)
        case m.ApproxCountDistinct():
            return approx_count_distinct(column, of)
        case m.CollectSet(_, most):
            return collect_set(column, of, most)
        case m.Quantile(_, at):
            return quantile(column, of, at)
        case m.ApproxQuantile(_, at):
            return approx_quantile(column, of, at)
        case m.TopK(_, k):
            return top_k(column, of, k)
        case m.First(_, by) | m.Last(_, by):
            return first_or_last(column, of, by=by, call=call)
        case m.MaxBy() | m.MinBy():
            return by_measure(column, of, *measure, call=call)
        case m.TopKBy(_, _, k) | m.BottomKBy(_, _, k):
            return rank_by_measure(column, of, *measure, call=call, k=k)
        case m.CollectList(_, most, by):
            return collect_list(column, of, most, by=by)
        case m.Variance():
            return variance(column, of)
        case m.Stddev():
            return stddev(column, of)
        case _:
            assert_never(function)


_WHOLE = "DECIMAL(38,0)"


def count(column: str, condition: str | None) -> AggregateParts:
    """Return the SQL that counts all records, or the records that satisfy a condition."""
    begin = "count(*)" if condition is None else f"count(*) FILTER (WHERE {condition})"
    return (_count(column, begin),), identifier(column)


def total(column: str, of: ArgumentSql) -> AggregateParts:
    """Return the SQL that sums a number."""
    return (_sum(column, of),), _finite_sum(column, of)


def mean(column: str, of: ArgumentSql) -> AggregateParts:
    """Return the SQL of a mean, with `MEAN_DIGITS` more decimal places than the argument."""
    begin = f"count({of.sql})" if of.nullable else "count(*)"
    parts = _sum(f"{column}_sum", of), _count(f"{column}_count", begin)
    dividend, divisor = _finite_sum(parts[0].column, of), identifier(parts[1].column)
    if of.nullable:
        divisor = f"nullif({divisor}, 0)"
    return parts, f"{dividend} / {divisor}" if of.is_double else _mean(dividend, divisor)


def _sum(column: str, of: ArgumentSql) -> Accumulator:
    around = "{}" if of.is_double else f"CAST({{}} AS {_WHOLE})"
    return Accumulator(column, around.replace("{}", f"sum({of.sql})"), "sum", around)


def _finite_sum(column: str, of: ArgumentSql) -> str:
    """Return the SQL of a sum; NaN, which is the sum of infinities of both signs, becomes plus infinity.

    A sum of doubles that is too large is infinite, and whether both signs occur depends on how the log is cut into
    steps. NaN would be null in SQLite.
    """
    sum_ = identifier(column)
    return f"CASE WHEN isnan({sum_}) THEN CAST('inf' AS DOUBLE) ELSE {sum_} END" if of.is_double else sum_


def _count(column: str, begin: str) -> Accumulator:
    return Accumulator(column, begin, "sum", "CAST({} AS BIGINT)")


def _mean(dividend: str, divisor: str) -> str:
    """Return the SQL of a quotient, rounded half away from zero."""
    whole, by = f"abs({dividend}::HUGEINT)", f"{divisor}::HUGEINT"
    tail = f"(({whole} % {by}) * {2 * 10**MEAN_DIGITS} + {by}) // (2 * {by})"
    return f"(sign({dividend}::HUGEINT) * (({whole} // {by}) * {10**MEAN_DIGITS} + {tail}))::{_WHOLE}"


HASHES = 1024
"""Number of smallest hashes to keep. The standard error of the estimate is 1 / sqrt(HASHES - 2), or 3.1 %."""


def count_distinct(column: str, of: ArgumentSql) -> AggregateParts:
    """Return the SQL of an exact distinct count, which keeps all distinct values."""
    return (_set(column, of.sql, not_null(of)),), f"coalesce(len({identifier(column)}), 0)"


def collect_set(column: str, of: ArgumentSql, most: int) -> AggregateParts:
    """Return the SQL that collects the `most` smallest distinct values."""
    return (_set(column, of.sql, not_null(of), most),), json_array(identifier(column), of)


def approx_count_distinct(column: str, of: ArgumentSql) -> AggregateParts:
    """Return the SQL of an approximate distinct count, which keeps the `HASHES` smallest hashes of the values.

    A hash is 64 bits of the MD5 of the value's text.
    """
    hashed = f"md5_number_lower({of.sql}::VARCHAR)"
    kept = identifier(column)
    estimate = f"round({HASHES - 1} / (({kept}[{HASHES}]::DOUBLE + 1) / {float(2**64)!r}))::BIGINT"
    finish = f"CASE WHEN len({kept}) = {HASHES} THEN {estimate} ELSE coalesce(len({kept}), 0) END"
    return (_set(column, hashed, not_null(of), HASHES),), finish


def _set(column: str, sql: str, given: str, most: int | None = None) -> Accumulator:
    cut = "" if most is None else f"[:{most}]"
    return Accumulator(
        column,
        f"list_sort(list(DISTINCT {sql}){given}){cut}",
        "list",
        f"list_sort(list_distinct(flatten({{}}))){cut}",
    )


def quantile(column: str, of: ArgumentSql, at: float) -> AggregateParts:
    """Return the SQL of an exact quantile, which counts the occurrences of each value."""
    return (_counts(column, of.sql, not_null(of), of.type),), _value_at(column, of.type, at)


def approx_quantile(column: str, of: ArgumentSql, at: float) -> AggregateParts:
    """Return the SQL of an approximate quantile, which counts the values in each bucket."""
    bucket, middle = kernels.bucket(), kernels.middle()
    scale = "" if of.scale is None else f" / {float(10**of.scale)!r}"
    finish = f"{middle}({_value_at(column, 'BIGINT', at)}){scale}"
    return (_counts(column, f"{bucket}({of.sql}::DOUBLE)", not_null(of), "BIGINT"),), finish


def top_k(column: str, of: ArgumentSql, k: int) -> AggregateParts:
    """Return the SQL of the `k` most frequent values as [value, count] pairs; ties are ordered by value."""
    ranked = f"list_sort(list_transform({identifier(column)}, lambda e: {{c: -e.n, v: e.v}}))[:{k}]"
    pair = f"[to_json({as_json('e.v', of)}), to_json(-e.c)]"
    finish = (
        f"CASE WHEN len({identifier(column)}) > 0 THEN to_json(list_transform({ranked}, lambda e: {pair}))::VARCHAR END"
    )
    return (_counts(column, of.sql, not_null(of), of.type),), finish


def _counts(column: str, sql: str, given: str, type_: str) -> Accumulator:
    return Accumulator(column, f"{kernels.count(type_)}(list({sql}){given})", "list", f"{kernels.add(type_)}({{}})")


def _value_at(column: str, type_: str, at: float) -> str:
    # the exact decimal fraction: 0.1 is a tenth
    return f"{kernels.rank(type_, Fraction(str(at)))}({identifier(column)})"


_PLACES = {
    "time": f"t: {TIME}, p: {PARTITION}, o: {OFFSET}",
    "log": f"p: {PARTITION}, o: {OFFSET}",
}


def first_or_last(column: str, of: ArgumentSql, *, by: Literal["time", "log"], call: str) -> AggregateParts:
    """Return the SQL of the value in the first (`call` is min) or last (max) record."""
    begin = f"{call}({{{_PLACES[by]}, v: {of.sql}}}){not_null(of)}"
    return (Accumulator(column, begin, call),), f"{identifier(column)}.v"


def by_measure(column: str, of: ArgumentSql, measure: ArgumentSql, *, call: str) -> AggregateParts:
    """Return the SQL of the value with the smallest (`call` is min) or greatest (max) measure.

    If several records have this measure, the value is that of the first record.
    """
    row, given = _row_by_measure(of, measure, call)
    return (Accumulator(column, f"{call}({row}){given}", call),), f"{identifier(column)}.v"


def rank_by_measure(column: str, of: ArgumentSql, measure: ArgumentSql, *, call: str, k: int) -> AggregateParts:
    """Return the SQL of the `k` values with the smallest (`call` is min) or greatest (max) measures, in order.

    The result is a JSON array of [value, measure] pairs.
    """
    row, given = _row_by_measure(of, measure, call)
    order = "ASC" if call == "min" else "DESC"
    kept = Accumulator(column, f"{call}({row}, {k}){given}", "list", f"list_sort(flatten({{}}), '{order}')[:{k}]")
    pair = f"[to_json({as_json('e.v', of)}), to_json({as_json('e.m', measure)})]"
    rows = f"to_json(list_transform({identifier(column)}, lambda e: {pair}))::VARCHAR"
    return (kept,), f"CASE WHEN len({identifier(column)}) > 0 THEN {rows} END"


def _row_by_measure(of: ArgumentSql, measure: ArgumentSql, call: str) -> tuple[str, str]:
    """Return the SQL of a struct that sorts records by measure, and the FILTER clause for a null measure or value."""
    sign = "" if call == "min" else "-"
    place = f"t: {sign}{TIME}, p: {sign}{PARTITION}, o: {sign}{OFFSET}"
    return f"{{m: {measure.sql}, {place}, v: {of.sql}}}", not_null(of, measure)


def collect_list(column: str, of: ArgumentSql, most: int, *, by: Literal["time", "log"]) -> AggregateParts:
    """Return the SQL of the first `most` values, ordered by event time or by their position in the log."""
    begin = f"min({{{_PLACES[by]}, v: {of.sql}}}, {most}){not_null(of)}"
    merge = Accumulator(column, begin, "list", f"list_sort(flatten({{}}))[:{most}]")
    values = f"list_transform({identifier(column)}, lambda e: e.v)"
    return (merge,), json_array(values, of)


def variance(column: str, of: ArgumentSql) -> AggregateParts:
    """Return the SQL of the sample variance, which is null for fewer than two values."""
    if of.is_double:
        state = identifier(column)
        return (_moments(column, of),), f"CASE WHEN {state}.n > 1 THEN {state}.d / ({state}.n - 1) END"
    parts = _sums_of_squares(column, of)
    sums = ", ".join(identifier(part.column) for part in parts)
    return parts, f"{kernels.variance(of.scale or 0)}({sums})"


def stddev(column: str, of: ArgumentSql) -> AggregateParts:
    """Return the SQL of the sample standard deviation, the square root of the variance."""
    accumulators, finish = variance(column, of)
    return accumulators, f"sqrt({finish})"


def _moments(column: str, of: ArgumentSql) -> Accumulator:
    begin = (
        f"CASE WHEN count({of.sql}) > 0 THEN {{n: count({of.sql})::DOUBLE, m: avg({of.sql}),"
        f" d: var_pop({of.sql}) * count({of.sql})}} END"
    )
    merged = (
        "lambda a, b: {n: a.n + b.n, m: a.m + (b.m - a.m) * b.n / (a.n + b.n),"
        " d: a.d + b.d + (b.m - a.m) * (b.m - a.m) * a.n * b.n / (a.n + b.n)}"
    )
    # merged in the order of their values, so that the result does not depend on the order of steps
    pieces = "list_sort(list_filter({}, lambda e: e IS NOT NULL))"
    return Accumulator(column, begin, "list", f"CASE WHEN len({pieces}) > 0 THEN list_reduce({pieces}, {merged}) END")


def _sums_of_squares(column: str, of: ArgumentSql) -> tuple[Accumulator, ...]:
    """Return accumulators for the count, the sum, and the parts of the sum of squares.

    Each value is split into a high and a low half; the parts are the sums of high * high, high * low and low * low.
    """
    value, half = f"{of.sql}::HUGEINT", f"{kernels.HALF}::HUGEINT"
    high, low = f"({value} // {half})", f"({value} % {half})"
    sums = {"s": value, "hh": f"{high} * {high}", "hl": f"{high} * {low}", "ll": f"{low} * {low}"}
    whole = "CAST({} AS DECIMAL(38,0))"
    return (
        Accumulator(f"{column}_n", f"count({of.sql})", "sum", "CAST({} AS BIGINT)"),
        *(
            Accumulator(f"{column}_{part}", whole.replace("{}", f"sum({sql})"), "sum", whole)
            for part, sql in sums.items()
        ),
    )


def json_array(values: str, of: ArgumentSql) -> str:
    """Return the SQL of a JSON array of the values in a list; null if the list is empty."""
    return (
        f"CASE WHEN len({values}) > 0 THEN to_json(list_transform({values}, lambda v: {as_json('v', of)}))::VARCHAR END"
    )


def as_json(value: str, of: ArgumentSql) -> str:
    """Return the SQL that prepares a value for `to_json`: decimals and times become text."""
    if of.scale is not None:
        return _decimal_text(value, of.scale)
    if of.type == "TIMESTAMPTZ":
        return f"strftime({value} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
    return value


def _decimal_text(value: str, scale: int) -> str:
    """Return the SQL that formats a decimal as text, given its unscaled integer."""
    if scale == 0:
        return f"{value}::VARCHAR"
    digits = f"abs({value})::VARCHAR"
    padded = f"lpad({digits}, greatest(length({digits}), {scale + 1})::INTEGER, '0')"
    return f"CASE WHEN {value} < 0 THEN '-' ELSE '' END || left({padded}, -{scale}) || '.' || right({padded}, {scale})"
