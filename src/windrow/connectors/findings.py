"""Findings that several connectors have in their settings. Places are those of keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from windrow.declare.findings import Finding, error
from windrow.model.references import is_reference, with_placeholders

_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s,:\[\]]+):[0-9]{1,5}")
LONGEST_TOPIC = 249
_SCHEMES = ("postgresql", "postgres")
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_TABLE = 48
"""PostgreSQL's 63 less what the names of companion tables add (``_changes`` ...)."""


def table_findings(name: str) -> Iterator[Finding]:
    """Yield what is wrong with the name of a table: it is plain, and leaves room for its companions'."""
    if not _TABLE_NAME.fullmatch(name) or len(name) > _LONGEST_TABLE:
        yield error("table", f"{name!r} must be at most {_LONGEST_TABLE} letters, digits and '_', no digit first")
    if name.lower().startswith("windrow_"):
        yield error("table", f"{name!r}: windrow reserves names that begin with windrow_")


def file_findings(path: str, example: str) -> Iterator[Finding]:
    """Yield what is wrong with the file of a database."""
    if not path or path.startswith(":memory:"):
        yield error("path", f"{path!r} is not a file that lasts; name one, such as {example}")


def folder_sink_findings(sink: Any) -> Iterator[Finding]:  # noqa: ANN401 - settings with a path and a table
    """Yield what is wrong with a sink that writes files in a folder."""
    if not sink.path or "://" in sink.path:
        yield error(
            "path", f"{sink.path!r} must be a folder on a disk: commits to an object store are not supported yet"
        )
    yield from table_findings(sink.table)


def url_findings(url: str) -> Iterator[Finding]:
    """Yield what is wrong with the URL of a PostgreSQL server, which is not repeated, as it may hold a password."""
    if not (is_reference(url) or _is_postgres(with_placeholders(url))):
        yield error("url", "must be a URL such as postgresql://user@host:5432/database")


def _is_postgres(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and url.startswith(f"{parts.scheme}://")


def broker_findings(servers: str) -> Iterator[Finding]:
    """Yield what is wrong with the addresses of brokers."""
    if not all(_SERVER.fullmatch(server.strip()) for server in servers.split(",")):
        yield error("servers", f"{servers!r} must be HOST:PORT, or several with commas, such as localhost:9092")


def topic_findings(topic: str, longest: int) -> Iterator[Finding]:
    """Yield what is wrong with the name of a topic."""
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."} or len(topic) > longest:
        message = f"{topic!r} is not a topic name: use at most {longest} letters, digits, '.', '_' and '-'"
        yield error("topic", message)


def option_findings(options: Iterable[tuple[str, str]], own: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the options of a client that windrow sets itself, with what to do about each."""
    for option, _ in options:
        if option in own:
            yield error(f"options.{option}", f"cannot be set; {own[option]}")
        elif option.startswith("kafka."):
            yield error(f"options.{option}", f"must not have the prefix; write {option.removeprefix('kafka.')}")
