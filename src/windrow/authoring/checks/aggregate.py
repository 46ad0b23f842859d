"""Checks of aggregates: arguments and types, SQL expressions, custom aggregates, and formulas over results."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never, get_args

from windrow import model as m
from windrow.authoring.aggregate_text import NAMES, translate_count
from windrow.authoring.checks.base import is_field, is_misspelt, no_field, type_of, valid_record_fields
from windrow.declare.findings import Finding, error, warning
from windrow.declare.python_code import why_not_callable
from windrow.errors import PipelineError
from windrow.expressions import WindowSpec, aggregate_inputs, analyse, results, split_call
from windrow.expressions.functions import catalogue

_MOST_DIGITS = 28
_MOST_MEAN_SCALE = 12


def aggregate_types(spec: WindowSpec) -> Iterator[Finding]:
    """Check that there is at least one aggregate, and that each takes types for which it is exact."""
    if not spec.node.aggregates:
        yield error("aggregate", "is empty; add a result, such as {events: count()}")
    for aggregate in spec.node.aggregates:
        where = f"aggregate.{aggregate.name}"
        for of in aggregate_inputs(aggregate.function):
            type_ = type_of(spec, of)
            if is_misspelt(spec, of):
                yield error(where, no_field(spec, of))
            elif type_ is not None:
                yield from _type(where, of, type_, aggregate.function)


def _type(where: str, of: str, type_: m.DataType, function: m.Function) -> Iterator[Finding]:
    if isinstance(function, m.Custom | m.Formula):
        return
    accepts = m.function_spec(function).accepts
    match accepts:
        case "any":
            return
        case "number":
            yield from _number(where, of, type_)
        case "summable":
            yield from _number(where, of, type_)
            yield from _narrow(where, of, type_, function)
        case "boolean":
            if not isinstance(type_, m.BooleanType):
                yield error(where, f"{of!r} is a {type_}, not a boolean; give a condition, such as {of} is not null")
        case _:
            assert_never(accepts)


def _number(where: str, of: str, type_: m.DataType) -> Iterator[Finding]:
    if not isinstance(type_, m.LongType | m.DoubleType | m.DecimalType):
        yield error(where, f"{of!r} is a {type_}, not a number; declare it as long, decimal(p,s) or double")


def _narrow(where: str, of: str, type_: m.DataType, function: m.Function) -> Iterator[Finding]:
    if not isinstance(type_, m.DecimalType):
        return
    if type_.precision > _MOST_DIGITS:
        yield error(where, f"{of!r} is a {type_}; only decimals of at most {_MOST_DIGITS} digits can be summed exactly")
    elif isinstance(function, m.Avg) and type_.scale > _MOST_MEAN_SCALE:
        yield error(where, f"{of!r} is a {type_}; a mean needs a decimal with a scale of at most {_MOST_MEAN_SCALE}")


_MOST_VALUES = 100_000


def aggregate_arguments(spec: WindowSpec) -> Iterator[Finding]:
    """Check that quantiles are between 0 and 1, and that the number of values an aggregate keeps is within bounds."""
    for aggregate in spec.node.aggregates:
        where = f"aggregate.{aggregate.name}"
        match aggregate.function:
            case m.Quantile(_, at) | m.ApproxQuantile(_, at) if not 0 <= at <= 1:
                yield error(where, f"{at} is not a fraction; give one from 0 to 1, such as 0.99")
            case (
                m.TopK(_, most)
                | m.TopKBy(_, _, most)
                | m.BottomKBy(_, _, most)
                | m.CollectList(_, most)
                | m.CollectSet(_, most)
            ) if not 1 <= most <= _MOST_VALUES:
                yield error(where, f"must keep 1 to {_MOST_VALUES} values, not {most}")
            case _:
                continue


def expressions(spec: WindowSpec) -> Iterator[Finding]:
    """Check that expressions are valid, deterministic and over a single record, and that conditions are boolean."""
    for aggregate in spec.node.aggregates:
        where = f"aggregate.{aggregate.name}"
        for of in aggregate_inputs(aggregate.function):
            if not is_field(spec, of) and not is_misspelt(spec, of):
                try:
                    analyse(of, valid_record_fields(spec))
                except PipelineError as exc:
                    yield error(where, exc.message)
        if aggregate.where is None:
            continue
        if isinstance(aggregate.function, m.Formula):
            yield error(
                where,
                "is a formula over results, which cannot have `where`; put it on the aggregates that the formula uses",
            )
        else:
            yield from _condition(spec, where, aggregate.where)


def _condition(spec: WindowSpec, where: str, text: str) -> Iterator[Finding]:
    if is_misspelt(spec, text):
        yield error(where, no_field(spec, text))
        return
    try:
        type_ = analyse(text, valid_record_fields(spec)).type
    except PipelineError as exc:
        yield error(where, exc.message)
        return
    if type_ != m.BooleanType():
        yield error(where, f"{text!r} is a {type_}, not a condition; write one, such as kind = 'buy'")


_CUSTOM_METHODS = ("zero", "step", "merge", "finish")


def custom_aggregates(spec: WindowSpec) -> Iterator[Finding]:
    """Check that each custom aggregate implements `windrow.CustomAggregate` and has arguments."""
    for aggregate in spec.node.aggregates:
        if not isinstance(aggregate.function, m.Custom):
            continue
        where, own = f"aggregate.{aggregate.name}", aggregate.function.aggregate
        missing = [name for name in _CUSTOM_METHODS if not callable(getattr(own, name, None))]
        if missing or isinstance(own, type):
            lacks = f"lacks {', '.join(missing)}" if missing else "is a class; pass an instance of it"
            yield error(where, f"{own!r} {lacks} (see windrow.CustomAggregate)")
        for name in _CUSTOM_METHODS:
            if why := why_not_callable(getattr(own, name, None)):
                yield error(where, f"{name} of {own!r} {why}")
        if not isinstance(getattr(own, "returns", None), get_args(m.SimpleType)):
            yield error(where, f"{own!r} needs `returns`, the type of its result, such as windrow.model.LongType()")
        if not aggregate.function.of:
            yield error(where, "has no arguments; give the fields or expressions that it aggregates")


_CALL = re.compile(r"(\w+)\s*\(")

_ELSEWHERE = {
    "total": "sum({})",
    "mean": "avg({})",
    "average": "avg({})",
    "median": "quantile({}, 0.5)",
    "percentile": "quantile({}, 0.99)",
    "percentile_cont": "quantile({}, 0.99)",
    "quantile_cont": "quantile({}, 0.99)",
    "approx_percentile": "approx_quantile({}, 0.99)",
    "stddev_samp": "stddev({})",
    "std": "stddev({})",
    "var": "variance({})",
    "var_samp": "variance({})",
    "array_agg": "collect_list({}, 100)",
    "list": "collect_list({}, 100)",
    "countd": "count_distinct({})",
    "countdistinct": "count_distinct({})",
    "nunique": "count_distinct({})",
    "n_unique": "count_distinct({})",
    "first_value": "first({})",
    "last_value": "last({})",
    "every": "bool_and({})",
    "some": "bool_or({})",
}
"""Names of aggregates in SQL, Spark or pandas, and windrow's names for them."""


