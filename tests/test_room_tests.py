"""`make test ROOM=NAME`: the tests that a package of src/windrow needs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("room", "test"),
    [
        ("engine", "tests/net/test_net.py"),  # uses it through tests/net/adapter.py
        ("engine", "tests/properties/test_sessions.py"),
        ("engine", "tests/runtime/test_batch.py"),  # of a package that imports it
        ("connectors", "tests/contracts/test_sink_crashes.py"),
        ("connectors", "tests/faults/test_databases.py"),
    ],
)
def test_a_package_has_the_tests_that_use_it(room: str, test: str) -> None:
    files = runpy.run_path(str(ROOT / "scripts" / "room_tests.py"))["test_files"](room)
    assert ROOT / test in files


def test_a_package_does_not_have_the_tests_of_those_below_it() -> None:
    files = runpy.run_path(str(ROOT / "scripts" / "room_tests.py"))["test_files"]("cli")
    assert ROOT / "tests/engine/test_windows.py" not in files
