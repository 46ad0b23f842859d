"""Checks of the source and the sink: their addresses, and the sink's table, key and digits."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit

from windrow.authoring.checks.base import (
    Finding,
    decoded_type,
    error,
    no_field,
    result_names,
    sink_path,
    type_of,
    warning,
)
from windrow.expressions import View
from windrow.model import (
    DELETED,
    OWN_GROUPS,
    AnyPipeline,
    BooleanType,
    Count,
    CsvFormat,
    Cumulate,
    Custom,
    DataType,
    DecimalType,
    DeltaSink,
    DuckDBSink,
    FileSource,
    FilesSource,
    Formula,
    Function,
    KafkaSink,
    KafkaSource,
    LogSource,
    ParquetSink,
    Pipeline,
    PostgresCdcSource,
    PostgresSink,
    RulesPipeline,
    SqliteSink,
    function_spec,
)
from windrow.model.references import is_reference, with_placeholders

_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s,:\[\]]+):[0-9]{1,5}")
_OWN_OPTIONS = {
    "bootstrap.servers": "write it as `servers`",
    "auto.offset.reset": "write it as `start`",
    "group.id": "leave it out: offsets are kept in the checkpoint, and `group` names a consumer group that shows them",
    "enable.auto.commit": "leave it out: offsets are kept in the checkpoint, not in a consumer group",
    "isolation.level": "leave it out: only committed records are read",
    "key.deserializer": "leave it out: keys are read as bytes",
    "value.deserializer": "leave it out: values are read as bytes, and `decode` says what they hold",
    "interceptor.classes": "leave it out: records are read as they are",
}

_WRITER_OPTIONS = {
    "bootstrap.servers": "write it as `servers`",
    "transactional.id": "leave it out: it is the fence between runs, windrow-TOPIC",
    "transaction.timeout.ms": "leave it out: a step has five minutes",
    "enable.idempotence": "leave it out: transactions need it",
    "acks": "leave it out: transactions wait for all replicas",
    "partitioner": "leave it out: a key is in the partition in which Kafka's Java clients look for it",
    "key.serializer": "leave it out: keys are bytes",
    "value.serializer": "leave it out: `format` says what values are",
}
_CDC_OPTIONS = {
    **dict.fromkeys(
        [name for name in (*_OWN_OPTIONS, *_WRITER_OPTIONS) if name != "transaction.timeout.ms"],
        "leave it out: that each change is there once depends on it",
    ),
    "bootstrap.servers": "write it as `servers`",
}


def source_address(pipeline: View) -> Iterator[Finding]:
    """A log and files have a path; a topic has a name that Kafka allows, and brokers with ports."""
    match pipeline.source:
        case LogSource(path):
            if not path:
                yield error("source.log.path", "is empty; name the folder that holds partition-0.jsonl ...")
        case FilesSource():
            yield from _files(pipeline.source)
        case FileSource(path, _, log):
            yield from _file(path, log)
        case PostgresCdcSource():
            yield from _followed_table(pipeline.source)
        case KafkaSource(servers, topic, _, options, group):
            yield from _brokers("source.kafka", servers)
            yield from _topic("source.kafka", topic, _LONGEST_TOPIC)
            yield from _group(group)
            yield from _options("source.kafka", options, _OWN_OPTIONS)
        case _:
            assert_never(pipeline.source)


def _options(where: str, options: Iterable[tuple[str, str]], own: Mapping[str, str]) -> Iterator[Finding]:
    for option, _ in options:
        if option in own:
            yield error(f"{where}.options.{option}", f"cannot be set; {own[option]}")
        elif option.startswith("kafka."):
            message = f"must not have the prefix; write {option.removeprefix('kafka.')}"
            yield error(f"{where}.options.{option}", message)


def _group(group: str | None) -> Iterator[Finding]:
    if group is not None and not group.strip():
        yield error("source.kafka.group", "is empty; name a consumer group, or leave it out")
    elif group is not None and group.startswith(OWN_GROUPS):
        message = f"{group!r}: realtime runs resume from groups that begin with {OWN_GROUPS}; give it another name"
        yield error("source.kafka.group", message)


_LONGEST_TOPIC = 249


def _brokers(where: str, servers: str) -> Iterator[Finding]:
    if not all(_SERVER.fullmatch(server.strip()) for server in servers.split(",")):
        message = f"{servers!r} must be HOST:PORT, or several with commas, such as localhost:9092"
        yield error(f"{where}.servers", message)


def _topic(where: str, topic: str, longest: int) -> Iterator[Finding]:
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."} or len(topic) > longest:
        message = f"{topic!r} is not a topic name: use at most {longest} letters, digits, '.', '_' and '-'"
        yield error(f"{where}.topic", message)


def _files(source: FilesSource) -> Iterator[Finding]:
    where = "source.files.path"
    if not source.path or "" in source.path:
        yield error(where, "is empty; name the files, such as data/*.jsonl")
        return
    for index, path in enumerate(source.path):
        at = f"{where}.{index}" if len(source.path) > 1 else where
        if Path(path).is_dir():
            yield error(at, f"{path} is a folder; name the files in it, such as {path.rstrip('/')}/*.jsonl")
        elif path.endswith(".parquet") and isinstance(source.format, CsvFormat):
            yield error("source.files.format", f"is CSV, and {path} is Parquet, whose rows are JSON; leave it out")
        elif path in source.path[:index]:
            yield error(at, f"{path} is given twice, so each record would count twice; keep one of them")
        elif not any(map(os.path.isfile, glob.iglob(path, recursive=True))):  # noqa: PTH207 - as they are read
            yield warning(at, f"no file matches {path} now")
    if not source.header and not isinstance(source.format, CsvFormat):
        yield error("source.files.header", "is for CSV; leave it out, or give format: {csv: {columns: [...]}}")


_ENDINGS = (".csv", ".jsonl", ".ndjson")


def _file(path: str, log: str) -> Iterator[Finding]:
    if not path.endswith(_ENDINGS):
        message = f"{path!r} must be CSV (its name ends in .csv) or JSON lines (.jsonl, .ndjson)"
        yield error("source.file.path", message)
    elif not Path(path).is_file():
        yield warning("source.file.path", f"there is no file {path}, and a run needs it when it starts")
    if not log:
        yield error("source.file.log", "is empty; name the folder in which the changes of the file are kept")


def file_fields(pipeline: View) -> Iterator[Finding]:
    """A file has a key of decoded fields, and what is read of it says whether its row was deleted."""
    if not isinstance(pipeline.source, FileSource):
        return
    if not pipeline.source.key:
        yield error("source.file.key", "is empty; name the fields by which the file has at most one row")
    for index, name in enumerate(pipeline.source.key):
        if decoded_type(pipeline, name) is None:
            yield error(f"source.file.key.{index}", no_field(pipeline, name))
        elif pipeline.decode.field(name).path:
            yield error(f"source.file.key.{index}", f"{name!r} is in a nested object; use a field that has no path")
    deleted = decoded_type(pipeline, DELETED)
    if deleted is None:
        message = f"a row that leaves the file comes once more, with {DELETED!r}; decode it: {DELETED}: boolean"
        yield warning("decode", message)
    elif deleted != BooleanType():
        yield error(f"decode.{DELETED}", f"{DELETED!r} is a {deleted}, but in the log of a file it is a boolean")


_LONGEST_NAME = 63
_SLOT_NAME = re.compile(r"[a-z0-9_]+")


def _followed_table(source: PostgresCdcSource) -> Iterator[Finding]:
    where = "source.postgres_cdc"
    if not (is_reference(source.url) or _is_postgres(with_placeholders(source.url))):
        yield error(f"{where}.url", "must be a URL such as postgresql://user@host:5432/database")
    if not source.table.strip():
        yield error(f"{where}.table", "is empty; name the table, with its schema if that is not in the search_path")
    match source.into:
        case LogSource(path=path):
            if not path:
                yield error(f"{where}.log", "is empty; name the folder in which the changes of the table are kept")
        case KafkaSource(servers=servers, topic=topic, options=options):
            yield from _brokers(where, servers)
            yield from _topic(where, topic, _LONGEST_TOPIC - len(".position"))
            yield from _options(where, options, _CDC_OPTIONS)
        case _:
            assert_never(source.into)
    if len(set(source.key)) < len(source.key):
        yield error(f"{where}.key", "has a column twice; keep one of them")
    if source.slot is not None and (not _SLOT_NAME.fullmatch(source.slot) or len(source.slot) > _LONGEST_NAME):
        message = f"{source.slot!r} must be at most {_LONGEST_NAME} small letters, digits and '_'"
        yield error(f"{where}.slot", message)
    if source.publication is not None and not 0 < len(source.publication) <= _LONGEST_NAME:
        yield error(f"{where}.publication", f"{source.publication!r} must have 1 to {_LONGEST_NAME} letters")


_SCHEMES = ("postgresql", "postgres")


def sink_address(pipeline: View) -> Iterator[Finding]:
    """SQLite has a file, PostgreSQL a URL, Kafka brokers. A URL is not repeated in messages: it may hold a password."""
    match pipeline.sink:
        case SqliteSink(path):
            yield from _database_file("sink.sqlite.path", path, "results.db")
        case DuckDBSink(path):
            yield from _database_file("sink.duckdb.path", path, "results.duckdb")
        case DeltaSink(path):
            yield from _folder("sink.delta.path", path)
        case ParquetSink(path):
            yield from _folder("sink.parquet.path", path)
        case PostgresSink(url):
            if not (is_reference(url) or _is_postgres(with_placeholders(url))):
                message = "must be a URL such as postgresql://user@host:5432/database"
                yield error("sink.postgres.url", message)
        case KafkaSink(servers, options=options):
            yield from _brokers("sink.kafka", servers)
            yield from _options("sink.kafka", options, _WRITER_OPTIONS)
        case _:
            assert_never(pipeline.sink)


def _database_file(where: str, path: str, example: str) -> Iterator[Finding]:
    if not path or path.startswith(":memory:"):
        yield error(where, f"{path!r} is not a file that lasts; name one, such as {example}")


def _folder(where: str, path: str) -> Iterator[Finding]:
    if not path or "://" in path:
        yield error(where, f"{path!r} must be a folder on a disk: commits to an object store are not supported yet")


def _is_postgres(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and url.startswith(f"{parts.scheme}://")


_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_TABLE = 48
"""PostgreSQL's 63 less what the names of companion tables add (``_changes`` ...)."""


