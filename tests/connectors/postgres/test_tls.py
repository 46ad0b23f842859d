"""A PostgreSQL that is reached over TLS: whom a client believes, and what it says of those that it does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from tests.contracts.steps import RUN, change, pipeline, step
from tests.contracts.stores import PostgresStore, committed
from tests.graphs import sink_spec_of
from tests.servers.certificates import make_certificates
from tests.servers.secure_postgres import SECRET, USER, SecurePostgres, TlsProxy

from windrow.connectors.postgres.sink import PostgresTables
from windrow.errors import SinkError
from windrow.model import PostgresSink

LOGIN = f"postgresql://{USER}:${{SPEND_PASSWORD}}@"


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment has it, and names no certificates: libpq looks for them in the home folder too."""
    monkeypatch.setenv("SPEND_PASSWORD", SECRET)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of another authority, for another machine."""
    return make_certificates(tmp_path_factory.mktemp("elsewhere"), "DNS:db.example.org")


def write(url: str) -> None:
    """Open the tables, and write a step as a run does."""
    model = pipeline(PostgresSink(url, "spend"))
    committed(PostgresStore(url), model, step(model, [change("insert", 0, "A", Decimal(1), 1)]))


def refused(url: str, said: str) -> None:
    """It is told at once, and in one line."""
    model = pipeline(PostgresSink(url, "spend"))
    assert isinstance(model.sink, PostgresSink)
    with closing(PostgresTables(sink_spec_of(model))) as sink:
        acts: list[Callable[[], object]] = [lambda: sink.open(RUN), sink.journal]
        for act in acts:
            with pytest.raises(SinkError, match=f"cannot connect to PostgreSQL at .*{said}") as caught:
                act()
            assert not caught.value.passes
            assert "\n" not in str(caught.value)
            assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("mode", ["", "require", "verify-ca", "verify-full"])
def test_what_is_written_goes_over_tls(mode: str, tls: TlsProxy, secure_database: str) -> None:
    parameters = {"": "", "require": "?sslmode=require"}
    checked = f"?sslmode={mode}&sslrootcert={tls.certificates}/ca.pem"
    write(f"{LOGIN}{tls.address}/{secure_database}{parameters.get(mode, checked)}")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("sslmode=disable", "no encryption: set sslmode=verify-full, since the server accepts only TLS"),
        ("sslmode=verify-full", "root.crt.* does not exist: name the file of the server's authority in sslrootcert"),
        ("sslmode=verify-ca&sslrootcert=/none", "/none.* does not exist: name the file of the server's authority"),
        ("sslmode=verify-full&sslrootcert=/dev/null", "could not read root certificate file .*: name the file"),
        ("sslmode=verify-ca&sslrootcert={elsewhere}/ca.pem", "verify failed: name the server's authority"),
        ("sslmode=verify-full&sslrootcert={elsewhere}/ca.pem", "verify failed: name the server's authority"),
        ("sslmode=require&sslrootcert={elsewhere}/ca.pem", "verify failed: name the server's authority"),
        ("sslmode=verify-full&sslrootcert=system", "verify failed: name the server's authority"),
        ("sslmode=require&sslrootcert=system", "weak sslmode .*: correct the url"),
        ("sslmode=sometimes", "invalid sslmode value: .*: correct the url"),
        ("sslmode=require&channel_binding=require", "channel binding .*: correct the url"),
    ],
)
def test_what_is_not_believed_is_said(
    parameters: str, said: str, tls: TlsProxy, secure_database: str, elsewhere: Path
) -> None:
    refused(f"{LOGIN}{tls.address}/{secure_database}?{parameters.format(elsewhere=elsewhere)}", said)


def test_a_certificate_of_another_machine(
    secure_postgres: SecurePostgres, elsewhere: Path, secure_database: str
) -> None:
    with TlsProxy(secure_postgres, elsewhere) as proxy:
        url = f"{LOGIN}{proxy.address}/{secure_database}?sslrootcert={elsewhere}/ca.pem&sslmode="
        write(f"{url}verify-ca")
        said = 'server certificate for "db.example.org" .*does not match host name "127.0.0.1": connect by a name that'
        refused(f"{url}verify-full", said)


def test_a_server_without_tls(secure_postgres: SecurePostgres) -> None:
    for mode in ("require", "verify-full"):
        said = "server does not support SSL, but SSL was required: set up TLS on the server, or correct sslmode"
        refused(f"{secure_postgres.url}?sslmode={mode}", said)


def test_a_wrong_password_over_tls(tls: TlsProxy, secure_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where libpq tries anew in the clear, which is refused for another reason."""
    monkeypatch.setenv("SPEND_PASSWORD", "another s3cr3t")
    for parameters in ("", "?sslmode=require"):
        refused(
            f"{LOGIN}{tls.address}/{secure_database}{parameters}",
            f'password authentication failed for user "{USER}".*: check the user, and the password in PGPASSWORD',
        )


def test_a_client_that_must_show_a_certificate(
    secure_postgres: SecurePostgres, certificates: Path, elsewhere: Path, secure_database: str
) -> None:
    with TlsProxy(secure_postgres, certificates, asks=True) as proxy:
        url = f"{LOGIN}{proxy.address}/{secure_database}?sslmode=require"
        write(f"{url}&sslcert={certificates}/server.pem&sslkey={certificates}/server.key")
        for cert, key, said in (
            (None, None, "certificate required"),
            (elsewhere, elsewhere, "unknown ca"),
            (certificates, elsewhere, "key values mismatch"),
            (certificates, Path("/none"), "certificate present, but not private key file"),
        ):
            shown = "" if cert is None else f"&sslcert={cert}/server.pem&sslkey={key}/server.key"
            refused(url + shown, f"{said}.*: check sslcert and sslkey")
