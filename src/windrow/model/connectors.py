"""Sources and sinks."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from urllib.parse import unquote

from windrow.errors import PipelineError
from windrow.model.formats import (
    ChangeFormat,
    FilesFormat,
    KeyFormat,
    RecordFormat,
    Registry,
    SchemaFormat,
    TextFormat,
)

LOG_TIME, DELETED, MORE = "_log_time", "_deleted", "_more"
"""Fields of an embedded log's record: its log timestamp; for a row of a file also whether the row was deleted, and
whether more records of the same reading follow."""
KEY, PARTITION, OFFSET, HEADERS = "_key", "_partition", "_offset", "_headers"
"""Fields that a record has outside its value, unless the value has them; in an embedded log, its key and log timestamp
are in its line."""
VALUE = "_value"
"""The member of a tombstone's line in an embedded log that is null."""


@dataclass(frozen=True)
class Source:
    """A partitioned log. `section` is its kind, as a YAML key; `place` is its address, as shown to users."""

    section: ClassVar[str]
    if TYPE_CHECKING:

        @property
        def format(self) -> RecordFormat | FilesFormat:
            """The format of its records."""

        @property
        def place(self) -> str:
            """Its address, as shown to users."""

    @property
    def folder(self) -> str | None:
        """The folder of the embedded log that is read; None if it is not an embedded log."""
        return None

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal."""
        return self.section

    @property
    def records(self) -> Source:
        """The log that is read."""
        return self

    @property
    def outside(self) -> frozenset[str]:
        """The names of fields that records have outside their values."""
        more = {KEY, LOG_TIME, HEADERS} if isinstance(self.records, KafkaSource) else set()
        return frozenset({PARTITION, OFFSET, *more})

    @property
    def decoded(self) -> Source:
        """The same source, with records that are already decoded."""
        found: Any = self.records
        return replace(found, format="json")  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FollowedSource(Source):
    """A source whose changes a run appends to the log `records`; pipelines read only that log."""


@dataclass(frozen=True)
class LogSource(Source):
    """An embedded log: a folder with ``partition-N.jsonl``; an offset is the number of a line, from 0."""

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


def _registries(**formats: object) -> dict[str, Registry]:
    """Return the schema registries of some settings of a topic."""
    return {
        f"{setting}.{given.section}.registry": given.schema
        for setting, given in formats.items()
        if isinstance(given, SchemaFormat) and isinstance(given.schema, Registry)
    }


@dataclass(frozen=True)
class KafkaSource(Source):
    """A Kafka topic; `options` are passed to the consumer unchanged (``security.protocol`` ...).

    Offsets are committed to the consumer group `group` for monitoring only; a run never resumes from them. If
    `key_format` is None, the bytes of each key tell its format.
    """

    servers: str
    topic: str
    start: Literal["earliest", "latest"] = "earliest"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    group: str | None = None
    format: RecordFormat = "json"
    key_format: KeyFormat | None = None
    section: ClassVar[str] = "kafka"

    @property
    def registries(self) -> dict[str, Registry]:
        """The schema registries, by the setting that has them."""
        return _registries(format=self.format, key_format=self.key_format)

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
    """Files that do not change once written: JSON lines, CSV or Parquet, whose names match glob patterns.

    Each pattern in `path` is a partition. Its records are those of its files, in the order of the files' names; an
    offset is the number of a record, from 0. A file is Parquet if its name ends in ``.parquet``; otherwise it is text
    in `format`. `header` says whether the first line of a CSV file has the names of its columns.
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
        """The name of the source in the late output, the dead letters and the clock journal: its folder's name."""
        return PurePath(self.root).name or self.section

    @property
    def root(self) -> str:
        """The folder that contains all files of the first partition."""
        return split_pattern(self.path[0])[0] if self.path else ""

    def folder_fields(self, partition: int, name: str) -> dict[str, str | None]:
        """Return the fields that the records of a file have from its folders; `name` is relative to its pattern's root.

        A folder ``key=value`` is a field with a text, as Spark and Hive write it: percent-encoded, and with a word of
        its own for null.
        """
        root = split_pattern(self.path[partition])[0] if partition < len(self.path) else ""
        found: dict[str, str | None] = {}
        for part in (*PurePath(root).parts, *name.split("/")[:-1]):
            key, is_field, value = part.partition("=")
            if is_field and key:
                found[_decoded(key)] = None if value in {"", HIVE_NULL} else _decoded(value)
        return found


HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def split_pattern(path: str) -> tuple[str, str]:
    """Return the deepest folder above all files of a glob pattern, and the pattern (or file name) within it."""
    parts = PurePath(path).parts
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), max(0, len(parts) - 1))
    return str(PurePath(*parts[:fixed])), "/".join(parts[fixed:])


@dataclass(frozen=True)
class FileSource(FollowedSource):
    """A table in a CSV or JSON lines file; the extension of its name determines which.

    The changes to its rows, which `key` identifies, are appended to the embedded log in the folder `log`. Pipelines
    read that log.
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
        """The embedded log from which records are read."""
        return LogSource(self.log, self.format)

    @property
    def decoded(self) -> FileSource:
        """This source, because its records in the log need no decoding."""
        return self


@dataclass(frozen=True)
class PostgresCdcSource(FollowedSource):
    """A table of a PostgreSQL database; its changes are appended to the embedded log or the topic `into`.

    `table` may include the schema. It is empty if the source has several `tables`, whose changes are in one log. An
    update that changes one of the columns `key` (empty: the primary key) becomes a deletion and an insertion. `slot` is
    the replication slot and `publication` the publication of the tables; if they are not set, windrow creates them
    under generated names.
    """

    url: str = field(repr=False)
    table: str
    into: LogSource | KafkaSource
    key: tuple[str, ...] = ()
    slot: str | None = None
    publication: str | None = None
    tables: tuple[str, ...] = ()
    format: ClassVar[TextFormat] = "debezium"
    section: ClassVar[str] = "postgres_cdc"

    @property
    def place(self) -> str:
        """The table or tables, and the URL of their database."""
        return f"{', '.join(self.names)} at {self.url}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the table or tables, as SQL names them."""
        return self.tables or (self.table,)

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
        """The embedded log or the topic with the changes, from which records are read."""
        return replace(self.into, format=self.format)


_TABLE_NAME = re.compile(r'\s*(?:(?:"((?:[^"]|"")+)"|([\w$]+))\s*\.\s*)?(?:"((?:[^"]|"")+)"|([\w$]+))\s*')


def table_name(text: str) -> tuple[str | None, str]:
    """Return the schema, if it is given, and the name of a table as SQL names it; raise PipelineError otherwise.

    As in PostgreSQL, names without quotes are in lower case.
    """
    found = _TABLE_NAME.fullmatch(text)
    if found is None:
        msg = f"{text!r} is not the name of a table: write NAME or SCHEMA.NAME, in double quotes if need be"
        raise PipelineError(msg)
    schema, table = (
        plain.lower() if plain is not None else quoted and quoted.replace('""', '"')
        for quoted, plain in (found.group(1, 2), found.group(3, 4))
    )
    return schema, str(table)


OWN_GROUPS = "windrow-"
"""The prefix of the consumer groups that windrow itself uses, and resumes from."""
ListForm = Literal["json", "array"]
"""The forms of lists in tables: JSON text, or arrays of the elements' type."""
Companion = Literal["late", "dead", "clocks"]
"""The tables or topics that accompany the table or topic of a sink."""


@dataclass(frozen=True)
class Sink:
    """The target of rows. `section` is its kind, as a YAML key.

    By default, a pipeline has the name of its sink's `table`. `system` is the software's name in OpenTelemetry's
    conventions (``db.system.name``, ``messaging.system``). `is_one_transaction` says whether a step is written in one
    transaction, or in one for each table.
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
            """The primary key of the result table; empty for the default key."""

        @property
        def changelog(self) -> bool:
            """Whether the table of changes is written."""

        @property
        def place(self) -> str:
            """Its address, as shown to users."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns by whose values a sink of files divides the rows."""
        return ()

    @property
    def lists(self) -> ListForm:
        """The form of columns of lists."""
        return "json"

    @property
    def database(self) -> Sink:
        """The sink without the settings of a single table, so that it is equal for all tables of a database."""
        return self

    def into(self, table: str) -> Self:
        """Return a sink for another table of the same database, without an outbox, or for another topic."""
        found: Any = self
        return replace(found, table=table)  # type: ignore[no-any-return]

    def companion(self, name: Companion) -> str:
        """Return the name of the table's late output, dead letters or clock journal."""
        return f"{self.table}_{name}"

    @property
    def reasons(self) -> str:
        """Words that say where the reasons of dead letters are."""
        return f"the column `reason` of the table {self.companion('dead')}"


