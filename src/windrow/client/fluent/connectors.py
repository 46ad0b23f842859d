"""Sources, which begin a stream, and sinks, the argument of `to`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Literal

from windrow.client.arguments import checked
from windrow.client.fluent.streams import Stream
from windrow.client.fluent.windows import Duration, duration_micros
from windrow.errors import PipelineError
from windrow.model import (
    DeltaSink,
    DuckDBSink,
    FilesFormat,
    FileSource,
    FilesSource,
    KafkaSink,
    KafkaSource,
    LogSource,
    ParquetSink,
    PostgresCdcSource,
    PostgresSink,
    RecordFormat,
    SqliteSink,
    TextFormat,
)


@checked
def log(path: str | PathLike[str], *, format: TextFormat = "json") -> Stream:  # noqa: A002 - the setting's name
    """Read an embedded log: a folder with ``partition-0.jsonl``, ``partition-1.jsonl`` ...

    `format` is what its records are: JSON objects, or ``"debezium"``: changes of rows in Debezium's envelope.
    """
    return Stream(LogSource(fspath(path), format))


@checked
def files(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    format: FilesFormat = "json",  # noqa: A002 - the setting's name
    header: bool = True,
) -> Stream:
    """Read files that others write once, in the order of their names: JSON lines, CSV or Parquet (``.parquet``).

    Args:
        path: a glob pattern, ``data/**/*.jsonl``; each of several is a partition of its own.
        format: what lines of text are: JSON objects, ``"debezium"``: changes of rows in Debezium's envelope, or `csv`.
        header: whether the first line of a CSV file names its columns.
    """
    paths = (path,) if isinstance(path, str | PathLike) else path
    return Stream(FilesSource(tuple(fspath(one) for one in paths), format, header))


@checked
def file(path: str | PathLike[str], *, key: str | Sequence[str], log: str | PathLike[str]) -> Stream:
    """Read a table in a CSV or JSON lines file, whose changes by `key` are appended to an embedded log, and read there.

    Args:
        path: the file, whose name ends in .csv, .jsonl or .ndjson.
        key: the field or fields by which the file has at most one row.
        log: the folder of the log.
    """
    return Stream(FileSource(fspath(path), _key_names(key), fspath(log)))


@checked
def postgres_cdc(
    url: str,
    *,
    table: str,
    log: str | PathLike[str] | None = None,
    servers: str | None = None,
    topic: str | None = None,
    options: Mapping[str, str] | None = None,
    key: str | Sequence[str] = (),
    slot: str | None = None,
    publication: str | None = None,
) -> Stream:
    """Read a table of a PostgreSQL database and its changes by logical replication.

    They are kept in the embedded log `log`, or in the Kafka topic `topic`. Records are changes of rows in Debezium's
    envelope. Raise PipelineError unless one of the two is given.

    Args:
        url: the address of the database; what it leaves out comes from libpq's environment (PGPASSWORD ...).
        table: the table, as SQL names it.
        log: the folder of the log.
        servers: the brokers of the topic.
        topic: the topic, which is created if it does not exist.
        options: what librdkafka is given to read and write the topic (``{"security.protocol": "SSL"}``).
        key: the columns that identify a row; left out, the primary key.
        slot: the name of the replication slot, which is created; left out, one that begins with ``windrow_``.
        publication: a publication that has the table; left out, one is created.
    """
    into: LogSource | KafkaSource
    if log is not None and servers is None and topic is None and not options:
        into = LogSource(fspath(log))
    elif log is None and servers is not None and topic is not None:
        into = KafkaSource(servers, topic, options=tuple((options or {}).items()))
    else:
        msg = "source.postgres_cdc: give either `log`, or `servers` and `topic`"
        raise PipelineError(msg)
    return Stream(PostgresCdcSource(url, table, into, _key_names(key), slot, publication))


@checked
def kafka(
    topic: str,
    *,
    servers: str,
    start: Literal["earliest", "latest"] = "earliest",
    options: Mapping[str, str] | None = None,
    group: str | None = None,
    format: RecordFormat = "json",  # noqa: A002 - the setting's name
) -> Stream:
    """Read a Kafka topic; `options` go to the consumer as they are (``{"security.protocol": "SSL"}``).

    The offsets that were read are committed to the consumer group `group`, for tools that show its lag; a run never
    reads from it. `format` is what the records are: JSON objects, ``"debezium"``: changes of rows in Debezium's
    envelope, or `avro`, `protobuf` or `csv`.
    """
    return Stream(KafkaSource(servers, topic, start, tuple((options or {}).items()), group, format))


@checked
def sqlite(
    path: str | PathLike[str],
    *,
    table: str,
    key: Sequence[str] = (),
    decimals: Literal["numeric", "text"] = "numeric",
    changelog: bool = True,
) -> SqliteSink:
    """Write to tables of an SQLite file: `table`, and beside it its changelog, late output, dead letters and clocks.

    `key` is the table's primary key (left out: the window and the pipeline's key). SQLite's NUMERIC keeps 15 digits of
    a decimal; ``decimals="text"`` keeps all. With ``changelog=False`` the table of changes stays empty.
    """
    return SqliteSink(fspath(path), table, _key_names(key), decimals, changelog)


@checked
def duckdb(path: str | PathLike[str], *, table: str, key: Sequence[str] = (), changelog: bool = True) -> DuckDBSink:
    """Write to tables of a DuckDB file: `table`, and beside it its changelog, late output, dead letters and clocks.

    `key` is what rows are replaced by (left out: the window and the pipeline's key). With ``changelog=False`` the table
    of changes stays empty.
    """
    return DuckDBSink(fspath(path), table, _key_names(key), changelog)


@checked
def postgres(
    url: str, *, table: str, key: Sequence[str] = (), changelog: bool = True, outbox: bool = False
) -> PostgresSink:
    """Write to tables of a PostgreSQL database; what `url` leaves out comes from libpq's environment (PGPASSWORD ...).

    The table is in the schema that the url's search_path names first; `key` is its primary key (left out: window and
    pipeline's key). With ``changelog=False`` the table of changes stays empty; with ``outbox=True`` each change is also
    in the table ``T_outbox``, from which ``windrow relay`` sends it on.
    """
    return PostgresSink(url, table, _key_names(key), changelog, outbox)


@checked
def delta(path: str | PathLike[str], *, table: str, key: Sequence[str] = (), changelog: bool = True) -> DeltaSink:
    """Write to Delta tables in a folder: `table`, and beside it its changelog, late output, dead letters and clocks.

    `key` is what rows are merged by (left out: the window and the pipeline's key). With ``changelog=False`` the table
    of changes stays empty. Needs ``pip install 'windrow[delta]'``.
    """
    return DeltaSink(fspath(path), table, _key_names(key), changelog)


@checked
def parquet(path: str | PathLike[str], *, table: str) -> ParquetSink:
    """Write changes to Parquet files in a folder: ``PATH/TABLE/step-N/changes.parquet``, a folder for each step.

    Beside it are ``late.parquet``, ``dead.parquet`` and ``clocks.parquet``, where a step has such rows.
    """
    return ParquetSink(fspath(path), table)


@checked
def kafka_sink(
    topic: str,
    *,
    servers: str,
    commit: Duration = "10ms",
    format: RecordFormat = "json",  # noqa: A002 - the setting's name
    options: Mapping[str, str] | None = None,
) -> KafkaSink:
    """Write changes to a Kafka topic, each step in a transaction; with ``mode="realtime"`` one every `commit`.

    The topic is created if it does not exist; beside it are ``TOPIC.late``, ``TOPIC.dead`` and ``TOPIC.clocks``. A
    change is a JSON object, or with `format` ``"debezium"`` a change event in Debezium's envelope. `options` go to the
    producer as they are (``{"security.protocol": "SSL"}``); with ``mode="realtime"`` those of the source hold.
    """
    micros = duration_micros(commit, "sink.kafka.commit")
    return KafkaSink(servers, topic, micros, format, tuple((options or {}).items()))


def _key_names(key: Sequence[str]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)
