"""Lengths of time as people write them in Python."""

from __future__ import annotations

from datetime import timedelta

from windrow.errors import PipelineError
from windrow.model import parse_duration

Length = str | timedelta
"""A duration: text such as ``"10m"``, or a timedelta."""


def micros(length: Length, where: str) -> int:
    """Return a length in microseconds; raise PipelineError, which names `where`, if it is none."""
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    if not isinstance(length, str):
        msg = f"{where} must be a duration such as '10m' or a timedelta, not {length!r}"
        raise PipelineError(msg)
    try:
        return parse_duration(length)
    except PipelineError as exc:
        msg = f"{where}: {exc.message}"
        raise PipelineError(msg) from exc
