"""Sources and sinks."""

from __future__ import annotations

import glob
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import ClassVar, Literal

from windrow.model.formats import FilesFormat, RecordFormat, TextFormat


@dataclass(frozen=True)
class LogSource:
    """An embedded log: a folder with ``partition-N.jsonl``; the offset is the line's number from 0."""

    path: str
    format: TextFormat = "json"
    section: ClassVar[str] = "log"

    @property
    def place(self) -> str:
        """The folder."""
        return self.path

    @property
    def folder(self) -> str:
        """The folder of the embedded log."""
        return self.path

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal."""
        return PurePath(self.path).name

    @property
    def records(self) -> LogSource:
        """The log that is read: this one."""
        return self


@dataclass(frozen=True)
class KafkaSource:
    """A Kafka topic; `options` go to the consumer as they are (``security.protocol`` ...).

    The offsets that were read are committed to the consumer group `group`, which nothing is read from.
    """

    servers: str
    topic: str
    start: Literal["earliest", "latest"] = "earliest"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    group: str | None = None
    format: RecordFormat = "json"
    section: ClassVar[str] = "kafka"
    folder: ClassVar[None] = None

    @property
    def place(self) -> str:
        """The topic and its brokers."""
        return f"{self.topic} at {self.servers}"

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal."""
        return self.topic

    @property
    def records(self) -> KafkaSource:
        """The log that is read: this one."""
        return self


@dataclass(frozen=True)
class FilesSource:
    """Files that others write once: JSON lines, CSV or Parquet, whose names match glob patterns.

    Each pattern in `path` is a partition: the records of its files, file after file in the order of their names; the
    offset is the record's number from 0. A file is Parquet if its name ends in ``.parquet``, else text in `format`. The
    first line of a CSV file is its `header`, if it has one.
    """

    path: tuple[str, ...]
    format: FilesFormat = "json"
    header: bool = True
    section: ClassVar[str] = "files"
    folder: ClassVar[None] = None

    @property
    def place(self) -> str:
        """The patterns."""
        return ", ".join(self.path)

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal: that of the folder."""
        return PurePath(self.root).name or self.section

    @property
    def root(self) -> str:
        """The folder that has all files of the first partition."""
        return split_pattern(self.path[0])[0] if self.path else ""

    @property
    def records(self) -> FilesSource:
        """The log that is read: these files."""
        return self


def split_pattern(path: str) -> tuple[str, str]:
    """Return the folder that all files of a glob pattern are in, and the pattern within it; of a file, its name."""
    parts = PurePath(path).parts
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), max(0, len(parts) - 1))
    return str(PurePath(*parts[:fixed])), "/".join(parts[fixed:])


@dataclass(frozen=True)
class FileSource:
    """A table in a file, whose changes by `key` are appended to the embedded log in the folder `log`, and read there.

    The file is CSV or JSON lines, by the ending of its name.
    """

    path: str
    key: tuple[str, ...]
    log: str
    format: ClassVar[TextFormat] = "json"
    section: ClassVar[str] = "file"

    @property
    def place(self) -> str:
        """The file."""
        return self.path

    @property
    def folder(self) -> str:
        """The folder of the embedded log with the changes."""
        return self.log

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal."""
        return self.records.label

    @property
    def records(self) -> LogSource:
        """The log that is read: the embedded log."""
        return LogSource(self.log, self.format)


