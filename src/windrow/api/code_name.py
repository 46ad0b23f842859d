"""What Python code is called where it cannot be printed."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import partial


def code_name(code: object) -> str:
    """Return a name that is the same in every run: the module and name of a function, or of an object's class.

    A dataclass is told with its plain fields, and a partial with its plain arguments.
    """
    if isinstance(code, partial):
        given = [*map(_plain, code.args), *(f"{name}={_plain(value)}" for name, value in code.keywords.items())]
        return f"{code_name(code.func)}({', '.join(given)})"
    if hasattr(code, "__qualname__"):
        return f"{code.__module__}.{code.__qualname__}"
    name = code_name(type(code))
    if is_dataclass(code):
        given = [f"{field.name}={_plain(getattr(code, field.name))}" for field in fields(code)]
        return f"{name}({', '.join(given)})"
    return name


def _plain(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | bool | None) else code_name(value)
