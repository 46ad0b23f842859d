#!/usr/bin/env python3
"""Prints the test files for a package of src/windrow: its own, those of its importers, and all others that use it.

A test uses a package that the modules of tests/ use from which it imports, such as `tests/contracts/stores.py`.
"""

from __future__ import annotations

import re
import runpy
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
ALLOWED: dict[str, set[str]] = runpy.run_path(str(TESTS / "test_imports.py"))["ALLOWED"]
IMPORT = re.compile(r"^ *from (tests[\w.]*) import (.*)", re.MULTILINE)


@cache
def text_of(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


def modules_of(test: Path) -> set[Path]:
    """Return a test file and the modules of tests/ from which it imports, directly or through each other."""
    found, stack = set(), [test]
    while stack:
        path = stack.pop()
        if path not in found and path.is_file():
            found.add(path)
            for module, names in IMPORT.findall(text_of(path)):
                folder = ROOT / module.replace(".", "/")
                stack += [folder.with_suffix(".py"), *(folder / f"{name}.py" for name in re.findall(r"\w+", names))]
    return found


def test_files(room: str) -> list[Path]:
    """Return the test files, in order; raise KeyError if there is no such package."""
    rooms = {name for name, imports in ALLOWED.items() if room in imports} | {room} if room in ALLOWED else None
    if rooms is None:
        raise KeyError(room)
    uses = re.compile(rf"\bwindrow\.{room}\b|\bfrom windrow import .*\b{room}\b")
    return [
        path
        for path in sorted(TESTS.rglob("test_*.py"))
        if path.relative_to(TESTS).parts[0] in rooms or any(uses.search(text_of(module)) for module in modules_of(path))
    ]


if __name__ == "__main__":
    try:
        found = test_files(sys.argv[1])
    except KeyError:
        rooms = ", ".join(room for room in ALLOWED if room and room != "__main__")
        sys.exit(f"test: there is no package {sys.argv[1]!r} in src/windrow; ROOM is one of {rooms}")
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in found)
