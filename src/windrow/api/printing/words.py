"""The parts of a pipeline as they are written in YAML and said in text."""

from __future__ import annotations

from typing import assert_never

from windrow.model import Avg, Count, Function, Max, Min, Sum


def function_name(function: Function) -> str:
    """Return the name of an aggregate's function."""
    match function:
        case Count():
            return "count"
        case Sum():
            return "sum"
        case Min():
            return "min"
        case Max():
            return "max"
        case Avg():
            return "avg"
        case _:
            assert_never(function)


def function_text(function: Function) -> str:
    """Return ``sum(amount)`` or ``count()``."""
    field = "" if isinstance(function, Count) else function.of
    return f"{function_name(function)}({field})"
