"""Runs into a PostgreSQL that wants a password and TLS: what they leave behind, and what they do not wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contracts.stores import PostgresStore
from tests.faults.windrow_process import WindrowProcess
from tests.graphs import as_graph
from tests.runtime.answers import assert_same
from tests.runtime.spend import Files, events, spend
from tests.servers.certificates import make_certificates
from tests.servers.secure_postgres import SECRET, SecurePostgres, TlsProxy
from tests.short_forms import Pipeline

from windrow.authoring.printing import to_yaml
from windrow.errors import SinkError
from windrow.model import PostgresSink
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings

FEED = events(600)

Change = Callable[[], None]


@pytest.fixture
def pipeline(files: Files, tls: TlsProxy, secure_database: str, tmp_path: Path) -> Pipeline:
    """The pipeline, which has its password from a file."""
    (tmp_path / "password").write_text(f"{SECRET}\n")
    url = tls.url_of(secure_database, f"${{file:{tmp_path}/password}}")
    return replace(spend(files.source, PostgresSink(url, "spend"), at_end="hold"), key_groups=2)


@pytest.fixture
def change(secure_postgres: SecurePostgres, tls: TlsProxy, tmp_path: Path) -> Iterator[Callable[[str], Change]]:
    """What changes the password or the certificate for another and ends all connections; it is put back then."""
    right = tls.certificates

    def change(what: str) -> Change:
        wrong = make_certificates(tmp_path / "elsewhere")

        def spoil() -> None:
            if what == "password":
                secure_postgres.set_password("another")
            else:
                tls.certificates = wrong
            secure_postgres.end_connections()

        return spoil

    yield change
    secure_postgres.set_password(SECRET)
    tls.certificates = right


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("password", "password authentication failed"),
        pytest.param("certificate", "certificate verify failed", marks=pytest.mark.long),
    ],
)
def test_a_run_does_not_wait_for_the_right_one(  # noqa: PLR0917 - fixtures
    what: str,
    said: str,
    change: Callable[[str], Change],
    pipeline: Pipeline,
    files: Files,
    secure_postgres: SecurePostgres,
    secure_database: str,
    tmp_path: Path,
) -> None:
    """It loses its connection, and is refused when it connects again."""
    spoil = change(what)
    told: list[str] = []
    files.append(FEED)
    options = RunSettings(tmp_path / "checkpoint", until_end=True, max_records=len(FEED) // 2, on_trouble=told.append)
    with pytest.raises(SinkError, match=f"^cannot connect to PostgreSQL at .*{said}.*$") as caught:
        launch(as_graph(pipeline), options, lambda _: spoil(), lambda _: None)
    assert len(told) == 1
    assert "trying again" in told[0]
    assert not caught.value.passes
    assert "s3cr3t" not in str(caught.value)
    assert PostgresStore(secure_postgres.url_of(secure_database)).query("SELECT epoch FROM windrow_epochs") == [(0,)]


@pytest.mark.long
@pytest.mark.parametrize("host", ["stream", "batch"])
def test_a_process_leaves_no_password_behind(  # noqa: PLR0917 - fixtures
    host: str,
    pipeline: Pipeline,
    files: Files,
    secure_postgres: SecurePostgres,
    tls: TlsProxy,
    secure_database: str,
    tmp_path: Path,
) -> None:
    """With the password in the environment, and a folder of its own for what is put aside."""
    files.append(FEED)
    url = tls.url_of(secure_database, "${SPEND_PASSWORD}")
    (tmp_path / "pipeline.yaml").write_text(to_yaml(as_graph(replace(pipeline, sink=PostgresSink(url, "spend")))))
    (tmp_path / "password").unlink()
    (tmp_path / "aside").mkdir()
    aside = {"TMPDIR": str(tmp_path / "aside"), "SPARK_LOCAL_DIRS": str(tmp_path / "aside")}
    options = ("--host", host, "--until-end", "--checkpoint", "checkpoint")
    for password, code in ((SECRET, 0), (SECRET + "wrong", 1)):
        arguments = ("run", "pipeline.yaml", *options, *([] if code == 0 else ["--fresh"]))
        with WindrowProcess(arguments, tmp_path, SPEND_PASSWORD=password, **aside) as process:
            assert process.wait() == code, process.errors
            told = process.errors
        left = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert len(left) > 5
        assert [path for path, content in left.items() if b"s3cr3t" in content] == []
    assert told.startswith("windrow: cannot connect to PostgreSQL at ")
    assert "password authentication failed" in told
    assert told.count("\n") == 1
    assert_same(PostgresStore(secure_postgres.url_of(secure_database)), pipeline)