def sink_table(pipeline: View) -> Iterator[Finding]:
    """The table has a plain name that leaves room for its companions'."""
    match pipeline.sink:
        case SqliteSink(_, table):
            yield from _table("sink.sqlite.table", table)
            if table.lower().startswith("sqlite_"):
                yield error("sink.sqlite.table", f"{table!r}: SQLite reserves names that begin with sqlite_")
        case DuckDBSink(_, table):
            yield from _table("sink.duckdb.table", table)
        case DeltaSink(_, table):
            yield from _table("sink.delta.table", table)
        case ParquetSink(_, table):
            yield from _table("sink.parquet.table", table)
        case PostgresSink(_, table):
            if "." in table:
                hint = "name the table alone; the schema is the url's search_path (?options=-csearch_path%3Dmy_schema)"
                yield error("sink.postgres.table", f"{table!r} names a schema: {hint}")
            else:
                yield from _table("sink.postgres.table", table)
        case KafkaSink(_, topic):
            yield from _topic("sink.kafka", topic, _LONGEST_TOPIC - len(".clocks"))
        case _:
            assert_never(pipeline.sink)


def _table(where: str, name: str) -> Iterator[Finding]:
    if not _TABLE_NAME.fullmatch(name) or len(name) > _LONGEST_TABLE:
        yield error(where, f"{name!r} must be at most {_LONGEST_TABLE} letters, digits and '_', no digit first")
    if name.lower().startswith("windrow_"):
        yield error(where, f"{name!r}: windrow reserves names that begin with windrow_")