@dataclass(frozen=True)
class PostgresCdcSource:
    """A table of a PostgreSQL database, whose changes are appended to the embedded log or the topic `into`.

    `table` may name its schema. An update that changes one of the columns `key` (empty: the primary key) is a deletion
    and an insertion. `slot` is the replication slot and `publication` the publication that has the table; windrow
    creates them, with names of its own where none is given.
    """

    url: str = field(repr=False)
    table: str
    into: LogSource | KafkaSource
    key: tuple[str, ...] = ()
    slot: str | None = None
    publication: str | None = None
    format: ClassVar[TextFormat] = "debezium"
    section: ClassVar[str] = "postgres_cdc"

    @property
    def place(self) -> str:
        """The table, and the URL of its database."""
        return f"{self.table} at {self.url}"

    @property
    def folder(self) -> str | None:
        """The folder of the embedded log with the changes; None if they are in a topic."""
        return self.into.folder

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal."""
        return self.into.label

    @property
    def records(self) -> LogSource | KafkaSource:
        """The log that is read: the embedded log or the topic with the changes."""
        return replace(self.into, format=self.format)


FollowedSource = FileSource | PostgresCdcSource
"""A source whose changes a run appends to a log, its `records`, which is all that is read of it."""
Source = LogSource | FilesSource | KafkaSource | FollowedSource
"""A kind has the name of its `section` in YAML, a `place` where people find it, and a log with its `records`."""
OWN_GROUPS = "windrow-"
"""What the names of consumer groups begin with that windrow itself uses, and reads from."""
LOG_TIME, DELETED, MORE = "_log_time", "_deleted", "_more"
"""The fields of an embedded log's record that hold its log timestamp, and of the row of a file, whether it was deleted,
and whether more records of the same reading follow."""


@dataclass(frozen=True)
class SqliteSink:
    """Tables in an SQLite file.

    `key` is the result table's primary key; empty, it is window_start, window_end and the pipeline's key. NUMERIC
    columns hold 15 digits: `decimals` ``text`` keeps more. Without `changelog` the table of changes stays empty.
    """

    path: str
    table: str
    key: tuple[str, ...] = ()
    decimals: Literal["numeric", "text"] = "numeric"
    changelog: bool = True
    section: ClassVar[str] = "sqlite"
    system: ClassVar[str] = "sqlite"

    @property
    def place(self) -> str:
        """The file."""
        return self.path


@dataclass(frozen=True)
class DuckDBSink:
    """Tables in a DuckDB file."""

    path: str
    table: str
    key: tuple[str, ...] = ()
    changelog: bool = True
    section: ClassVar[str] = "duckdb"
    system: ClassVar[str] = "duckdb"

    @property
    def place(self) -> str:
        """The file."""
        return self.path


@dataclass(frozen=True)
class PostgresSink:
    """Tables in a PostgreSQL database; what `url` leaves out comes from libpq's environment (PGPASSWORD ...).

    With `outbox` each change is also a row of the outbox table, until a relay has sent it.
    """

    url: str = field(repr=False)
    table: str
    key: tuple[str, ...] = ()
    changelog: bool = True
    outbox: bool = False
    section: ClassVar[str] = "postgres"
    system: ClassVar[str] = "postgresql"

    @property
    def place(self) -> str:
        """The URL of the database."""
        return self.url


@dataclass(frozen=True)
class DeltaSink:
    """Delta tables in a folder: each in the folder of its name within."""

    path: str
    table: str
    key: tuple[str, ...] = ()
    changelog: bool = True
    section: ClassVar[str] = "delta"
    system: ClassVar[str] = "delta"

    @property
    def place(self) -> str:
        """The folder."""
        return self.path


@dataclass(frozen=True)
class KafkaSink:
    """A Kafka topic of changes by the key of their row: a JSON object, or with `format` debezium Debezium's envelope.

    The realtime host commits a transaction every `commit` microseconds at most, others with each step. `options` go to
    the producer as they are; the realtime host takes those of its source.
    """

    servers: str
    topic: str
    commit: int = 10_000
    format: RecordFormat = "json"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    section: ClassVar[str] = "kafka"
    system: ClassVar[str] = "kafka"

    @property
    def place(self) -> str:
        """The brokers."""
        return self.servers

    @property
    def table(self) -> str:
        """The topic: what its pipeline is called if it has no other name."""
        return self.topic

    @property
    def key(self) -> tuple[str, ...]:
        """Empty: the key of a record is that of its row."""
        return ()

    @property
    def changelog(self) -> bool:
        """True: the topic is the changelog."""
        return True


@dataclass(frozen=True)
class ParquetSink:
    """Parquet files of changes in a folder: ``PATH/TABLE/step-N/changes.parquet``, a folder for each step."""

    path: str
    table: str
    section: ClassVar[str] = "parquet"
    system: ClassVar[str] = "parquet"
    key: ClassVar[tuple[str, ...]] = ()
    changelog: ClassVar[bool] = True

    @property
    def place(self) -> str:
        """The folder."""
        return self.path


TableSink = SqliteSink | DuckDBSink | PostgresSink | DeltaSink
"""Sinks with a table of results; the others hold changes alone."""
Sink = TableSink | KafkaSink | ParquetSink
"""As sources; its `system` is what OpenTelemetry's conventions call it (``db.system.name``, ``messaging.system``)."""


def database_of(sink: Sink) -> Sink:
    """Return a sink without what is of one of its tables alone: it is equal for all tables of a database.

    Folders of Parquet files have nothing in common.
    """
    match sink:
        case KafkaSink():
            return replace(sink, topic="", commit=0, format="json")
        case PostgresSink():
            return PostgresSink(sink.url, "")
        case ParquetSink():
            return sink
        case _:
            return replace(sink, table="", key=(), changelog=True)


def with_table(sink: Sink, table: str) -> Sink:
    """Return a sink that writes another table of the same database, which has no outbox, or another topic."""
    match sink:
        case KafkaSink():
            return replace(sink, topic=table)
        case PostgresSink():
            return replace(sink, table=table, outbox=False)
        case _:
            return replace(sink, table=table)


def companion(sink: Sink, name: Literal["late", "dead", "clocks"]) -> str:
    """Return the name of what is beside a sink's own table or topic: late output, dead letters or the clock journal."""
    match sink:
        case KafkaSink():
            return f"{sink.topic}.{name}"
        case ParquetSink():
            return f"{sink.table}/*/{name}.parquet"
        case _:
            return f"{sink.table}_{name}"
