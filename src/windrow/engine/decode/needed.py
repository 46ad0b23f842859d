"""The parts of a record that a pipeline reads. Other parts are only checked, which costs next to nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Needed: TypeAlias = "Mapping[str, Any] | None"
"""The members of an object that are read, each with the members that are read of it; None: all of them, or a value."""


def needed_of(paths: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Return what is read of records whose values at some paths are read."""
    found: dict[str, Any] = {}
    for path in sorted(paths, key=len):
        inner: dict[str, Any] | None = found
        for name in path[:-1]:
            inner = None if inner is None else inner.setdefault(name, {})
        if inner is not None:
            inner[path[-1]] = None
    return found
