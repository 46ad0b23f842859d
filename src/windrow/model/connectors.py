"""Sources and sinks."""

from __future__ import annotations

import glob
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from windrow.model.formats import FilesFormat, RecordFormat, TextFormat


@dataclass(frozen=True)
class Source:
    """A partitioned log. A kind has the name of its `section` in YAML, and a `place` where people find it."""

    section: ClassVar[str]
    if TYPE_CHECKING:

        @property
        def format(self) -> RecordFormat | FilesFormat:
            """What its records are."""

        @property
        def place(self) -> str:
            """Where people find it."""

    @property
    def folder(self) -> str | None:
        """The folder of the embedded log that is read, None if it is none."""
        return None

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal."""
        return self.section

    @property
    def records(self) -> Source:
        """The log that is read: this one."""
        return self

    @property
    def decoded(self) -> Source:
        """The log of records that are decoded already."""
        found: Any = self.records
        return replace(found, format="json")  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FollowedSource(Source):
    """A source whose changes a run appends to a log, its `records`, which is all that is read of it."""


@dataclass(frozen=True)
class LogSource(Source):
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


@dataclass(frozen=True)
class KafkaSource(Source):
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

    @property
    def place(self) -> str:
        """The topic and its brokers."""
        return f"{self.topic} at {self.servers}"

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal."""
        return self.topic


@dataclass(frozen=True)
class FilesSource(Source):
    """Files that others write once: JSON lines, CSV or Parquet, whose names match glob patterns.

    Each pattern in `path` is a partition: the records of its files, file after file in the order of their names; the
    offset is the record's number from 0. A file is Parquet if its name ends in ``.parquet``, else text in `format`. The
    first line of a CSV file is its `header`, if it has one.
    """

    path: tuple[str, ...]
    format: FilesFormat = "json"
    header: bool = True
    section: ClassVar[str] = "files"

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


def split_pattern(path: str) -> tuple[str, str]:
    """Return the folder that all files of a glob pattern are in, and the pattern within it; of a file, its name."""
    parts = PurePath(path).parts
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), max(0, len(parts) - 1))
    return str(PurePath(*parts[:fixed])), "/".join(parts[fixed:])


@dataclass(frozen=True)
class FileSource(FollowedSource):
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

    @property
    def decoded(self) -> FileSource:
        """The file, whose records in the log are decoded as they are."""
        return self


@dataclass(frozen=True)
class PostgresCdcSource(FollowedSource):
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


OWN_GROUPS = "windrow-"
"""What the names of consumer groups begin with that windrow itself uses, and reads from."""
LOG_TIME, DELETED, MORE = "_log_time", "_deleted", "_more"
"""The fields of an embedded log's record that hold its log timestamp, and of the row of a file, whether it was deleted,
and whether more records of the same reading follow."""
Companion = Literal["late", "dead", "clocks"]
"""What is beside a sink's own table or topic."""


@dataclass(frozen=True)
class Sink:
    """Where rows are written. A kind has the name of its `section` in YAML.

    A pipeline that has no other name is called after its `table`. `system` is what OpenTelemetry's conventions call its
    software (``db.system.name``, ``messaging.system``). Unless a step `is_one_transaction`, each table has its own.
    """

    section: ClassVar[str]
    system: ClassVar[str]
    is_one_transaction: ClassVar[bool] = True
    if TYPE_CHECKING:

        @property
        def table(self) -> str:
            """The result table."""

        @property
        def key(self) -> tuple[str, ...]:
            """The primary key of the result table, empty for the natural one."""

        @property
        def changelog(self) -> bool:
            """Whether the table of changes is written."""

        @property
        def place(self) -> str:
            """Where people find it."""

    @property
    def database(self) -> Sink:
        """The sink without what is of one of its tables alone: it is equal for all tables of a database."""
        return self

    def into(self, table: str) -> Self:
        """Return a sink that writes another table of the same database, which has no outbox, or another topic."""
        found: Any = self
        return replace(found, table=table)  # type: ignore[no-any-return]

    def companion(self, name: Companion) -> str:
        """Return the name of what is beside the table: late output, dead letters or the clock journal."""
        return f"{self.table}_{name}"

    @property
    def reasons(self) -> str:
        """Where the reasons of dead letters are, in words."""
        return f"the column `reason` of the table {self.companion('dead')}"


@dataclass(frozen=True)
class TableSink(Sink):
    """A sink with a table of results; the others hold changes alone."""

    @property
    def database(self) -> Sink:
        """The sink without what is of one of its tables alone."""
        found: Any = self
        return replace(found, table="", key=(), changelog=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FolderSink(Sink):
    """Files of changes in a folder, in the folder of the table's name; without a table of results."""

    path: str
    table: str
    key: ClassVar[tuple[str, ...]] = ()
    changelog: ClassVar[bool] = True

    @property
    def place(self) -> str:
        """The folder."""
        return self.path


@dataclass(frozen=True)
class SqliteSink(TableSink):
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
class PostgresSink(TableSink):
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

    @property
    def database(self) -> Sink:
        """The database alone."""
        return PostgresSink(self.url, "")

    def into(self, table: str) -> Self:
        """Return a sink that writes another table, which has no outbox."""
        return replace(self, table=table, outbox=False)


@dataclass(frozen=True)
class KafkaSink(Sink):
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

    @property
    def database(self) -> Sink:
        """The brokers, with the options of the producer."""
        return replace(self, topic="", commit=0, format="json")

    def into(self, table: str) -> Self:
        """Return a sink that writes another topic."""
        return replace(self, topic=table)

    def companion(self, name: Companion) -> str:
        """Return the topic beside it."""
        return f"{self.topic}.{name}"

    @property
    def reasons(self) -> str:
        """Where the reasons of dead letters are, in words."""
        return f"the field `reason` in the topic {self.companion('dead')}"
