"""Aggregates as text: ``sum(price * quantity) where kind = 'buy'``, or a formula over other results.

YAML and Python write calls alike, such as ``quantile(amount, 0.99)``. A text that does not begin with the name of an
aggregate function and a bracket is a formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import assert_never

from windrow import model as m
from windrow.declare.python_code import code_name
from windrow.errors import PipelineError
from windrow.expressions import SqlCall, bracket_problem, split_call

_BEGINS_AS_CALL = re.compile(r"\s*(\w+)\s*\(")
_DISTINCT = re.compile(r"distinct\b\s*(.+)", re.IGNORECASE | re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')


@dataclass(frozen=True)
class Measure:
    """An aggregate without its name; with `where`, over some records only."""

    function: m.Function
    where: str | None = None


def parse_aggregate(text: str) -> Measure:
    """Read the text of an aggregate; raise PipelineError if it is a call that is not as it should be."""
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
            f"{text!r} is neither one aggregate ({begin[1]}(...), or {begin[1]}(...) where CONDITION) nor a formula "
            "over results: give each aggregate a name, and compute with the names, such as "
            "{total: sum(amount), events: count(), mean: total / events}"
        )
        raise PipelineError(msg)
    return Measure(make_function(call.name, [_argument(text) for text in call.arguments]), call.where)


def aggregate_text(aggregate: m.Aggregate) -> str:
    """Return the text that reads back as the aggregate; a custom one is named."""
    where = "" if aggregate.where is None else f" where {aggregate.where}"
    match aggregate.function:
        case m.Formula(sql):
            return f"{sql}{where}"
        case m.Custom(custom, of):
            return f"custom({', '.join([code_name(custom), *map(_argument_text, of)])}){where}"
        case function:
            name, arguments = call_of(function)
            written = (
                _argument_text(argument) if isinstance(argument, str) else repr(argument) for argument in arguments
            )
            return f"{name}({', '.join(written)}){where}"


def _argument(text: str) -> str:
    """Return an argument as a model holds it: a name that cannot stand by itself is written in double quotes."""
    bare = text.strip()
    name = _unquoted(bare)
    return bare if name is None or _stands_alone(name) else name


def _argument_text(argument: str) -> str:
    if _stands_alone(argument):
        return argument
    escaped = argument.replace('"', '""')
    return f'"{escaped}"'


@lru_cache(maxsize=1024)
def _stands_alone(text: str) -> bool:
    """Whether a text between brackets is one argument, and this one, and no quoted name that could not be so."""
    inner = _unquoted(text)
    return split_call(f"f({text})") == SqlCall("f", (text,), None) and (inner is None or _stands_alone(inner))


def _unquoted(text: str) -> str | None:
    quoted = _QUOTED.fullmatch(text)
    return quoted[1].replace('""', '"') if quoted else None


Argument = str | int | float

NAMES = tuple(m.AGGREGATE_FUNCTIONS)
"""Functions that can be called; any other text is a formula."""


def make_function(name: str, arguments: list[str]) -> m.Function:
    """Return the aggregate that a call means; raise PipelineError if its arguments are not as they should be."""
    if name == "count":
        if arguments:
            meant = counting(arguments) or "count() where CONDITION"
            msg = f"count({arguments[0]}): count() counts records and takes no field; write {meant}"
            raise PipelineError(msg)
        return m.Count()
    if not arguments or not arguments[0]:
        msg = f"{name}() needs a field, such as {_example(name)}"
        raise PipelineError(msg)
    of, *more = arguments
    spec = m.AGGREGATE_FUNCTIONS[name]
    if len(more) == len(spec.extra):
        return _make(name, spec, of, more)
    many = f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}"
    msg = f"{name}({', '.join(arguments)}) has {many}; write it as {_example(name, of)}"
    raise PipelineError(msg)


def counting(arguments: Sequence[str]) -> str | None:
    """Return what SQL's count of these arguments is here; None if it counts the rows where one is not null."""
    match [argument.strip() for argument in arguments]:
        case [] | ["*" | "1"]:
            return "count()"
        case [one] if distinct := _DISTINCT.fullmatch(one):
            return f"count_distinct({distinct[1]})"
        case _:
            return None


def _make(name: str, spec: m.FunctionSpec, of: str, more: list[str]) -> m.Function:
    make: Callable[..., m.Function] = spec.kind
    given: list[Argument] = []
    for kind, text in zip(spec.extra, more, strict=True):
        match kind:
            case "fraction":
                given.append(_fraction(name, text))
            case "limit":
                given.append(_whole(name, text))
            case "measure":
                given.append(text)
            case _:
                assert_never(kind)
    return make(of, *given, *(["log"] if spec.by_log else []))


def call_of(function: m.Count | m.UnaryFunction) -> tuple[str, tuple[Argument, ...]]:
    """Return the name and the arguments by which an aggregate function is called."""
    # in which order is part of the name
    return m.function_name(function), tuple(
        getattr(function, field.name) for field in fields(function) if field.name != "by"
    )


def _example(name: str, of: str = "amount") -> str:
    more = {"fraction": "0.99", "limit": "10", "measure": "price"}
    return f"{name}({', '.join([of, *(more[kind] for kind in m.AGGREGATE_FUNCTIONS[name].extra)])})"


def _fraction(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as exc:
        msg = f"{text!r} is not a fraction; write it as {_example(name)}"
        raise PipelineError(msg) from exc


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as exc:
        msg = f"{text!r} is not a whole number; write it as {_example(name)}"
        raise PipelineError(msg) from exc
