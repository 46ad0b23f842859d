"""The connector for PostgreSQL databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windrow import model as m
from windrow.connectors import settings
from windrow.connectors.base import Connector, SinkConnector, load
from windrow.declare.arguments import field_names
from windrow.declare.findings import Finding, error
from windrow.declare.spec import FLAG, TEXT, Key, Section
from windrow.model.references import mask_url


def postgres(
    url: str,
    *,
    table: str,
    schema: str | None = None,
    key: Sequence[str] = (),
    changelog: bool = True,
    outbox: bool = False,
    lists: m.ListForm = "json",
) -> m.PostgresSink:
    """Write to tables of a PostgreSQL database, in a schema or, by default, the first one of the search_path.

    What `url` lacks comes from libpq's environment (PGPASSWORD ...). `key` and `changelog` are as for `sqlite`. With
    ``outbox=True`` each change is also written to the table ``T_outbox``, from which ``windrow relay`` sends it on.
    With ``lists="array"``, columns of lists are arrays, such as ``text[]``, instead of JSON text.
    """
    return m.PostgresSink(url, table, field_names(key), changelog, outbox, schema, lists)


def _findings(sink: m.PostgresSink) -> Iterator[Finding]:
    yield from settings.url_findings(sink.url)
    if "." in sink.table:
        schema, _, table = sink.table.partition(".")
        yield error("table", f"{sink.table!r} names a schema: write `table: {table}` and `schema: {schema}`")
    else:
        yield from settings.table_findings(sink.table)
    if sink.schema is not None and not sink.schema:
        yield error("schema", "is empty; name a schema, or leave it out")


def _qualified(sink: m.PostgresSink) -> str:
    return sink.table if sink.schema is None else f"{sink.schema}.{sink.table}"


def _dataset(sink: m.PostgresSink, table: str) -> tuple[str, str]:
    found: tuple[str, str] = load("windrow.connectors.postgres.client:sink_dataset")(sink.url, sink.schema, table)
    return found


POSTGRES = Connector(
    sink=SinkConnector(
        (m.PostgresSink,),
        Section(
            "wr.postgres",
            m.PostgresSink,
            (
                Key(
                    "url",
                    TEXT,
                    "`postgresql://user@host:5432/database`. Missing parts are read from libpq's environment "
                    "variables (`PGUSER`, `PGPASSWORD`, `PGHOST` ...); the password may be a "
                    "[secret](../guides/security.md). Of several hosts (`a:5432,b:5432`) the first one that accepts "
                    "writes is used (`target_session_attrs=read-write`, unless the url sets it). Connect to the "
                    "server itself or to a pooler that keeps sessions; a run and `check --connect` refuse another. "
                    "Time limits of the role are turned off. If the server does not answer for a minute, the "
                    "connection is closed and the step retried: `keepalives_idle=30`, `keepalives_interval=10`, "
                    "`keepalives_count=3`, `tcp_user_timeout=60000` (milliseconds) and `connect_timeout=10`, unless "
                    "the url sets them. A statement may take longer than that if the server accepts another "
                    "connection meanwhile.",
                    required=True,
                    positional=True,
                    mask=mask_url,
                ),
                settings.table_key(),
                Key(
                    "schema",
                    TEXT,
                    "the schema of the tables, which must exist; by default, the first one in the user's "
                    "`search_path`. Sinks with the same `url` and `schema` share the transaction of a step.",
                ),
                settings.primary_key(),
                settings.CHANGELOG,
                Key(
                    "outbox",
                    FLAG,
                    "whether each change is also a row of `T_outbox`, which [`windrow relay`](#outbox) empties. The "
                    "setting can change between runs.",
                    default=m.PostgresSink.outbox,
                ),
                settings.LISTS,
            ),
        ),
        lambda sink: (
            f"table {_qualified(sink)} in PostgreSQL {sink.url}{settings.key_words(sink)}{settings.list_words(sink)}"
        ),
        "[tables in a PostgreSQL database](../connectors/postgres.md).",
        dataset=_dataset,
        tables="windrow.connectors.postgres.sink:PostgresTables",
        findings=_findings,
        database="windrow.connectors.postgres.admin:PostgresDatabase",
        ddl="windrow.connectors.postgres.sink:create_statements",
        row_bytes="windrow.connectors.row_bytes:postgres",
    )
)
