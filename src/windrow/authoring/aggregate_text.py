"""Parse and print aggregates such as ``sum(price * quantity) where kind = 'buy'``, and formulas over other results.

YAML and Python have the same calls, such as ``quantile(amount, 0.99)``. A text that does not begin with the name of an
aggregate function and an opening parenthesis is a formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

from windrow import model as m
from windrow.declare.python_code import code_name
from windrow.errors import PipelineError
from windrow.expressions import SqlCall, bracket_problem, split_call

_BEGINS_AS_CALL = re.compile(r"\s*(\w+)\s*\(")
_DISTINCT = re.compile(r"distinct\b\s*(.+)", re.IGNORECASE | re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')


@dataclass(frozen=True)
class Measure:
    """An aggregate function with an optional `where` condition, but without the name of the result column."""

    function: m.Function
    where: str | None = None


def parse_aggregate(text: str) -> Measure:
    """Parse an aggregate or a formula; raise PipelineError if the call is invalid."""
    unpaired = bracket_problem(text)
    if unpaired is not None:
        msg = f"{text!r} {unpaired}"
        raise PipelineError(msg)
    begin = _BEGINS_AS_CALL.match(text)
    if begin is None or begin[1] not in NAMES:
        return Measure(m.Formula(text.strip()))
    call = split_call(text)
    if call is None:
        msg = (
            f"{text!r} is neither a single aggregate ({begin[1]}(...), or {begin[1]}(...) where CONDITION) nor a "
            "formula over results: give each aggregate a name, and compute with the names, such as "
            "{total: sum(amount), events: count(), mean: total / events}"
        )
        raise PipelineError(msg)
    return Measure(make_function(call.name, [_argument(text) for text in call.arguments]), call.where)


def aggregate_text(aggregate: m.Aggregate) -> str:
    """Return text that `parse_aggregate` parses to this aggregate; a custom aggregate is only printed, by name."""
    where = "" if aggregate.where is None else f" where {aggregate.where}"
    match aggregate.function:
        case m.Formula(sql):
            return f"{sql}{where}"
        case m.Custom(custom, of):
            return f"custom({', '.join([code_name(custom), *map(_argument_text, of)])}){where}"
        case function:
            name, arguments = call_of(function)
            texts = (_argument_text(value) if isinstance(value, str) else repr(value) for value in arguments)
            return f"{name}({', '.join(texts)}){where}"


def _argument(text: str) -> str:
    """Return a parsed argument for the model, without the double quotes that the text needs around some names."""
    bare = text.strip()
    name = _unquote(bare)
    return bare if name is None or _stands_alone(name) else name


def _argument_text(argument: str) -> str:
    if _stands_alone(argument):
        return argument
    escaped = argument.replace('"', '""')
    return f'"{escaped}"'


@lru_cache(maxsize=1024)
def _stands_alone(text: str) -> bool:
    """Return True if the text, written between parentheses without quotes, parses back to exactly this one argument."""
    inner = _unquote(text)
    return split_call(f"f({text})") == SqlCall("f", (text,), None) and (inner is None or _stands_alone(inner))


def _unquote(text: str) -> str | None:
    quoted = _QUOTED.fullmatch(text)
    return quoted[1].replace('""', '"') if quoted else None


Argument = str | int | float

NAMES = tuple(m.AGGREGATE_FUNCTIONS)
"""The names of the aggregate functions."""


def make_function(name: str, arguments: list[str]) -> m.Function:
    """Build the aggregate function for a call; raise PipelineError if its arguments are invalid."""
    if name == "count":
        if arguments:
            meant = translate_count(arguments) or "count() where CONDITION"
            msg = f"count({arguments[0]}): count() counts records and takes no field; write {meant}"
            raise PipelineError(msg)
        return m.Count()
    if not arguments or not arguments[0]:
        msg = f"{name}() needs a field, such as {_example(name)}"
        raise PipelineError(msg)
    of, *more = arguments
    spec = m.AGGREGATE_FUNCTIONS[name]
    if len(more) != len(spec.extra):
        many = f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}"
        msg = f"{name}({', '.join(arguments)}) has {many}; write it as {_example(name, of)}"
        raise PipelineError(msg)
    make: Callable[..., m.Function] = spec.kind
    extra = [_EXTRA[kind](name, text) for kind, text in zip(spec.extra, more, strict=True)]
    return make(of, *extra, *(["log"] if spec.by_log else []))


def translate_count(arguments: Sequence[str]) -> str | None:
    """Translate the arguments of SQL's COUNT to a call of `count` or `count_distinct`.

    Return None for ``COUNT(x)``, which counts the rows where x is not null.
    """
    match [argument.strip() for argument in arguments]:
        case [] | ["*" | "1"]:
            return "count()"
        case [argument] if distinct := _DISTINCT.fullmatch(argument):
            return f"count_distinct({distinct[1]})"
        case _:
            return None


def call_of(function: m.Count | m.UnaryFunction) -> tuple[str, tuple[Argument, ...]]:
    """Return the name and arguments with which an aggregate function is called; `by` is implied by the name."""
    return m.function_name(function), tuple(
        getattr(function, field.name) for field in fields(function) if field.name != "by"
    )


def _example(name: str, of: str = "amount") -> str:
    more = {"fraction": "0.99", "limit": "10", "measure": "price"}
    return f"{name}({', '.join([of, *(more[kind] for kind in m.AGGREGATE_FUNCTIONS[name].extra)])})"


def _number(kind: Callable[[str], float], called: str) -> Callable[[str, str], Argument]:
    """Return a function that parses a numeric argument, given the name of the aggregate function and the text."""

    def parse(name: str, text: str) -> float:
        try:
            return kind(text)
        except ValueError as exc:
            msg = f"{text!r} is not {called}; write it as {_example(name)}"
            raise PipelineError(msg) from exc

    return parse


_EXTRA: dict[str, Callable[[str, str], Argument]] = {
    "fraction": _number(float, "a fraction"),
    "limit": _number(int, "a whole number"),
    "measure": lambda _, text: text,
}