@dataclass(frozen=True)
class TableSink(Sink):
    """A sink with a table of results; other sinks contain only changes."""

    @property
    def database(self) -> Sink:
        """The sink without the settings of a single table."""
        found: Any = self
        return replace(found, table="", key=(), changelog=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FolderSink(Sink):
    """Files of changes in the subfolder `table` of the folder `path`; there is no table of results."""

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

    `key` is the primary key of the result table, by default window_start, window_end and the pipeline's key. NUMERIC
    columns hold 15 digits; with `decimals` set to ``text``, decimals of any length are kept exactly. Without
    `changelog`, the table of changes stays empty.
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
    """Tables in a PostgreSQL database; settings that `url` leaves out come from libpq's environment (PGPASSWORD ...).

    With `outbox`, each change is also a row of the outbox table, until a relay has sent it. Without a `schema`, the
    tables are in the first schema of the user's search_path. `lists` is the form of columns of lists.
    """

    url: str = field(repr=False)
    table: str
    key: tuple[str, ...] = ()
    changelog: bool = True
    outbox: bool = False
    schema: str | None = None
    lists: ListForm = "json"
    section: ClassVar[str] = "postgres"
    system: ClassVar[str] = "postgresql"

    @property
    def place(self) -> str:
        """The URL of the database."""
        return self.url

    @property
    def database(self) -> Sink:
        """The sink without the settings of a single table."""
        return PostgresSink(self.url, "", schema=self.schema)

    def into(self, table: str) -> Self:
        """Return a sink for another table, without an outbox."""
        return replace(self, table=table, outbox=False)


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A Kafka topic of changes, keyed by the key of the row.

    `format` is the row with its operation, Debezium's envelope, or an upsert. Values, and the keys of upserts, are JSON
    unless there is an `encoding`, whose schemas are derived from the columns and registered under `subject` and
    `key_subject` (``TOPIC-value`` and ``TOPIC-key`` if they are None). The realtime host commits a transaction at least
    every `commit` microseconds, and other hosts one per step. `options` are passed to the producer unchanged; the
    realtime host uses the options of its source instead.
    """

    servers: str
    topic: str
    commit: int = 10_000
    format: ChangeFormat = "json"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    encoding: SchemaFormat | None = None
    subject: str | None = None
    key_subject: str | None = None
    key: ClassVar[tuple[str, ...]] = ()
    changelog: ClassVar[bool] = True
    section: ClassVar[str] = "kafka"
    system: ClassVar[str] = "kafka"

    @property
    def place(self) -> str:
        """The brokers."""
        return self.servers

    @property
    def table(self) -> str:
        """The topic."""
        return self.topic

    @property
    def subjects(self) -> tuple[str, str]:
        """The subjects of the schemas of values and of keys."""
        return self.subject or f"{self.topic}-value", self.key_subject or f"{self.topic}-key"

    @property
    def database(self) -> Sink:
        """The brokers, with the options of the producer."""
        return replace(self, topic="", commit=0, format="json", encoding=None, subject=None, key_subject=None)

    @property
    def lists(self) -> ListForm:
        """Arrays in values with a schema, which has their type."""
        return "json" if self.encoding is None else "array"

    @property
    def registries(self) -> dict[str, Registry]:
        """The schema registry, by the setting that has it."""
        return _registries(encoding=self.encoding)

    def into(self, table: str) -> Self:
        """Return a sink for another topic."""
        return replace(self, topic=table)

    def companion(self, name: Companion) -> str:
        """Return the name of the topic's late output, dead letters or clock journal."""
        return f"{self.topic}.{name}"

    @property
    def reasons(self) -> str:
        """Words that say where the reasons of dead letters are."""
        return f"the field `reason` in the topic {self.companion('dead')}"
