"""What a promotion carries over in PostgreSQL, and what it says of the rest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest
from tests.contracts.steps import RUN, change, step
from tests.contracts.stores import PostgresStore, committed

from windrow.connectors.database import Promoted
from windrow.connectors.open_sinks import open_database
from windrow.connectors.postgres import admin as promotion
from windrow.connectors.sink import Run
from windrow.errors import SinkError


@pytest.fixture
def store(database: str) -> PostgresStore:
    """A live table and its shadow, each with a row."""
    store = PostgresStore(database)
    for table, run in (("spend", RUN), ("spend_shadow", Run("spend", "run-2"))):
        model = store.model(sink=store.settings(table))
        committed(store, model, step(model, [change("insert", 0, "A", Decimal(1), 1)]), run=run)
    return store


@pytest.fixture
def role(store: PostgresStore) -> Iterator[str]:
    """A role that owns nothing, whose name must be quoted."""
    store.query('CREATE ROLE "A reader"')
    yield "A reader"
    store.query('DROP OWNED BY "A reader"; DROP ROLE "A reader"')


def promote(store: PostgresStore) -> Promoted:
    return open_database(store.settings()).promote("spend", [("spend", "spend_shadow")])[0]


def test_grants_are_those_of_the_table_before(store: PostgresStore, role: str) -> None:
    store.query(f'GRANT SELECT ON spend TO "{role}" WITH GRANT OPTION; GRANT UPDATE ("user") ON spend TO "{role}"')
    store.query("GRANT SELECT ON spend_late TO PUBLIC")
    store.query(f'GRANT DELETE ON spend_shadow TO "{role}"')
    promote(store)
    privileges = (
        "SELECT has_table_privilege($role$A reader$role$, 'spend', 'SELECT WITH GRANT OPTION'), "
        "has_table_privilege($role$A reader$role$, 'spend', 'DELETE'), "
        "has_column_privilege($role$A reader$role$, 'spend', 'user', 'UPDATE'), "
        "has_column_privilege($role$A reader$role$, 'spend', 'total', 'UPDATE'), "
        "has_table_privilege($role$A reader$role$, 'spend_late', 'SELECT')"
    )
    assert store.query(privileges) == [(True, False, True, False, True)]


def test_names_of_indexes_go_with_the_tables(store: PostgresStore) -> None:
    assert promote(store).carried == ()
    indexes = "SELECT indrelid::regclass::text, indexrelid::regclass::text FROM pg_index ORDER BY 1"
    assert [(table, name) for table, name in store.query(indexes) if table.startswith("spend")] == [
        ("spend", "spend_pkey"),
        ("spend_changes", "spend_changes_epoch_idx"),
        ("spend_shadow", "spend_shadow_pkey"),
        ("spend_shadow_changes", "spend_shadow_changes_epoch_idx"),
    ]


def test_an_index_of_ones_own_is_carried_though_it_is_like_windrows(store: PostgresStore) -> None:
    store.query("CREATE INDEX mine ON spend_changes USING brin (epoch, seq); CREATE INDEX too ON spend_clocks (epoch)")
    assert promote(store).carried == ("index mine", "index too")
    tables = "SELECT indrelid::regclass::text FROM pg_index WHERE indexrelid IN ('mine'::regclass, 'too'::regclass)"
    assert store.query(f"{tables} ORDER BY 1") == [("spend_changes",), ("spend_clocks",)]


def test_it_says_what_stays_on_the_former_table(store: PostgresStore) -> None:
    store.query("CREATE MATERIALIZED VIEW kept AS SELECT count(*) FROM spend")
    store.query("ALTER TABLE spend ADD CONSTRAINT positive CHECK (events > 0)")
    store.query("CREATE VIEW safe WITH (security_barrier=true) AS SELECT * FROM spend")
    promoted = promote(store)
    assert promoted.left == ("constraint positive", "materialized view kept")
    assert promoted.carried == ("view safe",)
    assert store.query("SELECT reloptions FROM pg_class WHERE relname = 'safe'") == [(["security_barrier=true"],)]
    assert store.query(
        "SELECT DISTINCT table_name FROM information_schema.view_table_usage WHERE view_name = 'safe'"
    ) == [("spend",)]


def test_a_view_of_a_numeric_of_an_earlier_version_is_carried(store: PostgresStore) -> None:
    store.query("ALTER TABLE spend ALTER total TYPE numeric")
    store.query("CREATE VIEW totals AS SELECT total FROM spend")
    store.query("UPDATE spend_shadow SET total = 2.5")
    for total in (Decimal("2.50"), Decimal(1)):
        assert promote(store).carried == ("view totals",)
        assert store.query("SELECT total FROM totals") == [(total,)]


def test_a_session_that_reads_for_long_is_not_waited_for(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotion, "LOCK_SECONDS", 0.1)
    with psycopg.connect(store.url) as reader:
        reader.execute("SELECT FROM spend")
        with pytest.raises(SinkError, match=r"another session has used table 'spend'.*nothing was changed"):
            promote(store)
    promote(store)
    assert store.query("SELECT run FROM windrow_tables WHERE table_name = 'spend'") == [("run-2",)]


def test_a_view_of_another_role_keeps_its_owner_and_grants_or_is_refused(store: PostgresStore, role: str) -> None:
    writer = f"{uuid.uuid4().hex[:8]} writer"
    store.query(f'CREATE ROLE "{writer}"; GRANT ALL ON SCHEMA public TO "{writer}"; CREATE SCHEMA reports')
    database = store.query("SELECT current_database()")[0][0]
    store.query(f'GRANT TEMPORARY ON DATABASE {database} TO "{writer}"')
    for (table,) in store.query("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"):
        if table.startswith(("spend", "windrow")) and "_pkey" not in table and "_idx" not in table:
            store.query(f'ALTER TABLE {table} OWNER TO "{writer}"')
    store.query(f'GRANT SELECT ON spend TO "{role}"; CREATE VIEW reports.totals AS SELECT "user", total FROM spend')
    store.query(f'ALTER VIEW reports.totals OWNER TO "{role}"; GRANT SELECT ON reports.totals TO PUBLIC')
    store.query("CREATE VIEW above AS SELECT count(*) AS n FROM reports.totals")
    before = store.query("SELECT * FROM reports.totals"), store.owners()
    store.query("UPDATE spend_shadow SET total = 5")
    as_writer = PostgresStore(f"{store.url}?options=-crole%3D{writer.replace(' ', '%5C%20')}")
    for grant, refusal in (
        (f'"{role}" TO', f'reports.totals belongs to role "{role}", and user "{writer}" may not .*: GRANT "{role}" TO'),
        ("CREATE ON SCHEMA reports TO", "in schema 'reports', and user .*: GRANT CREATE ON SCHEMA \"reports\" TO"),
    ):
        with pytest.raises(SinkError, match=f"{refusal}.*nothing was changed"):
            promote(as_writer)
        assert (store.query("SELECT * FROM reports.totals"), store.owners()) == before
        store.query(f'GRANT {grant} "{writer}"')
    assert promote(as_writer).carried == ("view totals",)
    assert store.query("SELECT * FROM reports.totals") == [("A", 5)]
    assert store.query("SELECT * FROM above") == [(1,)]
    of_view = "SELECT relowner::regrole::text, relacl::text LIKE '%=r/%' FROM pg_class WHERE relname = 'totals'"
    assert store.query(of_view) == [(f'"{role}"', True)]
    # as a superuser, back
    assert promote(store).carried == ("view totals",)
    assert store.query("SELECT * FROM reports.totals") == [("A", 1)]
    assert store.query(of_view) == [(f'"{role}"', True)]
    store.query(
        f'DROP VIEW above; REASSIGN OWNED BY "{writer}" TO postgres; DROP OWNED BY "{writer}"; DROP ROLE "{writer}"'
    )
