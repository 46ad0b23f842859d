"""The stores that the contract is tried on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contracts.stores import PostgresStore, SqliteStore, Store


@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.service) for name in ("postgres", "postgres with outbox"))]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each database in turn, empty."""
    if request.param == "sqlite":
        return SqliteStore(tmp_path)
    return PostgresStore(request.getfixturevalue("database"), outbox=request.param != "postgres")
