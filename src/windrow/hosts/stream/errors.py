"""Spark's errors become ours at the host's edge."""

from __future__ import annotations

import re

from windrow import errors
from windrow.errors import EngineError, InputError, WindrowError

_OURS = re.compile(r"windrow\.errors\.(\w+): (.+?)(?=\n(?:\s*at |\s*$|\S+Error)|\Z)", re.DOTALL)
_WRAPPING = re.compile(r"^(?:\[STREAM_FAILED\] )?Query \[id = .*?\] terminated with exception: |\s*SQLSTATE: \w+$")
_SLOW_START = "Python worker failed to connect back"
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.+)$", re.MULTILINE)


def is_slow_start(exc: Exception) -> bool:
    """Return whether Spark gave up on a Python process that did not start in ten seconds, as on a busy machine."""
    return _SLOW_START in str(exc)


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
    said = f"{python[-1][0]}: {python[-1][1]}" if python else _WRAPPING.sub("", text.strip().split("\n", 1)[0])
    return EngineError(f"the stream stopped: {said}\nwhat was committed stays; start again to go on from there")
