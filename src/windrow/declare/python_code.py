"""Python code in a pipeline: its printed name, and the error for formats that cannot contain code.

Process functions, custom aggregates and the predicates of triggers are Python code. Only a Python file can contain it.
"""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from functools import partial

from windrow import model as m
from windrow.errors import PipelineError
from windrow.model.triggers import each_part


def code_name(code: object) -> str:
    """Return a name that is the same in every run: the module and name of a function, or of an object's class.

    The name of a dataclass instance includes its fields, and the name of a partial its arguments.
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
    """Raise PipelineError if a graph has Python functions or aggregates; the message calls the format `form`."""
    for node in graph.nodes:
        code: list[str] = []
        if isinstance(node, m.ProcessNode):
            code = [f"process calls {code_name(node.process.function)}"]
        elif isinstance(node, m.WindowNode):
            early = (part for part in each_part(node.emit.early) if isinstance(part, m.When))
            code = [f"emit.early calls {code_name(part.predicate)}" for part in early]
            code += [
                f"aggregate.{aggregate.name} is {code_name(aggregate.function.aggregate)}"
                for aggregate in node.aggregates
                if isinstance(aggregate.function, m.Custom)
            ]
        if code:
            msg = f"the pipeline has Python code, which {form} cannot contain ({'; '.join(code)}); keep its Python file"
            raise PipelineError(msg)


def why_not_callable(function: object) -> str | None:
    """Return why calling a function would not run its body (it is async, or a generator); None if it would."""
    calls = [function, function.__call__] if callable(function) else []
    if any(inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call) for call in calls):
        return "is async, so calling it does nothing; write a plain def"
    if any(inspect.isgeneratorfunction(call) for call in calls):
        return "is a generator, so calling it does nothing; write it without yield"
    return None
