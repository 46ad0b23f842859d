"""Who may write to PostgreSQL, and what is said to those who may not."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from tests.contracts.steps import RUN, change, pipeline, step
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors import ownership
from windrow.connectors.open_sinks import open_database
from windrow.connectors.postgres.client import SINK_ERRORS, server
from windrow.connectors.postgres.outbox import open_outbox
from windrow.connectors.postgres.sink import PostgresTables, create_statements
from windrow.connectors.tables import layout
from windrow.errors import SinkAddressError, SinkError, SinkUnavailableError
from windrow.model import PostgresSink
from windrow.testing.servers.postgres import Postgres


def sink_of(model: Pipeline, lock_seconds: float = 20) -> PostgresTables:
    assert isinstance(model.sink, PostgresSink)
    return PostgresTables(sink_spec_of(model), lock_seconds=lock_seconds)


def query(model: Pipeline, sql: str) -> list[tuple[object, ...]]:
    assert isinstance(model.sink, PostgresSink)
    with psycopg.connect(model.sink.url, autocommit=True) as db:
        cursor = db.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


# Who may do what.


@pytest.fixture
def role(postgres: Postgres, database: str) -> Iterator[str]:
    """A role with no privileges in the database but to use it."""
    name = f"role_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'right'".encode())
    yield name
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(f"DROP OWNED BY {name}".encode())
    with psycopg.connect(postgres.url, autocommit=True) as db:
        db.execute(f"DROP ROLE {name}".encode())


def as_role(postgres: Postgres, database: str, role: str) -> str:
    return postgres.url_of(database.rpartition("/")[2], role)


@pytest.mark.parametrize("schema", [None, "own schema"])
def test_a_user_who_may_not_create_writes_the_tables_of_an_administrator(
    postgres: Postgres, database: str, role: str, schema: str | None
) -> None:
    sinks = [
        PostgresSink(as_role(postgres, database, role), table, outbox=outbox, schema=schema)
        for table, outbox in (("spend", True), ("other", False))
    ]
    models = [pipeline(sink) for sink in sinks]
    lines = create_statements([sink_spec_of(model) for model in models])
    with psycopg.connect(database, autocommit=True) as db:
        if schema is not None:
            db.execute(f'CREATE SCHEMA "{schema}"'.encode())
        db.execute("\n".join(lines).encode())
    sink = PostgresTables(*map(sink_spec_of, models), lock_seconds=20)
    sink.preflight(RUN)
    changes = [
        change("update_before", 0, "A", Decimal(1), 1, pane="late"),
        change("update_after", 0, "A", Decimal(5), 2, pane="late", revision=1),
        change("delete", 0, "B", Decimal(1), 1, pane="late"),
    ]
    first = [change("insert", 0, user, Decimal(1), 1) for user in "AB"]
    for epoch, rows in enumerate((first, changes)):
        assert sink.open(RUN) == (None if epoch == 0 else epoch - 1)
        sink.commit(epoch, *(step(model, rows) for model in models))
        sink.close()
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(f'SET search_path = "{schema or "public"}"'.encode())
        for table in ("spend", "other"):
            assert db.execute(f'SELECT "user", total FROM {table}'.encode()).fetchall() == [("A", 5)]
        made = db.execute("SELECT relname, relowner::regrole::text FROM pg_class WHERE relkind = 'r' AND oid > 16384")
        assert {owner for _, owner in made.fetchall()} == {"postgres"}
    # what a run creates is the same
    assert open_database(sinks[0]).mismatches(layout(sink_spec_of(models[0]))) == []
    with open_outbox(sinks[0]) as outbox:
        assert outbox.lag().rows == 4


def test_a_user_who_may_not_create(postgres: Postgres, database: str, role: str) -> None:
    model = pipeline(PostgresSink(as_role(postgres, database, role), "spend"))
    message = f'user \'{role}\' may not create it: GRANT CREATE ON SCHEMA "public" TO "{role}"'
    for refusing in (sink_of(model).preflight, sink_of(model).open):
        with pytest.raises(SinkError, match=message):
            refusing(RUN)


def test_a_table_of_an_earlier_version_is_altered_by_its_owner_alone(
    postgres: Postgres, database: str, role: str
) -> None:
    owner = pipeline(PostgresSink(database, "spend"))
    with closing(sink_of(owner)) as sink:
        sink.open(RUN)
    query(owner, 'ALTER TABLE spend_dead ALTER "partition" SET NOT NULL, ALTER "offset" SET NOT NULL')
    query(owner, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    other = pipeline(PostgresSink(as_role(postgres, database, role), "spend"))
    message = r"'partition' of table 'spend_dead' is NOT NULL.*and 1 more.*ALTER COLUMN \"partition\" DROP NOT NULL"
    for refusing in (sink_of(other).preflight, sink_of(other).open):
        with pytest.raises(SinkError, match=message):
            refusing(RUN)
    with closing(sink_of(owner)) as sink:
        sink.open(RUN)
    with closing(sink_of(other)) as sink:
        sink.open(RUN)
        sink.commit(0, step(other, dead=[["w", None, None, None, "null key: k: at k=p", b"{}"]]))
    assert query(owner, 'SELECT source, "partition", "offset" FROM spend_dead') == [("w", None, None)]


PRIVILEGES = [
    ("spend", "SELECT, INSERT, UPDATE", "DELETE"),
    ("spend", "SELECT, INSERT, DELETE", "UPDATE"),
    ("spend_changes", "INSERT", "SELECT"),
    ("spend_late", "SELECT", "INSERT"),
    ("windrow_epochs", "SELECT", "INSERT"),
    ("windrow_openers", "SELECT, INSERT", "UPDATE"),
    ("windrow_origins", "SELECT, INSERT", "UPDATE"),
]


@pytest.mark.parametrize("case", PRIVILEGES)
def test_a_privilege_that_is_missing_is_named(
    postgres: Postgres, database: str, role: str, case: tuple[str, str, str]
) -> None:
    table, granted, missing = case
    owner = pipeline(PostgresSink(database, "spend"))
    with closing(sink_of(owner)) as sink:
        sink.open(RUN)
    query(owner, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    query(owner, f"REVOKE ALL ON {table} FROM {role}; GRANT {granted} ON {table} TO {role}")
    model = pipeline(PostgresSink(as_role(postgres, database, role), "spend"))
    message = f"user '{role}' has no {missing} privilege on table '{table}': GRANT {missing} ON \"public\".\"{table}\""
    with pytest.raises(SinkError, match=message):
        sink_of(model).open(RUN)
    query(owner, f"GRANT ALL ON {table} TO {role}")
    with closing(sink_of(model)) as sink:
        sink.open(RUN)
        sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
        query(owner, f"REVOKE INSERT ON spend FROM {role}")
        with pytest.raises(SinkError, match="permission denied for table spend: a privilege is missing; grant it"):
            sink.commit(1, step(model, [change("insert", 5, "A", Decimal(1), 1)]))


def test_a_user_who_may_not_delete_old_epochs_keeps_them(
    postgres: Postgres, database: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "EPOCHS_KEPT", 1)
    owner, model = (pipeline(PostgresSink(url, "spend")) for url in (database, as_role(postgres, database, role)))
    with closing(sink_of(owner)) as sink:
        sink.open(RUN)
    query(owner, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; REVOKE DELETE ON windrow_epochs FROM {role}")
    with closing(sink_of(model)) as sink:
        sink.open(RUN)
        for epoch in range(3):
            sink.commit(epoch, step(model))
        assert query(owner, "SELECT count(*) FROM windrow_epochs") == [(3,)]
        query(owner, f"GRANT DELETE ON windrow_epochs TO {role}")
        sink.commit(3, step(model))
    assert query(owner, "SELECT epoch FROM windrow_epochs") == [(3,)]


def test_row_level_security(postgres: Postgres, database: str, role: str) -> None:
    owner, model = (pipeline(PostgresSink(url, "spend")) for url in (database, as_role(postgres, database, role)))
    with closing(sink_of(owner)) as sink:
        sink.open(RUN)
    query(owner, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; ALTER TABLE spend ENABLE ROW LEVEL SECURITY")
    message = f"row-level security of table 'spend' applies to user '{role}'.*: write as the table's owner"
    with pytest.raises(SinkError, match=message):
        sink_of(model).open(RUN)
    with closing(sink_of(owner)) as sink:
        sink.open(RUN)
        sink.commit(0, step(owner, [change("insert", 0, "A", Decimal(1), 1)]))


def test_a_user_who_may_not_create_temporary_tables(postgres: Postgres, database: str, role: str) -> None:
    name = database.rpartition("/")[2]
    owner, model = (pipeline(PostgresSink(url, "spend")) for url in (database, as_role(postgres, database, role)))
    query(owner, f"GRANT CREATE ON SCHEMA public TO {role}; REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    message = f'user \'{role}\' may not create temporary tables, .*: GRANT TEMPORARY ON DATABASE "{name}" TO "{role}"'
    with pytest.raises(SinkError, match=message):
        sink_of(model).open(RUN)
    query(owner, f"GRANT TEMPORARY ON DATABASE {name} TO {role}")
    with closing(sink_of(model)) as sink:
        assert sink.open(RUN) is None


# Connections that fail.


@pytest.fixture
def guarded(postgres: Postgres, database: str, role: str) -> Iterator[Callable[[str], str]]:
    """The url of the role with a password, which the server asks of it."""
    name = database.rpartition("/")[2]
    with ExitStack() as stack:
        db = stack.enter_context(closing(psycopg.connect(postgres.url, autocommit=True)))
        ((path,),) = db.execute("SHOW hba_file").fetchall()
        rules = Path(str(path))
        before = rules.read_text()
        stack.callback(db.execute, "SELECT pg_reload_conf()")
        stack.callback(rules.write_text, before)
        rules.write_text(f"host all {role} all scram-sha-256\n{before}")
        db.execute("SELECT pg_reload_conf()")
        yield lambda password: postgres.url_of(name, f"{role}:{password}")


def test_a_wrong_password_is_told_and_not_printed(guarded: Callable[[str], str], role: str) -> None:
    for _ in range(1000):  # the server takes a moment to read its new rules
        try:
            psycopg.connect(guarded("s3cret")).close()
        except psycopg.OperationalError:
            break
    with pytest.raises(SinkError, match=r"password authentication failed .*PGPASSWORD") as caught:
        sink_of(pipeline(PostgresSink(guarded("s3cret"), "spend"))).open(RUN)
    assert role in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in str(caught.value.__cause__)
    with pytest.raises(SinkError, match="may not create it"):
        sink_of(pipeline(PostgresSink(guarded("right"), "spend"))).open(RUN)


def test_a_connection_that_is_refused_for_now_or_for_good(postgres: Postgres, database: str, role: str) -> None:
    hidden = f"REVOKE CONNECT ON DATABASE {database.rpartition('/')[2]} FROM PUBLIC"
    for statement, kind, said in (
        ("CONNECTION LIMIT 0", SinkUnavailableError, "too many connections for role .*: raise max_connections"),
        ("NOLOGIN", SinkError, "not permitted to log in: create the user"),
        (f"LOGIN CONNECTION LIMIT -1; {hidden}", SinkError, "permission denied for database .*: grant this user"),
    ):
        with psycopg.connect(postgres.url, autocommit=True) as db:
            db.execute(f"ALTER ROLE {role} {statement}".encode())
        with pytest.raises(SinkError, match=said) as caught:
            sink_of(pipeline(PostgresSink(as_role(postgres, database, role), "spend"))).open(RUN)
        assert type(caught.value) is kind


def test_names_are_not_taken_for_what_happened() -> None:
    said = 'connection to server at "certificate.example", port 1 failed: FATAL: no sslmode for "permission denied"'
    text = said.replace("no sslmode for", "the database system is starting up,")
    assert SINK_ERRORS.translate_connect(psycopg.OperationalError(text), server("postgresql://there")).passes
    assert not SINK_ERRORS.translate_connect(psycopg.OperationalError(said), server("postgresql://there")).passes


def test_a_server_that_is_not_there() -> None:
    model = pipeline(PostgresSink("postgresql://bob:s3cret@127.0.0.1:1/x", "spend"))
    sink = sink_of(model)
    acts: list[Callable[[], object]] = [lambda: sink.open(RUN), sink.clear, sink.journal]
    for act in acts:
        with pytest.raises(SinkError, match=r"cannot connect to PostgreSQL at 127.0.0.1:1/x: .*refused") as caught:
            act()
        assert "s3cret" not in str(caught.value)


def test_a_database_that_does_not_exist(postgres: Postgres) -> None:
    model = pipeline(PostgresSink(postgres.url_of("nowhere"), "spend"))
    with pytest.raises(SinkError, match=r'database "nowhere" does not exist: create the database'):
        sink_of(model).open(RUN)


def test_a_user_that_does_not_exist(postgres: Postgres) -> None:
    model = pipeline(PostgresSink(postgres.url_of("postgres", "nobody_here"), "spend"))
    with pytest.raises(SinkError, match=r'role "nobody_here" does not exist: create the user'):
        sink_of(model).open(RUN)


@pytest.mark.parametrize(
    "url", ["postgresql://bob:s3cret@host:port:1/x?y", "not a url s3cret", "postgresql://a:s3c%ret@h/x"]
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(SinkAddressError, match="url cannot be read: write postgresql://") as caught:
        sink_of(pipeline(PostgresSink(url, "spend"))).open(RUN)
    assert "s3c" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_errors_say_what_to_do() -> None:
    url = "postgresql://bob:s3cret@db.example:5433/spend"
    place = server(url).place
    assert place == "PostgreSQL at db.example:5433/spend"
    for error, advice in (
        (psycopg.errors.DiskFull("no space left"), "no space left: the database's disk is full; make room"),
        (psycopg.errors.ReadOnlySqlTransaction("x"), "connect to the primary"),
        (psycopg.errors.UniqueViolation("x"), "a constraint refused a row"),
        (psycopg.ProgrammingError("x"), "correct that, then start again"),
    ):
        assert advice in str(SINK_ERRORS.translate(error, place))
    assert "check that it runs" in str(
        SINK_ERRORS.translate_connect(psycopg.OperationalError("timeout\n expired"), server(url))
    )
