"""Names of the files that a pattern matches: which of them are data, and their order.

A name that begins with an underscore is not data, as in Spark and Hive, which write unfinished files to `_temporary`. A
folder ``_key=value`` is, and so is a name that the pattern itself spells with an underscore. Nor is a name that ends
with ``._COPYING_``, which `hdfs dfs -put` gives to unfinished files.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from windrow import model as m
from windrow.model.connectors import split_pattern

Order = tuple[tuple[tuple[str | int, ...], str], ...]
"""The sort key of a name: for each of its parts, texts and numbers in turn, and the part itself."""

_DIGITS = re.compile(r"([0-9]+)")


@cache
def natural_order(name: str) -> Order:
    """Return the sort key of a name: folder by folder, numbers by value, and parts that are equal so far as text."""
    parts = name.split("/") if name else []
    return tuple((tuple(_numbers(_DIGITS.split(part))), part) for part in parts)


def _numbers(parts: list[str]) -> Iterator[str | int]:
    for at, part in enumerate(parts):
        yield int(part) if at % 2 else part


@cache
def text_order(name: str) -> Order:
    """Return the sort key of a name for checkpoints of older versions: folder by folder, as text."""
    return tuple(((), part) for part in name.split("/")) if name else ()


def matching(folder: str, within: str, *, data: bool = True) -> Iterator[str]:
    """Yield the names in a folder that match a pattern; with `data`, only names of data."""
    spelled = [part for part in within.split("/") if part.startswith("_")]
    # Path.glob has hidden files, too
    for name in glob.iglob(within, root_dir=folder, recursive=True):  # noqa: PTH207
        if not data or all(_is_data(part, spelled) for part in name.split("/")):
            yield name


def _is_data(part: str, spelled: list[str]) -> bool:
    if part.endswith("._COPYING_"):
        return False
    return not part.startswith("_") or "=" in part or any(fnmatchcase(part, pattern) for pattern in spelled)


def files_matching(pattern: str) -> list[str]:
    """Return the existing data files that match a pattern, in natural order."""
    folder, within = split_pattern(pattern)
    return [
        str(Path(folder, name))
        for name in sorted(set(matching(folder, within)), key=natural_order)
        if Path(folder, name).is_file()
    ]


def fields_of_folders(source: m.FilesSource) -> set[str]:
    """Return the names of the fields that records have from the folders of existing files, or of the patterns."""
    found: set[str] = set()
    for partition, pattern in enumerate(source.path):
        folder, within = split_pattern(pattern)
        for name in (within, *matching(folder, within)):
            found.update(source.folder_fields(partition, name))
    return found
