"""Arguments of Python calls: durations and field names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from windrow import model as m
from windrow.errors import PipelineError

Duration = str | timedelta
"""A duration: text such as ``"10m"``, or a timedelta."""


def duration_micros(length: Duration, where: str) -> int:
    """Return a duration in microseconds; raise PipelineError for an invalid one, calling it `where` in the message."""
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    if not isinstance(length, str):
        msg = f"{where} must be a duration such as '10m' or a timedelta, not {length!r}"
        raise PipelineError(msg)
    try:
        return m.parse_duration(length)
    except PipelineError as exc:
        msg = f"{where}: {exc.message}"
        raise PipelineError(msg) from exc


def field_names(key: str | Sequence[str]) -> tuple[str, ...]:
    """Return a single field name, or a sequence of names, as a tuple."""
    return (key,) if isinstance(key, str) else tuple(key)
