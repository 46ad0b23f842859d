"""Open the sources of a graph: their logs, appenders and followers, and the entries of the graph's lists."""

from __future__ import annotations

from collections.abc import Callable, Collection

from windrow import model as m
from windrow.connectors.base import load
from windrow.connectors.cuts import Offset
from windrow.connectors.follower import Follower, ReadColumns
from windrow.connectors.registry import source_connector
from windrow.connectors.source import Appender, Source
from windrow.engine.lists import with_entries
from windrow.errors import InputError
from windrow.expressions import table_keys


def open_source(source: m.Source) -> Source:
    """Return the log of a source. Nothing is read or contacted until its methods are called."""
    log = source.records
    found: Source = load(source_connector(log).log)(log)
    return found


def open_decoded(node: m.SourceNode) -> Source:
    """Return the log of a source as its fields are decoded: with the headers of records if one of them needs these."""
    log = open_source(node.source)
    return log.with_headers() if node.reads_headers else log


def open_appender(source: m.Source, identity: str, prefix: bytes) -> Appender:
    """Return the appender of records that start with `prefix`; raise InputError if the log has none."""
    connector = source_connector(source)
    if not connector.appender:
        raise InputError(connector.not_written(source))
    found: Appender = load(connector.appender)(source, identity, prefix)
    return found


def open_sources(graph: m.Graph, read_as: Offset | None = None) -> Source:
    """Return a single log that combines all sources of a pipeline, as a run reads it whose position is `read_as`."""
    first, *others = graph.sources
    if not others:
        found = open_decoded(first)
    else:
        from windrow.connectors.several import SeveralLogs  # noqa: PLC0415 - Arrow only when a source is opened

        found = SeveralLogs({other.name: open_decoded(other) for other in (first, *others)})
    return found if read_as is None else found.read_as(read_as)


def with_lists(graph: m.Graph, on_warning: Callable[[str], None]) -> m.Graph:
    """Return a pipeline that includes the entries of its lists. Lists in topics are read to their current ends.

    `on_warning` is called if a key cannot be an entry, with its location. Raise InputError for a list in a file that
    cannot be read, and SourceError for a list in a topic.
    """

    def read_topic(topic: m.TopicList) -> frozenset[str]:
        from windrow.connectors.kafka.lists import read_list  # noqa: PLC0415 - librdkafka only for a topic

        source = graph.sources[0].source
        if not isinstance(source, m.KafkaSource):
            msg = f"the list {topic.name!r} is a topic on the brokers of the source, but the source is not Kafka"
            raise InputError(msg)
        found = read_list(topic, source)
        if found.warning is not None:
            on_warning(found.warning)
        return found.entries

    return with_entries(graph, read_topic)


def followers(graph: m.Graph) -> dict[str, Follower]:
    """Return the followers of files and tables, by the name of their source."""
    found: dict[str, Follower] = {}
    for node in graph.sources:
        if follower := source_connector(node.source).follower:
            of_tables: dict[str, ReadColumns] = {}
            for part in graph.readers(node):
                if isinstance(part, m.ChangesNode):
                    # several streams can have the changes of a table
                    of_tables[part.table] = of_tables.get(part.table, ReadColumns()) + _read_columns(graph, part)
            found[node.name] = load(follower)(node, _read_columns(graph, node), of_tables)
    return found


def _read_columns(graph: m.Graph, node: m.SourceNode | m.ChangesNode) -> ReadColumns:
    """Return the decoded columns, which have no path."""
    keys = table_keys(graph, node)
    columns = {field.name: (field.name, *field.alias) for field in node.decode.fields if not field.path}
    return ReadColumns(tuple(columns.values()), tuple(names for name, names in columns.items() if name in keys))


def update_followers(graph: m.Graph, recopy: Collection[str] = ()) -> None:
    """Append all changes made so far to the logs of followed files and tables; copy the tables `recopy` again.

    Raise InputError if no source follows one of these tables.
    """
    found = followers(graph).values()
    tables = [table for follower in found for table in follower.tables]
    if unknown := [table for table in recopy if table not in tables]:
        given = f"the tables are {', '.join(tables)}" if tables else "the pipeline follows no table"
        msg = f"the table {unknown[0]!r} cannot be copied again, as no source follows it: {given}"
        raise InputError(msg)
    for follower in found:
        if any(table in recopy for table in follower.tables):
            follower.recopy()
        else:
            follower.update()


def partition_finders(graph: m.Graph) -> list[tuple[str, Callable[[], list[int]]]]:
    """Return the name of each log, paired with a function that looks up its partitions.

    References to secrets are resolved beforehand, so the function can be sent to another process that does not have
    their environment. Raise InputError for a reference that cannot be resolved, or for an invalid option.
    """
    found: list[tuple[str, Callable[[], list[int]]]] = []
    for node in graph.sources:
        source = node.source.records
        log, finder = open_source(source), source_connector(source).finder
        found.append((log.name, load(finder)(source) if finder else log.partitions))
    return found
