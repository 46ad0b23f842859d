"""The examples of a property are the same in every run, whatever else the run has loaded."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def test_examples_do_not_depend_on_the_modules_that_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = {10**9 + 7 * number for number in range(500)}
    (tmp_path / "full_of_constants.py").write_text(f"CONSTANTS = {constants}\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("full_of_constants")
    drawn = []

    @settings(max_examples=500)
    @given(st.integers(10**9, 10**9 + 10**8))
    def draw(number: int) -> None:
        drawn.append(number)

    draw()
    assert len(constants.intersection(drawn)) <= 1


def test_properties_are_searched_in_one_order_and_keep_no_database() -> None:
    assert settings.default is not None
    assert settings.default.derandomize
    assert settings.default.database is None
