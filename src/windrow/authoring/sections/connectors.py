"""Where a pipeline reads and writes: the sections `source` and `sink`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from windrow.authoring.sections.formats import FILES_FORMAT, FORMAT, OPTIONS, TEXT_FORMAT, mask_options
from windrow.declare.spec import DURATION, FLAG, NAMES, TEXT, Key, Kind, OneOf, Section, choice
from windrow.model import (
    DeltaSink,
    DuckDBSink,
    FileSource,
    FilesSource,
    KafkaSink,
    KafkaSource,
    LogSource,
    ParquetSink,
    PostgresCdcSource,
    PostgresSink,
    Sink,
    Source,
    SqliteSink,
    TableSink,
)
from windrow.model.references import mask_url

_FORMAT_DOC = (
    "what a record is: a JSON object with the decoded fields, or with `debezium` the "
    "[change of a row](../guides/change-data-capture.md) in Debezium's envelope, with or without the schema around it"
)
_LOG = Section(
    "wr.log",
    LogSource,
    (
        Key("path", TEXT, "the folder.", required=True, positional=True),
        Key("format", TEXT_FORMAT, f"{_FORMAT_DOC}.", default=LogSource.format),
    ),
)
_FILES = Section(
    "wr.files",
    FilesSource,
    (
        Key(
            "path",
            NAMES,
            "the files: a glob pattern, such as `data/**/*.jsonl`, in which `**` is any number of folders, or the name "
            "of one file. Each pattern of a list is a partition of its own.",
            required=True,
            positional=True,
        ),
        Key("format", FILES_FORMAT, f"{_FORMAT_DOC}; or the format below.", default=FilesSource.format),
        Key(
            "header",
            FLAG,
            "whether the first line of a CSV file names the columns: they must be those of `format`, in their order.",
            default=FilesSource.header,
        ),
    ),
)
_FILE = Section(
    "wr.file",
    FileSource,
    (
        Key("path", TEXT, "the file.", required=True, positional=True),
        Key("key", NAMES, "the decoded fields by which the file has at most one row.", required=True),
        Key("log", TEXT, "the folder of the log; created if it does not exist.", required=True),
    ),
)
_OPTIONS = Key(
    "options",
    OPTIONS,
    "options for librdkafka, which reads the topic, under the names of Kafka's Java clients, such as "
    "`security.protocol: SSL`, or under librdkafka's own names. `bootstrap.servers` (use `servers`), "
    "`auto.offset.reset` (use `start`), `group.id`, `enable.auto.commit`, `isolation.level`, the deserializers "
    "and `interceptor.classes` are errors, because windrow sets them. A value may refer to an environment "
    "variable, `${NAME}`, or to a file, `${file:PATH}` ([security](../guides/security.md)).",
    default=(),
    mask=mask_options,
)


def _postgres_cdc(
    *,
    log: str | None,
    servers: str | None,
    topic: str | None,
    options: tuple[tuple[str, str], ...],
    **others: Any,  # noqa: ANN401 - the other fields of the model
) -> PostgresCdcSource:
    into = LogSource(log) if log is not None else KafkaSource(servers or "", topic or "", options=options)
    return PostgresCdcSource(into=into, **others)


def _postgres_cdc_parts(source: PostgresCdcSource) -> dict[str, Any]:
    others = {name: getattr(source, name) for name in ("url", "table", "key", "slot", "publication")}
    match source.into:
        case LogSource(path=path):
            return {**others, "log": path, "servers": None, "topic": None, "options": ()}
        case KafkaSource(servers=servers, topic=topic, options=options):
            return {**others, "log": None, "servers": servers, "topic": topic, "options": options}
        case _:
            assert_never(source.into)


def _postgres_cdc_conflict(given: Mapping[str, Any]) -> str | None:
    of_topic = [name for name in ("servers", "topic", "options") if name in given]
    if "log" in given and of_topic:
        return f"has `log` and `{of_topic[0]}`: its changes are kept either in a log or in a topic"
    if "log" in given or {"servers", "topic"} <= given.keys():
        return None
    return "needs `log`, the folder in which its changes are kept, or `servers` and `topic`"


class _PostgresCdcSection(Section[PostgresCdcSource]):
    """The section of a followed table, whose log or topic is one field of the model."""

    def mask(self, value: PostgresCdcSource) -> PostgresCdcSource:
        into = value.into
        if isinstance(into, KafkaSource):
            into = replace(into, options=mask_options(into.options))
        return replace(value, url=mask_url(value.url), into=into)


_POSTGRES_CDC = _PostgresCdcSection(
    "wr.postgres_cdc",
    _postgres_cdc,
    (
        Key(
            "url",
            TEXT,
            "`postgresql://user@host:5432/database`, the primary itself. What it leaves out comes from libpq's "
            "environment variables (`PGUSER`, `PGPASSWORD` ...). Pass the password there, as `${NAME}` or as "
            "`${file:PATH}` ([security](../guides/security.md)).",
            required=True,
            positional=True,
            mask=mask_url,
        ),
        Key("table", TEXT, 'the table, as SQL names it: `orders`, `shop.orders`, `"Orders"`.', required=True),
        Key(
            "log",
            TEXT,
            "the folder of the embedded log that keeps the changes; created if it does not exist.",
            note="or `servers` and `topic`",
        ),
        Key(
            "servers",
            TEXT,
            "the brokers of a topic that keeps the changes instead: `HOST:PORT`, or several separated by commas.",
            note="or `log`",
        ),
        Key(
            "topic",
            TEXT,
            "the topic; created if it does not exist, with as many partitions as the broker has by default, and kept "
            "for ever. Beside it is `TOPIC.position`.",
            note="or `log`",
        ),
        replace(_OPTIONS, doc="options for librdkafka, which reads and writes the topic, as for `kafka`."),
        Key(
            "key",
            NAMES,
            "the columns that identify a row: an update that changes one of them is a deletion and an insertion. Left "
            "out, the primary key, or the index of the table's `REPLICA IDENTITY`.",
            default=(),
        ),
        Key(
            "slot",
            TEXT,
            "the name of the replication slot that the run creates. Left out, it begins with `windrow_` and the "
            "table's name, and ends in random digits.",
        ),
        Key(
            "publication",
            TEXT,
            "a publication that has the table. Left out, the run creates one named as the slot, for which its role has "
            "to own the table.",
        ),
    ),
    parts=_postgres_cdc_parts,
    conflict=_postgres_cdc_conflict,
)
_KAFKA = Section(
    "wr.kafka",
    KafkaSource,
    (
        Key("servers", TEXT, "`HOST:PORT`, or several separated by commas.", required=True),
        Key("topic", TEXT, "the topic.", required=True, positional=True),
        Key(
            "start",
            choice("earliest", "latest"),
            "where a new checkpoint starts. An existing checkpoint resumes where it stopped, whatever this setting is.",
            default=KafkaSource.start,
            shown=True,
        ),
        _OPTIONS,
        Key(
            "group",
            TEXT,
            "a consumer group to which the offsets that were read are committed after each step, so that "
            "[tools for Kafka](../guides/kafka-and-spark-tools.md#lag-in-kafkas-tools) show the lag. A run never reads "
            "from it. Give each pipeline a group of its own, in which nothing else consumes.",
        ),
        Key("format", FORMAT, f"{_FORMAT_DOC}; or one of the formats below.", default=KafkaSource.format),
    ),
)


def _kafka_words(source: KafkaSource) -> str:
    more = "".join(f", {name}={value}" for name, value in source.options)
    committed = "" if source.group is None else f", offsets committed to the consumer group {source.group}"
    return (
        f"the Kafka topic {source.topic} at {source.servers} from the {source.start} offset, "
        f"each partition in offset order{more}{committed}{_format_words(source)}"
    )


def _kept_words(log: LogSource | KafkaSource) -> str:
    match log:
        case LogSource(path=path):
            return f"the embedded log {path}"
        case KafkaSource(servers=servers, topic=topic, options=options):
            return f"the Kafka topic {topic} at {servers}" + "".join(f", {name}={value}" for name, value in options)
        case _:
            assert_never(log)


def _format_words(source: Source) -> str:
    words = FORMAT.words(source.format)
    return f", {words}" if words else ""


SOURCE: OneOf[Source] = OneOf(
    "source",
    {
        "log": Kind(
            (LogSource,),
            _LOG,
            lambda source: f"the embedded log {source.path}, each partition in offset order{_format_words(source)}",
            "an embedded log on disk: a folder with `partition-0.jsonl`, `partition-1.jsonl` and so on. A record is a "
            "line, and its offset is the line number, from 0; [`windrow log`](../guides/logs.md) removes old records. "
            "A last line without a newline counts as not yet written; "
            "a run with `--until-end` that leaves one out warns, with the file's name. The field `_log_time` (epoch "
            "milliseconds) of a record is its log timestamp. A [tombstone](#tombstones) is a line with null in the "
            'field `_value`, and the key in `_key`: `{"_key": "EUR", "_value": null, "_log_time": 1767225600000}`.',
        ),
        "files": Kind(
            (FilesSource,),
            _FILES,
            lambda source: (
                f"the files {source.place}, in the order of their names{_format_words(source)}"
                + ("" if source.header else ", without headers")
            ),
            "[files](../guides/files.md) that others write once: JSON lines, CSV, or Parquet (`.parquet`), of which a "
            "row is a JSON object; text may be compressed (`.gz`). The files of a pattern are a partition, one after "
            "the other in the order of their names, and the offset of a record is its number in that order, from 0. A "
            "live run reads files that come; their names must sort after those of the files that were read, and a file "
            "must not change. The field `_log_time` (epoch milliseconds) of a record is its log timestamp.",
        ),
        "file": Kind(
            (FileSource,),
            _FILE,
            lambda source: (
                f"the file {source.path}, whose changes by {', '.join(source.key)} are in the embedded log {source.log}"
            ),
            "a small table in a file: CSV with a header (`.csv`), or a JSON object a line (`.jsonl`, `.ndjson`). It is "
            "read when a run starts, and in a live run again when it changes; the rows that changed are appended to an "
            "embedded log, which is what the run reads ([tables in files](#tables-in-files)).",
        ),
        "postgres_cdc": Kind(
            (PostgresCdcSource,),
            _POSTGRES_CDC,
            lambda source: (
                f"the table {source.table} in PostgreSQL {source.url}, whose changes are in {_kept_words(source.into)}"
            ),
            "a table of a PostgreSQL database, by logical replication: its rows when the source is first used, and "
            "each change after that, exactly once, in the order of the commits. They are appended to an embedded log "
            "or a Kafka topic, which is what the run reads, as "
            "[changes in Debezium's envelope](../guides/change-data-capture.md#from-postgresql-itself).",
        ),
        "kafka": Kind(
            (KafkaSource,),
            _KAFKA,
            _kafka_words,
            "a Kafka topic. Only committed records are read. The Kafka timestamp of a record is its log timestamp; set "
            "`message.timestamp.type=LogAppendTime` on the topic so that `time.future` does not rely on the producers' "
            "clocks.",
        ),
    },
)


_KEY_DOC = (
    "the primary key of the result table, if it should differ from `window_start`, `window_end` and the pipeline's "
    "key. It must contain `window_start` (of cumulate windows also `window_end`) and the pipeline's key, and with "
    "`mode: discard` also `revision`."
)
_CHANGELOG_DOC = (
    "whether `T_changes` is written. With `false` it stays empty, and the database grows half as fast; the result "
    "table is the same. The setting can change between runs."
)
_SQLITE = Section(
    "wr.sqlite",
    SqliteSink,
    (
        Key("path", TEXT, "the file; created if it does not exist.", required=True, positional=True),
        Key(
            "table",
            TEXT,
            "the result table, and the prefix of the other tables' names. At most 48 letters, digits and `_`, not "
            "starting with a digit.",
            required=True,
        ),
        Key("key", NAMES, _KEY_DOC, default=()),
        Key(
            "decimals",
            choice("numeric", "text"),
            "SQLite's NUMERIC keeps 15 digits. A row with a decimal of more digits is a dead letter, so that it is "
            "not rounded; `text` keeps all digits. Sums of longs are exact with either.",
            default=SqliteSink.decimals,
        ),
        Key("changelog", FLAG, _CHANGELOG_DOC, default=SqliteSink.changelog),
    ),
)
_DUCKDB = Section(
    "wr.duckdb",
    DuckDBSink,
    (
        Key("path", TEXT, "the file; created if it does not exist.", required=True, positional=True),
        Key("table", TEXT, "as for SQLite.", required=True),
        Key("key", NAMES, "what rows are replaced by; else as for SQLite.", default=()),
        Key("changelog", FLAG, "as for SQLite.", default=DuckDBSink.changelog),
    ),
)
_POSTGRES = Section(
    "wr.postgres",
    PostgresSink,
    (
        Key(
            "url",
            TEXT,
            "`postgresql://user@host:5432/database`. Missing parts are read from libpq's environment variables "
            "(`PGUSER`, `PGPASSWORD`, `PGHOST` ...). Pass the password there, as `${NAME}` or as `${file:PATH}` "
            "([security](../guides/security.md)). Connect to the server itself or to a pooler that keeps sessions. A "
            "connection that drops silently is closed after a minute, by `keepalives_idle=30`, "
            "`keepalives_interval=10`, `keepalives_count=3` and `tcp_user_timeout=60000` (milliseconds), unless the "
            "url sets them; if a server accepts no data for that long, the connection is closed too, and the step is "
            "retried.",
            required=True,
            positional=True,
            mask=mask_url,
        ),
        Key("table", TEXT, "as for SQLite.", required=True),
        Key("key", NAMES, "as for SQLite.", default=()),
        Key("changelog", FLAG, "as for SQLite.", default=PostgresSink.changelog),
        Key(
            "outbox",
            FLAG,
            "whether each change is also a row of the table `T_outbox`, from which "
            "[`windrow relay`](../guides/outbox.md) sends it on. The setting can change between runs.",
            default=PostgresSink.outbox,
        ),
    ),
)


_DELTA = Section(
    "wr.delta",
    DeltaSink,
    (
        Key("path", TEXT, "the folder; created if it does not exist.", required=True, positional=True),
        Key("table", TEXT, "as for SQLite. Each table is a folder of its name in `path`.", required=True),
        Key("key", NAMES, "what rows are merged by; else as for SQLite.", default=()),
        Key("changelog", FLAG, "as for SQLite.", default=DeltaSink.changelog),
    ),
)


_PARQUET = Section(
    "wr.parquet",
    ParquetSink,
    (
        Key("path", TEXT, "the folder; created if it does not exist.", required=True, positional=True),
        Key("table", TEXT, "as for SQLite: the folder in `path`.", required=True),
    ),
)


_KAFKA_SINK = Section(
    "wr.kafka_sink",
    KafkaSink,
    (
        Key(
            "servers",
            TEXT,
            "`HOST:PORT`, or several separated by commas. With `mode: realtime` they are those of the source, as one "
            "transaction holds changes and positions.",
            required=True,
        ),
        Key(
            "topic",
            TEXT,
            "the topic; created if it does not exist, with as many partitions as the broker has by default (with "
            "`mode: realtime` as the source has). Beside it are `TOPIC.late`, `TOPIC.dead` and, except with `mode: "
            "realtime`, `TOPIC.clocks`.",
            required=True,
            positional=True,
        ),
        Key(
            "commit",
            DURATION,
            "with `mode: realtime` the time between two transactions. A change waits half of it in the median, and a "
            "partition costs the broker a transaction as often. Other hosts write a transaction a step.",
            default=KafkaSink.commit,
        ),
        Key(
            "format",
            choice("json", "debezium"),
            "what a change is: the row as a JSON object with `op`, `pane` and `revision`, or with `debezium` a change "
            "event in Debezium's envelope, which another pipeline reads with `format: debezium`.",
            default=KafkaSink.format,
        ),
        replace(
            _OPTIONS,
            doc="options for librdkafka, which writes the topic, as for the source. With `mode: realtime` those of the "
            "source hold, and there are none here.",
        ),
    ),
)


def _sqlite_words(sink: SqliteSink) -> str:
    decimals = "" if sink.decimals == "numeric" else ", decimals as text"
    return f"table {sink.table} in the SQLite file {sink.path}{_key_words(sink)}{decimals}"


def _kafka_sink_words(sink: KafkaSink) -> str:
    envelope = ", in Debezium's envelope" if sink.format == "debezium" else ""
    options = "".join(f", {name}={value}" for name, value in sink.options)
    return f"the Kafka topic {sink.topic} at {sink.servers}{envelope}{options}"


def _key_words(sink: TableSink) -> str:
    return f", one row for each {', '.join(sink.key)}" if sink.key else ""


SINK: OneOf[Sink] = OneOf(
    "sink",
    {
        "sqlite": Kind(
            (SqliteSink,),
            _SQLITE,
            _sqlite_words,
            "tables in an SQLite file, in WAL mode: others can read while a run writes.",
        ),
        "duckdb": Kind(
            (DuckDBSink,),
            _DUCKDB,
            lambda sink: f"table {sink.table} in the DuckDB file {sink.path}{_key_words(sink)}",
            "tables in a [DuckDB file](../guides/duckdb.md), which is open only while a step is written: others can "
            "read between two steps.",
        ),
        "postgres": Kind(
            (PostgresSink,),
            _POSTGRES,
            lambda sink: f"table {sink.table} in PostgreSQL {sink.url}{_key_words(sink)}",
            "tables in a PostgreSQL database, in the first schema of the user's `search_path`.",
        ),
        "delta": Kind(
            (DeltaSink,),
            _DELTA,
            lambda sink: f"the Delta table {sink.table} in {sink.path}{_key_words(sink)}",
            "[Delta tables](../guides/lakes.md) in a folder: a commit of each table a step. Needs "
            "`pip install 'windrow[delta]'`.",
        ),
        "parquet": Kind(
            (ParquetSink,),
            _PARQUET,
            lambda sink: f"changes in the Parquet files {sink.table}/*/changes.parquet in {sink.path}",
            "[Parquet files](../guides/lakes.md) of changes, a folder for each step: `PATH/TABLE/step-N/`. There is no "
            "result table, as files cannot be updated.",
        ),
        "kafka": Kind(
            (KafkaSink,),
            _KAFKA_SINK,
            _kafka_sink_words,
            "a Kafka topic of changes ([the guide](../guides/kafka-sink.md)), each of which a reader with "
            "`isolation.level=read_committed` sees once. The key of a record is the key of its row, and the value the "
            "row as JSON, with `op` and `revision`.",
        ),
    },
)