def sink_key(pipeline: AnyPipeline) -> Iterator[Finding]:
    """Two windows, and two keys, never share a row; and a row stays one when its values are revised."""
    key = pipeline.sink.key
    if not key:
        return
    where = f"{sink_path(pipeline.sink)}.key"
    if isinstance(pipeline, RulesPipeline):
        yield error(where, "is for windows: the table of alerts has the primary key alert_id; leave `key` out")
        return
    # with mode discard each pane is a row of its own
    revision = ("revision",) if isinstance(pipeline, Pipeline) and pipeline.emit.mode == "discard" else ()
    # cumulate windows share their starts
    is_cumulate = isinstance(pipeline, Pipeline) and isinstance(pipeline.window, Cumulate)
    bounds = ("window_start", "window_end") if is_cumulate else ("window_start",)
    missing = [name for name in (*bounds, *pipeline.key, *revision) if name not in key]
    if missing:
        yield error(
            where, f"lacks {', '.join(missing)}, so rows would overwrite each other; add it, or leave `key` out"
        )
    identity = ("window_start", "window_end", *pipeline.key, *revision)
    values = {name for _, name in result_names(pipeline)}
    for index, name in enumerate(key):
        if name in values:
            message = f"{name!r} is a result, which revisions change; a key consists of {', '.join(identity)}"
            yield error(f"{where}.{index}", message)
        elif name not in identity:
            yield error(f"{where}.{index}", f"there is no column {name!r}; a key consists of {', '.join(identity)}")
        if name in key[:index]:
            yield error(f"{where}.{index}", f"{name!r} is given twice in the key; keep one of them")


_SQLITE_DIGITS = 15


def sqlite_digits(pipeline: Pipeline) -> Iterator[Finding]:
    """SQLite keeps 15 digits of a NUMERIC; a sum is taken to be some hundred times its terms."""
    if not isinstance(pipeline.sink, SqliteSink) or pipeline.sink.decimals == "text":
        return
    for aggregate in pipeline.aggregates:
        type_, more = _digits_needed(pipeline, aggregate.function)
        if isinstance(type_, DecimalType) and type_.precision + more > _SQLITE_DIGITS:
            message = (
                f"over a {type_} can need more than {_SQLITE_DIGITS} digits, which NUMERIC rounds; set `decimals: text`"
            )
            yield warning(f"aggregate.{aggregate.name}", message)


def _digits_needed(pipeline: Pipeline, function: Function) -> tuple[DataType | None, int]:
    """Return the type of what an aggregate is over, and how many digits more than that its result may have."""
    if isinstance(function, Count | Custom | Formula):
        return None, 0
    more = {"argument": 0, "sum": 2, "mean": 6}.get(function_spec(function).result)
    return (None, 0) if more is None else (type_of(pipeline, function.of), more)
