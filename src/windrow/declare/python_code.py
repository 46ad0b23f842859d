"""Python code in a pipeline: its name where it cannot be printed, and where it is refused.

Process functions, custom aggregates and the predicates of triggers are Python code. No file but a Python file can hold
them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from typing import assert_never

from windrow import model as m
from windrow.errors import PipelineError


def code_name(code: object) -> str:
    """Return a name that is the same in every run: the module and name of a function, or of an object's class.

    The name of a dataclass has its plain fields, that of a partial its plain arguments.
    """
    if isinstance(code, partial):
        given = [
            *map(_plain_value, code.args),
            *(f"{name}={_plain_value(value)}" for name, value in code.keywords.items()),
        ]
        return f"{code_name(code.func)}({', '.join(given)})"
    if hasattr(code, "__qualname__"):
        return f"{code.__module__}.{code.__qualname__}"
    name = code_name(type(code))
    if is_dataclass(code):
        given = [f"{field.name}={_plain_value(getattr(code, field.name))}" for field in fields(code)]
        return f"{name}({', '.join(given)})"
    return name


def _plain_value(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | bool | None) else code_name(value)


def refuse_code(graph: m.Graph, form: str) -> None:
    """Raise PipelineError if a graph has functions or aggregates of a person's own, which `form` cannot hold."""
    for node in graph.nodes:
        code: list[str] = []
        if isinstance(node, m.ProcessNode):
            code = [f"process calls {code_name(node.process.function)}"]
        elif isinstance(node, m.WindowNode):
            code = [f"emit.early calls {name}" for name in _predicates(node.emit.early)]
            code += [
                f"aggregate.{aggregate.name} is {code_name(aggregate.function.aggregate)}"
                for aggregate in node.aggregates
                if isinstance(aggregate.function, m.Custom)
            ]
        if code:
            raise PipelineError(_refusal(code, form))


def _refusal(code: list[str], form: str) -> str:
    return f"the pipeline has Python code in it, which {form} cannot hold ({'; '.join(code)}); keep its Python file"


def _predicates(trigger: m.Trigger | None) -> Iterator[str]:
    match trigger:
        case m.When(predicate):
            yield code_name(predicate)
        case m.AnyOf(parts) | m.AllOf(parts):
            for part in parts:
                yield from _predicates(part)
        case m.Repeat(part, _):
            yield from _predicates(part)
        case m.Every() | m.EveryEventTime() | m.Records() | None:
            return
        case _:
            assert_never(trigger)


def why_not_callable(function: object) -> str | None:
    """Return what is wrong with a function whose body a call does not run, such as a generator; None if nothing is."""
    tried = [function, function.__call__] if callable(function) else []
    if any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in tried):
        return "is async, so calling it does nothing; write a plain def"
    if any(inspect.isgeneratorfunction(one) for one in tried):
        return "is a generator, so calling it does nothing; write it without yield"
    return None
