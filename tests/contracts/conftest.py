"""The stores that the contract is tried on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contracts.stores import PostgresStore, SqliteStore, Store

OUTBOX = "postgres with outbox"
ALIKE = {f"test_{one}" for one in ("answers", "sink_follows", "sink_group", "sink_memory", "sink_types")}
"""Modules in which an outbox changes little; only `make test-long` runs them with one."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave an outbox to the long tests where it changes little."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent and item.path.stem in ALIKE:
            callspec = getattr(item, "callspec", None)
            if callspec is not None and callspec.params.get("store") == OUTBOX:
                item.add_marker("long")


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.service) for name in ("postgres", OUTBOX))])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each database in turn, empty."""
    if request.param == "sqlite":
        return SqliteStore(tmp_path)
    return PostgresStore(request.getfixturevalue("database"), outbox=request.param == OUTBOX)
