"""Keys that several connectors have."""

from __future__ import annotations

from typing import Final

from windrow import model as m
from windrow.declare.formats import FORMAT
from windrow.declare.spec import FLAG, NAMES, TEXT, Key

FORMAT_DOC: Final = (
    "what a record is: a JSON object with the decoded fields, or with `debezium` the "
    "[change of a row](../guides/change-data-capture.md) in Debezium's envelope, with or without the schema around it"
)
CHANGELOG: Final = Key("changelog", FLAG, "as for SQLite.", default=True)


def folder_key(doc: str = "the folder; created if it does not exist.") -> Key:
    """Return the key of the place where a sink writes."""
    return Key("path", TEXT, doc, required=True, positional=True)


def table_key(doc: str = "as for SQLite.") -> Key:
    """Return the key of the result table."""
    return Key("table", TEXT, doc, required=True)


def primary_key(doc: str = "as for SQLite.") -> Key:
    """Return the key of the columns of the primary key."""
    return Key("key", NAMES, doc, default=())


def key_words(sink: m.TableSink) -> str:
    """Return the primary key in words, if it is given."""
    return f", one row for each {', '.join(sink.key)}" if sink.key else ""


def format_words(source: m.Source) -> str:
    """Return what records are in words, if they are not JSON objects."""
    words = FORMAT.words(source.format)
    return f", {words}" if words else ""
