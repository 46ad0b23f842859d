"""Parts that the settings of several connectors share: keys, descriptions, findings, and names of datasets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from windrow import model as m
from windrow.declare.findings import Finding, error
from windrow.declare.formats import FORMAT
from windrow.declare.spec import FLAG, NAMES, TEXT, Key, choice
from windrow.model.references import fill_placeholders, is_reference

FORMAT_DOC: Final = (
    "what a record is: a JSON object with the decoded fields, or a [change of a "
    "row](../guides/change-data-capture.md) in Debezium's envelope"
)
AS_FOR_SQLITE: Final = "as for [SQLite](../connectors/sqlite.md)."
LISTS: Final = Key(
    "lists",
    choice("json", "array"),
    "the form of [lists](../concepts/aggregates.md#lists): JSON text, or arrays of the elements' type. A table keeps "
    "its form.",
    default="json",
)
CHANGELOG: Final = Key("changelog", FLAG, AS_FOR_SQLITE, default=True)


def folder_key(doc: str = "the folder; created if it does not exist.") -> Key:
    """Return the settings key `path`, the location to which a sink writes."""
    return Key("path", TEXT, doc, required=True, positional=True)


def table_key(doc: str = AS_FOR_SQLITE) -> Key:
    """Return the settings key `table`, the result table."""
    return Key("table", TEXT, doc, required=True)


def primary_key(doc: str = AS_FOR_SQLITE) -> Key:
    """Return the settings key `key`, the columns of the primary key."""
    return Key("key", NAMES, doc, default=())


def partition_key(doc: str) -> Key:
    """Return the settings key `partition_by`, the columns by which rows are divided into files."""
    return Key(
        "partition_by",
        NAMES,
        f"columns of type string, long or boolean, such as a derived day, by whose values {doc}",
        default=(),
    )


FOLDER_SINK_KEYS: Final = (folder_key(), table_key("as for [SQLite](../connectors/sqlite.md): the folder in `path`."))


def key_words(sink: m.TableSink) -> str:
    """Describe the primary key in words; empty if the settings do not define one."""
    return f", one row for each {', '.join(sink.key)}" if sink.key else ""


def partition_words(sink: m.Sink) -> str:
    """Describe the partitions of files in words; empty if the settings do not define any."""
    return f", partitioned by {', '.join(sink.partition_by)}" if sink.partition_by else ""


def list_words(sink: m.Sink) -> str:
    """Describe the form of lists in words; empty for the default."""
    return ", lists as arrays" if sink.lists == "array" else ""


def format_words(source: m.Source) -> str:
    """Describe the format of records in words; empty if they are JSON objects."""
    words = FORMAT.words(source.format)
    return f", {words}" if words else ""


_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s,:\[\]]+):[0-9]{1,5}")
LONGEST_TOPIC = 249
_SCHEMES = ("postgresql", "postgres")
_HOST_PORT = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]{0,5})?")
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_TABLE = 48
"""PostgreSQL's limit of 63 minus the suffixes of companion tables (``_changes`` ...)."""


def table_findings(name: str) -> Iterator[Finding]:
    """Yield problems with a table's name, which must be plain and leave room for its companions' suffixes."""
    if not _TABLE_NAME.fullmatch(name) or len(name) > _LONGEST_TABLE:
        yield error(
            "table", f"{name!r} must be at most {_LONGEST_TABLE} letters, digits and '_', not starting with a digit"
        )
    if name.lower().startswith("windrow_"):
        yield error("table", f"{name!r}: windrow reserves names that begin with windrow_")


def file_findings(path: str, example: str) -> Iterator[Finding]:
    """Yield problems with the path of a database file."""
    if not path or path.startswith(":memory:"):
        yield error("path", f"{path!r} is not a persistent file; name one, such as {example}")


def folder_sink_findings(sink: Any) -> Iterator[Finding]:  # noqa: ANN401 - settings with a path and a table
    """Yield problems with a sink that writes files to a folder."""
    if not sink.path or "://" in sink.path:
        yield error(
            "path", f"{sink.path!r} must be a folder on a disk: commits to an object store are not supported yet"
        )
    yield from table_findings(sink.table)


def url_findings(url: str) -> Iterator[Finding]:
    """Yield problems with the URL of a PostgreSQL server, without repeating the URL, which may contain a password."""
    if not (is_reference(url) or _is_postgres(fill_placeholders(url))):
        yield error("url", "must be a URL such as postgresql://user@host:5432/database")


def _is_postgres(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    hosts = parts.netloc.rpartition("@")[2].split(",")
    is_server = all(_HOST_PORT.fullmatch(host) for host in hosts)
    return is_server and parts.scheme in _SCHEMES and url.startswith(f"{parts.scheme}://")


def broker_findings(servers: str) -> Iterator[Finding]:
    """Yield problems with the addresses of brokers."""
    if not all(_SERVER.fullmatch(server.strip()) for server in servers.split(",")):
        yield error("servers", f"{servers!r} must be HOST:PORT, or several separated by commas, such as localhost:9092")


def registry_findings(where: str, given: m.Registry) -> Iterator[Finding]:
    """Yield problems with the URL of a schema registry. It is not quoted, because it may contain a password."""
    if not is_reference(given.url) and not fill_placeholders(given.url).startswith(("http://", "https://")):
        yield error(where, "must be a URL such as http://localhost:8081")


def topic_findings(topic: str, longest: int) -> Iterator[Finding]:
    """Yield problems with the name of a topic."""
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."} or len(topic) > longest:
        message = f"{topic!r} is not a topic name: use at most {longest} letters, digits, '.', '_' and '-'"
        yield error("topic", message)


def option_findings(options: Iterable[tuple[str, str]], own: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each client option that windrow sets itself, with advice on what to do instead."""
    for option, _ in options:
        if option in own:
            yield error(f"options.{option}", f"cannot be set; {own[option]}")
        elif option.startswith("kafka."):
            yield error(f"options.{option}", f"must not have the prefix; write {option.removeprefix('kafka.')}")


def file_dataset(sink: Any, table: str) -> tuple[str, str]:  # noqa: ANN401 - settings with a path
    """Return the OpenLineage namespace and name of a table in a database file.

    OpenLineage has no naming rule for such databases, so the file is used as the namespace.
    """
    return f"{sink.system}://{Path(sink.path).absolute()}", table


def folder_dataset(sink: Any, table: str) -> tuple[str, str]:  # noqa: ANN401 - the same
    """Return the OpenLineage namespace and name of a table that is a folder."""
    return "file", str(Path(sink.path).absolute() / table)


def log_dataset(source: Any) -> tuple[str, str]:  # noqa: ANN401 - the same
    """Return the OpenLineage namespace and name of a log that is a file or a folder."""
    return "file", str(Path(source.path).absolute())


def kafka_namespace(servers: str) -> str:
    """Return the OpenLineage namespace of a Kafka cluster, which is the address of its first broker."""
    first = servers.partition(",")[0].strip().rpartition("://")[2]
    return f"kafka://{first}" if re.search(r":\d+$", first) else f"kafka://{first}:9092"
