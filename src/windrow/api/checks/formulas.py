"""Formulas over results."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace

from windrow.api.calls import NAMES
from windrow.api.checks.finding import Finding, error
from windrow.errors import PipelineError
from windrow.expressions import analyse, results, split_call
from windrow.model import DoubleType, Field, Formula, Pipeline

_CALL = re.compile(r"(\w+)\s*\(")

_ELSEWHERE = {
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
"""What SQL, Spark or pandas call an aggregate, and how it is called here."""


def formulas(pipeline: Pipeline) -> Iterator[Finding]:
    """A formula is over results that are no formulas, by their names, and there is one of these at least."""
    texts = {one.name: one.function.sql for one in pipeline.aggregates if isinstance(one.function, Formula)}
    if not texts:
        return
    plain = tuple(one for one in pipeline.aggregates if one.name not in texts)
    if not plain:
        unknown = [(name, called) for name, text in texts.items() if (called := _unknown(text))]
        yield from (error(f"aggregate.{name}", message) for name, message in unknown)
        if not unknown:
            yield error("aggregate", f"has nothing but formulas, and these are over aggregates; {_example(texts)}")
        return
    try:
        fields = tuple(Field(one.name, one.type) for one in results(replace(pipeline, aggregates=plain)))
    except PipelineError:
        return  # other rules say what is wrong with the aggregates
    for name, text in texts.items():
        message = _problem(text, fields, frozenset(texts))
        if message:
            yield error(f"aggregate.{name}", message)


def _problem(text: str, fields: tuple[Field, ...], others: frozenset[str]) -> str | None:
    try:
        analyse(text, fields)
    except PipelineError as exc:
        if meant := _by_another_name(text):
            return f"{text!r}: {meant}"
        return _over_formula(text, fields, others) or f"{exc.message}; {_meant(text, fields)}"
    return None


def _over_formula(text: str, fields: tuple[Field, ...], others: frozenset[str]) -> str | None:
    try:
        made = analyse(text, (*fields, *(Field(name, DoubleType()) for name in sorted(others))))
    except PipelineError:
        return None
    used = next(name for name in made.columns if name in others)
    return f"{text!r} is over {used!r}, which is a formula; write out what that is"


def _unknown(text: str) -> str | None:
    """Say that a text is no aggregate, if it looks like one."""
    if text in NAMES:
        return f"{text!r} lacks its brackets; write {text}(){'' if text == 'count' else ' over a field'}"
    call = _CALL.match(text)
    if call is None:
        return None
    if meant := _by_another_name(text):
        return f"{text!r}: {meant}"
    close = _close(call[1])
    hint = f"did you mean {close}(...)?" if close else f"there are {', '.join(NAMES)}"
    return f"{text!r}: {call[1]}() is no aggregate; {hint}"


def _by_another_name(text: str) -> str | None:
    """Say how an aggregate is called here, if the text is one call by its name elsewhere or in capitals."""
    call = split_call(text)
    if call is None:
        return None
    name = call.name.lower()
    if name in NAMES:
        meant = f"{name}({', '.join(call.arguments)})"
    elif name in _ELSEWHERE:
        meant = _ELSEWHERE[name].format(*call.arguments[:1] or ("amount",))
    else:
        return None
    return f"{call.name}() is not an aggregate; did you mean {meant}{f' where {call.where}' if call.where else ''}?"


def _close(name: str) -> str | None:
    return next(iter(difflib.get_close_matches(name.lower(), NAMES, n=1, cutoff=0.7)), None)


def _meant(text: str, fields: tuple[Field, ...]) -> str:
    call = _CALL.match(text)
    close = _close(call[1]) if call else None
    meant = f" - or did you mean {close}(...)?" if close else ""
    return f"a formula is over the other results ({', '.join(field.name for field in fields)}){meant}"


def _example(texts: dict[str, str]) -> str:
    return f"give what {next(iter(texts))!r} is over a name, such as {{total: sum(amount), events: count()}}"
