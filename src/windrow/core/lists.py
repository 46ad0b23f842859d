"""Lists of rules: the entries of a file, read once, at the start of a run."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from windrow.errors import InputError
from windrow.model import FileList, RulesPipeline, Runnable


def with_entries(pipeline: Runnable) -> Runnable:
    """Return a pipeline with the entries of its lists in it, so that other machines need not have the files.

    Raise InputError for a file that cannot be read.
    """
    if not isinstance(pipeline, RulesPipeline) or not pipeline.rules.lists:
        return pipeline
    lists = tuple(replace(one, entries=tuple(sorted(_entries(one)))) for one in pipeline.rules.lists)
    return replace(pipeline, rules=replace(pipeline.rules, lists=lists))


def read_entries(lists: Iterable[FileList]) -> dict[str, frozenset[str]]:
    """Return the entries of each list; raise InputError for a file that cannot be read."""
    return {one.name: _entries(one) for one in lists}


def _entries(given: FileList) -> frozenset[str]:
    if given.entries is not None:
        return frozenset(given.entries)
    try:
        with Path(given.path).open(encoding="utf-8-sig", newline="") as file:
            if given.column is None:
                return frozenset(filter(None, (line.strip() for line in file)))
            rows = csv.DictReader(file)
            if given.column not in (rows.fieldnames or ()):
                names = ", ".join(rows.fieldnames or ()) or "none"
                msg = f"the list {given.name!r}: {given.path} has no column {given.column!r}; its columns are {names}"
                raise InputError(msg)
            return frozenset(filter(None, ((row[given.column] or "").strip() for row in rows)))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        msg = f"the list {given.name!r}: {given.path} cannot be read: {why}"
        raise InputError(msg) from exc
