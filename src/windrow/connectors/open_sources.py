"""Connectors that read: the embedded log, files, and Kafka, also of a file or of a table of a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from windrow.connectors.source import Appender, Follower, Source
from windrow.engine.lists import with_entries
from windrow.errors import InputError
from windrow.expressions import table_keys
from windrow.model import (
    FileSource,
    FilesSource,
    Graph,
    KafkaSource,
    LogSource,
    PostgresCdcSource,
    TopicList,
)
from windrow.model import Source as SourceModel


def open_source(source: SourceModel) -> Source:
    """Return the connector of a pipeline's source; nothing is read or reached before its methods are called."""
    match source.records:
        case LogSource() as log:
            from windrow.connectors.log.source import EmbeddedLog  # noqa: PLC0415 - Arrow only when a source is opened

            return EmbeddedLog(log)
        case FilesSource() as files:
            from windrow.connectors.files.source import OrderedFiles  # noqa: PLC0415 - as above

            return OrderedFiles(files)
        case KafkaSource() as topic:
            from windrow.connectors.kafka.source import KafkaTopic  # noqa: PLC0415 - the same

            return KafkaTopic(topic)
        case unknown:
            assert_never(unknown)


def open_appender(source: SourceModel, identity: str, prefix: bytes) -> Appender:
    """Return what appends to a log records that begin with `prefix`; raise InputError where others write the log."""
    match source:
        case LogSource(path=path):
            from windrow.connectors.log.append import LogAppender  # noqa: PLC0415 - Arrow only when a source is opened

            return LogAppender(path, prefix)
        case FilesSource():
            msg = f"the files {source.place} are not windrow's to write: put the corrected records into a new file"
            raise InputError(msg)
        case FileSource(log=log):
            msg = f"the log {log} is written by the run that follows {source.path}: change the file"
            raise InputError(msg)
        case PostgresCdcSource(table=table):
            msg = f"{source.label} is written by the run that follows {table}: change the row in the database"
            raise InputError(msg)
        case KafkaSource():
            from windrow.connectors.kafka.append import KafkaAppender  # noqa: PLC0415 - the same

            return KafkaAppender(source, identity)
        case _:
            assert_never(source)


def open_sources(graph: Graph) -> Source:
    """Return the connector of all sources of a pipeline, as one log."""
    first, *others = graph.sources
    if not others:
        return open_source(first.source)
    from windrow.connectors.several import SeveralLogs  # noqa: PLC0415 - Arrow only when a source is opened

    return SeveralLogs({one.name: open_source(one.source) for one in (first, *others)})


def with_lists(graph: Graph, on_warning: Callable[[str], None]) -> Graph:
    """Return a pipeline with the entries of its lists in it, also of those in topics, as of their ends.

    `on_warning` is called with the place of a key that cannot be an entry. Raise InputError for a list that cannot be
    read, SourceError for a topic.
    """

    def read_topic(one: TopicList) -> frozenset[str]:
        from windrow.connectors.kafka.lists import read_list  # noqa: PLC0415 - librdkafka only for a topic

        source = graph.sources[0].source
        if not isinstance(source, KafkaSource):
            msg = f"the list {one.name!r} is at the brokers of the source, which is not Kafka"
            raise InputError(msg)
        found = read_list(one, source)
        if found.warning is not None:
            on_warning(found.warning)
        return found.entries

    return with_entries(graph, read_topic)


def followers(graph: Graph) -> dict[str, Follower]:
    """Return by source what appends the changes of files and tables to the logs that a run reads of them."""
    found: dict[str, Follower] = {}
    for node in graph.sources:
        match node.source:
            case FileSource():
                from windrow.connectors.file.source import FollowedFile  # noqa: PLC0415 - Arrow only where there is a file

                found[node.name] = FollowedFile(node.source, node.decode)
            case PostgresCdcSource():
                from windrow.connectors.postgres.cdc.follow import FollowedTable  # noqa: PLC0415 - psycopg only where it is used

                keys = table_keys(graph, node)
                given = [one for one in node.decode.fields if one.name in keys and not one.path]
                found[node.name] = FollowedTable(node.source, [(one.name, *one.alias) for one in given])
            case LogSource() | FilesSource() | KafkaSource():
                pass
            case _:
                assert_never(node.source)
    return found


def partition_finders(graph: Graph) -> list[tuple[str, Callable[[], list[int]]]]:
    """Return the name of each log, and a function that finds its partitions.

    The function can be sent to another process, which needs no environment for it: references to secrets are resolved.
    Raise InputError for one that leads nowhere, and for an option that is wrong.
    """
    found: list[tuple[str, Callable[[], list[int]]]] = []
    for node in graph.sources:
        match node.source.records:
            case LogSource() | FilesSource() as source:
                log = open_source(source)
                found.append((log.name, log.partitions))
            case KafkaSource() as source:
                from windrow.connectors.kafka.source import partition_finder  # noqa: PLC0415 - as above

                found.append((source.topic, partition_finder(source)))
            case unknown:
                assert_never(unknown)
    return found
