"""Open the sinks of a graph and their databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.connectors.registry import sink_connector
from windrow.errors import InputError, WindrowError
from windrow.expressions import sink_specs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow import model as m
    from windrow.connectors.database import Database, Promoted
    from windrow.connectors.sink import Sink, SinkGroup
    from windrow.expressions import SinkSpec


def open_sinks(graph: m.Graph) -> SinkGroup:
    """Return the sinks of a graph without connecting to them. Tables in the same database share one sink.

    Raise PipelineError if tables cannot be laid out in their database.
    """
    from windrow.connectors.sink import SinkGroup  # noqa: PLC0415 - Arrow loads only where a pipeline runs

    databases: dict[m.Sink, dict[str, SinkSpec]] = {}
    for name, spec in sink_specs(graph).items():
        databases.setdefault(spec.sink.database, {})[name] = spec
    sinks: list[tuple[list[str], Sink]] = []
    for place, specs in databases.items():
        connector = sink_connector(place)
        sinks.append((list(specs), connector.load(connector.tables)(*specs.values())))
    return SinkGroup(*sinks)


def create_statements(graph: m.Graph) -> list[str]:
    """Return lines of SQL that create the tables of a graph's sinks, without connecting to their databases.

    Sinks whose tables a run creates itself are comments, and so are the schemas of topics. Raise InputError if there is
    nothing to create.
    """
    databases: dict[m.Sink, list[SinkSpec]] = {}
    for spec in sink_specs(graph).values():
        databases.setdefault(spec.sink.database, []).append(spec)
    made = {place: _statements(place, specs) for place, specs in databases.items()}
    if not any(made.values()):
        sections = ", ".join(dict.fromkeys(place.section for place in databases))
        msg = (
            "--ddl prints the statements that create tables in PostgreSQL, and the schemas of topics with an "
            f"`encoding`, but the sinks are {sections}"
        )
        raise InputError(msg)
    return [
        line
        for place, specs in databases.items()
        for line in made[place]
        or [f"-- {place.section}: the run creates the tables of {spec.sink.table}" for spec in specs]
    ]


def _statements(place: m.Sink, specs: list[SinkSpec]) -> list[str]:
    connector = sink_connector(place)
    return list(connector.load(connector.ddl)(specs)) if connector.ddl else []


def promote(graph: m.Graph, shadows: Mapping[str, str]) -> dict[str, Promoted]:
    """Replace each live table of a pipeline by its shadow; tables in the same database are replaced together.

    If one database refuses, the promotions already made in other databases are undone. Raises the errors of
    `Database.promote`.
    """
    databases: dict[m.Sink, list[tuple[str, str]]] = {}
    for node in graph.sinks:
        place = node.sink.database
        databases.setdefault(place, []).append((node.sink.table, shadows[node.sink.table]))
    promoted: dict[str, Promoted] = {}
    done: list[m.Sink] = []
    try:
        for place, tables in databases.items():
            found = open_database(place).promote(graph.name, tables)
            done.append(place)
            promoted |= {live: result for (live, _), result in zip(tables, found, strict=True)}
    except WindrowError:
        for place in done:
            open_database(place).promote(graph.name, databases[place])
        raise
    return promoted


def open_database(sink: m.Sink) -> Database:
    """Return the database of a sink without connecting to it."""
    connector = sink_connector(sink)
    if not connector.database:
        msg = f"the sink is {connector.called}; this command needs a pipeline that writes to a table"
        raise InputError(msg)
    found: Database = connector.load(connector.database)(sink)
    return found
