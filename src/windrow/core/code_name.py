"""What messages call a user's Python code."""

from __future__ import annotations


def qualified_name(code: object) -> str:
    """Return the module and name of a function, or of an object's class."""
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}.{named.__qualname__}"
