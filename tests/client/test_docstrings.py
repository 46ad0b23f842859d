"""The examples in docstrings: they give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest
from tests.client.purchases import spend, write_purchases

import windrow as wr

MODULES = [
    "windrow.client.pipeline",
    "windrow.client.background",
    "windrow.client.compare",
    "windrow.client.tables",
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_give_what_they_show(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_purchases(tmp_path / "data" / "spend")
    pipeline = spend()
    pipeline.run("memory")
    found = doctest.testmod(
        import_module(module), extraglobs={"pipeline": pipeline, "wr": wr}, optionflags=doctest.ELLIPSIS
    )
    assert found.attempted
    assert not found.failed
