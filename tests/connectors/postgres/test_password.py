"""A PostgreSQL that wants a password, which comes from the environment or a file and is in no message."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.pipelines import main
from tests.graphs import sink_spec_of
from tests.servers.secure_postgres import SECRET, SecurePostgres

from windrow.connectors.postgres.sink import PostgresTables
from windrow.connectors.sink import Run
from windrow.errors import InputError, SinkError
from windrow.model import PostgresSink


def opened(url: str) -> None:
    sink = PostgresSink(url, "spend")
    table = PostgresTables(sink_spec_of(main(sink=sink)))
    try:
        table.open(Run("main", "1"))
    finally:
        table.close()


def test_a_password_from_the_environment_or_a_file(
    secure_postgres: SecurePostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = secure_postgres.url.rpartition("@")[2]
    (tmp_path / "password").write_text(f"{SECRET}\n")
    monkeypatch.setenv("SPEND_PASSWORD", SECRET)
    monkeypatch.setenv("SPEND_URL", secure_postgres.url)
    for login in ("postgres:${SPEND_PASSWORD}@", f"postgres:${{file:{tmp_path}/password}}@"):
        opened(f"postgresql://{login}{address}")
    opened(f"postgresql://{address}?user=postgres&password=${{SPEND_PASSWORD}}")
    opened("${SPEND_URL}")
    monkeypatch.setenv("PGPASSWORD", SECRET)
    opened(f"postgresql://postgres@{address}")


def test_what_is_wrong_is_said_without_the_password(
    secure_postgres: SecurePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = secure_postgres.url.rpartition("@")[2]
    monkeypatch.setenv("SPEND_PASSWORD", "another s3cr3t")
    monkeypatch.delenv("PGPASSWORD", raising=False)
    for url, said in (
        (f"postgresql://postgres:${{SPEND_PASSWORD}}@{address}", "password"),
        (f"postgresql://postgres@{address}", "password"),
    ):
        with pytest.raises(SinkError, match=said) as caught:
            opened(url)
        assert "s3cr3t" not in str(caught.value)
    with pytest.raises(InputError, match="the sink's url: the environment variable NOT_SET_HERE is not set"):
        opened(f"postgresql://postgres:${{NOT_SET_HERE}}@{address}")
