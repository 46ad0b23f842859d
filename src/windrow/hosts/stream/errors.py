"""Spark's errors become ours at the host's edge."""

from __future__ import annotations

import re

from windrow import errors
from windrow.errors import EngineError, InputError, WindrowError

_OURS = re.compile(r"windrow\.errors\.(\w+): (.+?)(?=\n(?:\s*at |\s*$|\S+Error)|\Z)", re.DOTALL)
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.+)$", re.MULTILINE)


def translate(exc: Exception) -> WindrowError:
    """Return the error that a failed query means: ours if a Python worker raised one, else what Spark says first."""
    text = str(exc)
    ours = _OURS.search(text)
    if ours:
        kind = getattr(errors, ours.group(1), EngineError)
        message = ours.group(2).strip()
        if isinstance(kind, type) and issubclass(kind, InputError):
            return kind(message)
        return kind(message) if isinstance(kind, type) and issubclass(kind, WindrowError) else EngineError(message)
    python = _PYTHON.findall(text)
    said = f"{python[-1][0]}: {python[-1][1]}" if python else text.strip().split("\n", 1)[0]
    return EngineError(f"the stream stopped: {said}\nwhat was committed stays; start again to go on from there")