def formulas(spec: WindowSpec) -> Iterator[Finding]:
    """Check that formulas use only results that are not formulas, and that there is at least one such result."""
    texts = {
        aggregate.name: aggregate.function.sql
        for aggregate in spec.node.aggregates
        if isinstance(aggregate.function, m.Formula)
    }
    if not texts:
        return
    plain = tuple(aggregate for aggregate in spec.node.aggregates if aggregate.name not in texts)
    if not plain:
        unknown = [(name, called) for name, text in texts.items() if (called := _unknown(text))]
        yield from (error(f"aggregate.{name}", message) for name, message in unknown)
        if not unknown:
            yield error("aggregate", f"has only formulas, and a formula needs aggregates; {_example(texts)}")
        return
    try:
        fields = tuple(
            m.Field(result.name, result.type)
            for result in results(replace(spec, node=replace(spec.node, aggregates=plain)))
        )
    except PipelineError:
        return  # reported by the rules for aggregates
    for name, text in texts.items():
        message = _problem(text, fields, frozenset(texts))
        if message:
            yield error(f"aggregate.{name}", message)


def _problem(text: str, fields: tuple[m.Field, ...], others: frozenset[str]) -> str | None:
    try:
        analyse(text, fields)
    except PipelineError as exc:
        return (
            _unknown_call(text)
            or _over_formula(text, fields, others)
            or f"{exc.message}; a formula can use the other results ({', '.join(field.name for field in fields)})"
        )
    return None


