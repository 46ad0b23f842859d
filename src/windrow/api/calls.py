"""Aggregates as they are called, in YAML and in Python alike: ``quantile(amount, 0.99)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from windrow.errors import PipelineError
from windrow.model import (
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BoolOr,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    First,
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

Argument = str | int | float

_OF_ONE: dict[str, Callable[[str], Function]] = {
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
_AT_A_FRACTION: dict[str, Callable[[str, float], Function]] = {
    "quantile": Quantile,
    "approx_quantile": ApproxQuantile,
}
_UP_TO: dict[str, Callable[[str, int], Function]] = {
    "top_k": TopK,
    "collect_list": CollectList,
    "collect_set": CollectSet,
}
_NAME_OF: dict[object, str] = {Count: "count"} | {
    kind: name for kinds in (_OF_ONE, _AT_A_FRACTION, _UP_TO) for name, kind in kinds.items()
}
NAMES = ("count", *_OF_ONE, *_AT_A_FRACTION, *_UP_TO)
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
    if name in _OF_ONE and not more:
        return _OF_ONE[name](of)
    if name in _AT_A_FRACTION and len(more) == 1:
        return _AT_A_FRACTION[name](of, _fraction(name, more[0]))
    if name in _UP_TO and len(more) == 1:
        return _UP_TO[name](of, _whole(name, more[0]))
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
    if name in _AT_A_FRACTION:
        return f"{name}({of}, 0.99)"
    return f"{name}({of}, 10)" if name in _UP_TO else f"{name}({of})"


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
