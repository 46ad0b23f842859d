"""Findings: errors and likely mistakes in a pipeline, each with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from windrow import model as m


@dataclass(frozen=True)
class Finding:
    """An error or a warning (a likely mistake) at `where`, a path such as ``aggregate.total``.

    The message also says how to fix it.
    """

    level: Literal["error", "warning"]
    where: str
    message: str

    @property
    def text(self) -> str:
        """Place and message on one line."""
        return f"{self.where}: {self.message}"


def error(where: str, message: str) -> Finding:
    """Return an error."""
    return Finding("error", where, message)


def warning(where: str, message: str) -> Finding:
    """Return a warning."""
    return Finding("warning", where, message)


def too_long(where: str, micros: int) -> Iterator[Finding]:
    """Find a length of more than a hundred years."""
    if micros > m.MAX_DURATION:
        yield error(where, "is longer than a hundred years (36500d)")


def is_name(text: str) -> bool:
    """Whether a text can name a field or a column: printable, without spaces around it."""
    return bool(text) and text.isprintable() and text == text.strip()