def _over_formula(text: str, fields: tuple[m.Field, ...], others: frozenset[str]) -> str | None:
    try:
        made = analyse(text, (*fields, *(m.Field(name, m.DoubleType()) for name in sorted(others))))
    except PipelineError:
        return None
    used = next(name for name in made.columns if name in others)
    return f"{text!r} uses {used!r}, which is a formula; write out that formula instead"


def _unknown(text: str) -> str | None:
    """Return the error message for text that looks like an aggregate but is not one, or None."""
    if text in NAMES:
        return f"{text!r} needs brackets; write {text}(){'' if text == 'count' else ' over a field'}"
    call = _CALL.match(text)
    if call is None:
        return None
    return _unknown_call(text) or _not_an_aggregate(text, call[1])


def _unknown_call(text: str) -> str | None:
    """Return the error message for text that begins with a call of an unknown function, or None."""
    if meant := _by_another_name(text):
        return f"{text!r}: {meant}"
    call = _CALL.match(text)
    if call is None or call[1] in NAMES:
        return None
    known = catalogue().get(call[1].lower())
    return _not_an_aggregate(text, call[1]) if known is None or "aggregate" in known.kinds else None


def _not_an_aggregate(text: str, name: str) -> str:
    close = next(iter(difflib.get_close_matches(name.lower(), NAMES, n=1)), None)
    hint = f"did you mean {close}(...)?" if close else f"the aggregate functions are {', '.join(NAMES)}"
    return f"{text!r}: {name}() is not an aggregate function; {hint}"


def _by_another_name(text: str) -> str | None:
    """Suggest windrow's call for an aggregate in capitals or with its name from another system, or return None."""
    call = split_call(text)
    if call is None:
        return None
    name = call.name.lower()
    if name in NAMES:
        counted = translate_count(call.arguments) if name == "count" else None
        meant = counted or f"{name}({', '.join(call.arguments)})"
        why = "is written in lower case"
    elif name in _ELSEWHERE:
        meant = _ELSEWHERE[name].format(*call.arguments[:1] or ("amount",))
        why = "has a different name in windrow"
    else:
        return None
    condition = f" where {call.where}" if call.where else ""
    return f"the aggregate function {call.name}() {why}; write {meant}{condition}"


def _example(texts: dict[str, str]) -> str:
    return f"give each aggregate in {next(iter(texts))!r} a name, such as {{total: sum(amount), events: count()}}"


def float_sums(spec: WindowSpec) -> Iterator[Finding]:
    """Warn about sums of doubles, whose last digits depend on the order of addition."""
    for aggregate in spec.node.aggregates:
        match aggregate.function:
            case m.Sum(of) | m.Avg(of) | m.Variance(of) | m.Stddev(of) if isinstance(type_of(spec, of), m.DoubleType):
                message = (
                    f"{of!r} is a double, and a sum of doubles depends on the order of addition; "
                    "use decimal(p,s) for sums that a replay repeats exactly"
                )
                yield warning(f"aggregate.{aggregate.name}", message)
            case _:
                continue
