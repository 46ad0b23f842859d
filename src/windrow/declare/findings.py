"""Findings: errors and likely mistakes in a pipeline, with the setting that each is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from windrow import model as m


@dataclass(frozen=True)
class Finding:
    """An error, or a warning about a likely mistake; `where` is the path of the setting, such as ``aggregate.total``.

    The message says what is wrong and how to fix it.
    """

    level: Literal["error", "warning"]
    where: str
    message: str

    @property
    def text(self) -> str:
        """The path and the message on one line."""
        return f"{self.where}: {self.message}"


def error(where: str, message: str) -> Finding:
    """Return an error."""
    return Finding("error", where, message)


def warning(where: str, message: str) -> Finding:
    """Return a warning."""
    return Finding("warning", where, message)


def too_long(where: str, micros: int) -> Iterator[Finding]:
    """Yield an error if a duration in microseconds is longer than a hundred years."""
    if micros > m.MAX_DURATION:
        yield error(where, "is longer than a hundred years (36500d)")


def is_name(text: str) -> bool:
    """Return True if a field or column can have this name: it is printable, and has no spaces around it."""
    return bool(text) and text.isprintable() and text == text.strip()
