"""PostgreSQL's addresses, and that no message has a password."""

from __future__ import annotations

import psycopg
import pytest

from windrow.connectors.postgres.client import Server
from windrow.errors import InputError


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@hunter2@h/db",
        "postgresql://u:hunter2/hunter2@h/db",
        "postgresql://u:1/hunter2@h/db",
        "postgresql://u:%hunter2@h/db",
        "postgresql://u:hunter2",
        "postgresql://h/db?password=hunter2&hunter2",
        "postgresql://h:hunter2/db",
    ],
)
def test_a_url_whose_password_is_not_encoded_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", url)
    for given in (url, "${URL}"):
        with pytest.raises(InputError, match=r"the sink's url cannot be read: .* percent-encode") as caught:
            _ = Server(given, "sink").place
        assert "hunter2" not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


def test_what_libpq_says_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "me:hunt@er2")
    server = Server("postgresql://${LOGIN}@h/db?sslpassword=hunter3", "sink")
    error = psycopg.OperationalError('password authentication failed for user "me:hunt@er2" with hunter3')
    text, passes = server.not_connected(error)
    assert text.startswith('cannot connect to PostgreSQL at h:5432/db: password authentication failed for user "***"')
    assert not passes
    assert "hunt" not in text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p%40@h:1,g:2/db?application_name=a@b",
        "postgresql:///db?host=/run/pg&user=u&password=p/w@x",
        "postgresql://u:p?w:x@[::1]:5432/db",
        "host=h password=p@w/x",
    ],
)
def test_other_urls_are_read(url: str) -> None:
    assert Server(url, "sink").parts["password"]
