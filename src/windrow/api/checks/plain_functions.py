"""What rules ask about functions of one's own."""

from __future__ import annotations

import inspect


def not_plain(function: object) -> str | None:
    """Return what is wrong with a function whose body a call does not run, such as a generator; None if nothing is."""
    tried = [function, function.__call__] if callable(function) else []
    if any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in tried):
        return "is async, so a call of it does nothing; write it with a plain def"
    if any(inspect.isgeneratorfunction(one) for one in tried):
        return "has a yield in it, so a call of it does nothing; write it without one"
    return None
