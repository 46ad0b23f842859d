"""The stores that the contract is tried on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test
from tests.contracts.stores import (
    AnyStore,
    DeltaStore,
    DuckDBStore,
    JsonlStore,
    ParquetStore,
    PostgresStore,
    SqliteStore,
)

OUTBOX = "postgres with outbox"
ALIKE = {f"test_{one}" for one in ("answers", "sink_follows", "sink_group", "sink_lists", "sink_memory", "sink_types")}
"""Modules in which an outbox changes little; only `make test-long` runs them with one."""

DATABASES = ["sqlite", "duckdb", "postgres", OUTBOX]
KINDS = {"Store": DATABASES, "TableStore": [*DATABASES, "delta"], "AnyStore": [*DATABASES, "delta", "parquet", "jsonl"]}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test each store of the kind that it wants."""
    if "store" not in metafunc.fixturenames:
        return
    # each example of a property empties and opens five Delta tables, in as many commits
    long = {"delta", "duckdb"} if is_hypothesis_test(metafunc.function) else set()
    merge = set() if "outbox" in metafunc.function.__name__ else {OUTBOX}
    if Path(metafunc.module.__file__).stem in ALIKE:
        long.add(OUTBOX)
    params = []
    for kind in KINDS[metafunc.function.__annotations__.get("store", "AnyStore")]:
        marks = [pytest.mark.service] if kind in {"postgres", OUTBOX} else []
        marks += [pytest.mark.long] if kind in long else [pytest.mark.merge] if kind in merge else []
        params.append(pytest.param(kind, marks=marks))
    metafunc.parametrize("store", params, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> AnyStore:
    """A store, empty."""
    match request.param:
        case "sqlite":
            return SqliteStore(tmp_path)
        case "duckdb":
            return DuckDBStore(tmp_path)
        case "delta":
            return DeltaStore(tmp_path)
        case "parquet":
            return ParquetStore(tmp_path)
        case "jsonl":
            return JsonlStore(tmp_path)
        case kind:
            return PostgresStore(request.getfixturevalue("database"), outbox=kind == OUTBOX)
