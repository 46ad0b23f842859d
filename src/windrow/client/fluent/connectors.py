"""Sources, which begin a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Literal

from windrow import model as m
from windrow.client.arguments import checked
from windrow.client.fluent.streams import Stream
from windrow.declare.arguments import field_names
from windrow.errors import PipelineError


@checked
def log(path: str | PathLike[str], *, format: m.TextFormat = "json") -> Stream:  # noqa: A002 - the setting's name
    """Read an embedded log: a folder with ``partition-0.jsonl``, ``partition-1.jsonl`` ...

    Records are JSON objects, or with ``format="debezium"`` row changes in Debezium's envelope.
    """
    return Stream(m.LogSource(fspath(path), format))


@checked
def files(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    format: m.FilesFormat = "json",  # noqa: A002 - the setting's name
    header: bool = True,
) -> Stream:
    """Read files that do not change once written, in the order of their names: JSON lines, CSV or ``.parquet``.

    Args:
        path: a glob pattern, ``data/**/*.jsonl``; each of several patterns is a separate partition.
        format: as for `log`, or `csv`.
        header: whether the first line of a CSV file names its columns.
    """
    paths = (path,) if isinstance(path, str | PathLike) else path
    return Stream(m.FilesSource(tuple(fspath(path) for path in paths), format, header))


@checked
def file(path: str | PathLike[str], *, key: str | Sequence[str], log: str | PathLike[str]) -> Stream:
    """Read a table in a CSV or JSON lines file; its name ends in .csv, .jsonl or .ndjson.

    Changes to its rows, which the fields `key` identify, are appended to the embedded log `log`, and read from there.
    """
    return Stream(m.FileSource(fspath(path), field_names(key), fspath(log)))


@checked
def postgres_cdc(
    url: str,
    *,
    table: str | None = None,
    tables: str | Sequence[str] = (),
    log: str | PathLike[str] | None = None,
    servers: str | None = None,
    topic: str | None = None,
    options: Mapping[str, str] | None = None,
    key: str | Sequence[str] = (),
    slot: str | None = None,
    publication: str | None = None,
) -> Stream:
    """Read a table of a PostgreSQL database and its changes by logical replication.

    Records are row changes in Debezium's envelope. They are kept in an embedded log or a Kafka topic; give either.

    Args:
        url: the address; what it lacks comes from libpq's environment (PGPASSWORD ...).
        table: the name of the table, as in SQL.
        tables: those of several tables instead, whose changes are kept in one log; see `Named.changes`.
        log: the folder of the log.
        servers: the brokers of the topic.
        topic: created if it does not exist.
        options: settings of librdkafka for the topic, as for `kafka`.
        key: the columns that identify a row; by default, the primary key.
        slot: the replication slot, which is created; by default, its name begins with ``windrow_``.
        publication: a publication that includes the table; by default, one is created.
    """
    into: m.LogSource | m.KafkaSource
    if log is not None and servers is None and topic is None and not options:
        into = m.LogSource(fspath(log))
    elif log is None and servers is not None and topic is not None:
        into = m.KafkaSource(servers, topic, options=tuple((options or {}).items()))
    else:
        msg = "source.postgres_cdc: give either `log`, or `servers` and `topic`"
        raise PipelineError(msg)
    if (table is None) == (not tables):
        msg = "source.postgres_cdc: give either `table` or `tables`"
        raise PipelineError(msg)
    return Stream(m.PostgresCdcSource(url, table or "", into, field_names(key), slot, publication, field_names(tables)))


@checked
def kafka(
    topic: str,
    *,
    servers: str,
    start: Literal["earliest", "latest"] = "earliest",
    options: Mapping[str, str] | None = None,
    group: str | None = None,
    format: m.RecordFormat = "json",  # noqa: A002 - the setting's name
    key_format: m.KeyFormat | None = None,
) -> Stream:
    """Read a Kafka topic; `options` are passed to the consumer unchanged (``{"security.protocol": "SSL"}``).

    A run commits its offsets to the consumer group `group`, so that tools can show its lag, but never starts from them.
    `format` is as for `log`, or `avro`, `protobuf`, `json_schema` or `csv`. `key_format` is the format of the keys:
    ``"text"``, ``"json"``, ``"binary"``, or one with a schema; by default, their bytes tell it.
    """
    return Stream(m.KafkaSource(servers, topic, start, tuple((options or {}).items()), group, format, key_format))
