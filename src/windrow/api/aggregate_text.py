"""Aggregates as text: ``sum(price * quantity) where kind = 'buy'``, or a formula over other results.

YAML and Python write calls alike, such as ``quantile(amount, 0.99)``. A text that does not begin with the name of an
aggregate function and a bracket is a formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache

from windrow.api.python_code import code_name
from windrow.errors import PipelineError
from windrow.expressions import SqlCall, split_call
from windrow.model import (
    Aggregate,
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BoolOr,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    Custom,
    First,
    Formula,
    Function,
    Last,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
    TopK,
    Variance,
)

_BEGINS_AS_CALL = re.compile(r"\s*(\w+)\s*\(")
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')


@dataclass(frozen=True)
class Measure:
    """What a result is computed by, before it has a name; with `where`, of some records alone."""

    function: Function
    where: str | None = None


def parse_aggregate(text: str) -> Measure:
    """Read the text of an aggregate; raise PipelineError if it is a call that is not as it should be."""
    begin = _BEGINS_AS_CALL.match(text)
    if begin is None or begin[1] not in NAMES:
        return Measure(Formula(text.strip()))
    call = split_call(text)
    if call is None:
        msg = (
            f"{text!r} is neither one aggregate ({begin[1]}(...), or {begin[1]}(...) where CONDITION) nor a formula "
            "over results: give each aggregate a name, and compute with the names, such as "
            "{total: sum(amount), events: count(), mean: total / events}"
        )
        raise PipelineError(msg)
    return Measure(make_function(call.name, [_argument(text) for text in call.arguments]), call.where)


def aggregate_text(aggregate: Aggregate) -> str:
    """Return the text that reads back as the aggregate; one in Python is told by its name."""
    where = "" if aggregate.where is None else f" where {aggregate.where}"
    match aggregate.function:
        case Formula(sql):
            return f"{sql}{where}"
        case Custom(custom, of):
            return f"custom({', '.join([code_name(custom), *map(_argument_text, of)])}){where}"
        case function:
            name, arguments = call_of(function)
            written = (_argument_text(one) if isinstance(one, str) else repr(one) for one in arguments)
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

_ONE_ARGUMENT: dict[str, Callable[[str], Function]] = {
    "sum": Sum,
    "min": Min,
    "max": Max,
    "avg": Avg,
    "count_distinct": CountDistinct,
    "approx_count_distinct": ApproxCountDistinct,
    "first": First,
    "last": Last,
    "first_in_log": lambda of: First(of, "log"),
    "last_in_log": lambda of: Last(of, "log"),
    "variance": Variance,
    "stddev": Stddev,
    "bool_and": BoolAnd,
    "bool_or": BoolOr,
}
_WITH_FRACTION: dict[str, Callable[[str, float], Function]] = {
    "quantile": Quantile,
    "approx_quantile": ApproxQuantile,
}
_WITH_LIMIT: dict[str, Callable[[str, int], Function]] = {
    "top_k": TopK,
    "collect_list": CollectList,
    "collect_set": CollectSet,
}
_NAME_OF: dict[object, str] = {Count: "count"} | {
    kind: name for kinds in (_ONE_ARGUMENT, _WITH_FRACTION, _WITH_LIMIT) for name, kind in kinds.items()
}
NAMES = ("count", *_ONE_ARGUMENT, *_WITH_FRACTION, *_WITH_LIMIT)
"""What can be called; anything else is a formula."""


def make_function(name: str, arguments: list[str]) -> Function:
    """Return the aggregate that a call means; raise PipelineError if its arguments are not as they should be."""
    if name == "count":
        if arguments:
            msg = f"count({arguments[0]}): count() counts records and takes no field; write count() where CONDITION"
            raise PipelineError(msg)
        return Count()
    if not arguments or not arguments[0]:
        msg = f"{name}() needs a field, such as {_example(name)}"
        raise PipelineError(msg)
    of, *more = arguments
    if name in _ONE_ARGUMENT and not more:
        return _ONE_ARGUMENT[name](of)
    if name in _WITH_FRACTION and len(more) == 1:
        return _WITH_FRACTION[name](of, _fraction(name, more[0]))
    if name in _WITH_LIMIT and len(more) == 1:
        return _WITH_LIMIT[name](of, _whole(name, more[0]))
    many = f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}"
    msg = f"{name}({', '.join(arguments)}) has {many}; write it as {_example(name, of)}"
    raise PipelineError(msg)


def call_of(function: Function) -> tuple[str, tuple[Argument, ...]]:
    """Return the name and the arguments by which an aggregate is called; not of a formula or one of a person's own."""
    match function:
        case First(of, "log"):
            return "first_in_log", (of,)
        case Last(of, "log"):
            return "last_in_log", (of,)
        case First(of) | Last(of):
            return _NAME_OF[type(function)], (of,)
        case _:
            return _NAME_OF[type(function)], tuple(getattr(function, field.name) for field in fields(function))


def _example(name: str, of: str = "amount") -> str:
    if name in _WITH_FRACTION:
        return f"{name}({of}, 0.99)"
    return f"{name}({of}, 10)" if name in _WITH_LIMIT else f"{name}({of})"


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
