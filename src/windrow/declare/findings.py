"""Findings: errors and likely mistakes in a pipeline, each with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
