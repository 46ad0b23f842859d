"""Descriptions of connectors without their drivers: the properties of each kind of source and sink.

An object is named as ``module:name``, and its module is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from windrow.declare.findings import Finding
from windrow.declare.spec import Kind
from windrow.errors import needs_extra


def load(name: str) -> Any:  # noqa: ANN401 - any object
    """Return the object ``module:name``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def no_findings(_settings: object) -> Iterable[Finding]:
    """Return no findings."""
    return ()


@dataclass(frozen=True)
class SourceConnector(Kind[Any]):
    """A kind of source, by the class of its settings, and its section in a pipeline file.

    `findings` are the problems of settings, each with its place below the source; `dataset` is the log's namespace and
    name in OpenLineage. `log` names the reader (`windrow.connectors.source.Source`, made from the settings): a followed
    source has none, since its `records` are read.

    `follower` names the `windrow.connectors.source.Follower` that appends changes to the log (made from the node of the
    graph and the names of key fields of tables); `appender` names the `windrow.connectors.source.Appender` of corrected
    records (made from settings, an identity and the first bytes of a record), or `not_written` says why there is none.
    `finder` names a function that returns a function which finds the partitions and can be sent to other processes.
    """

    dataset: Callable[[Any], tuple[str, str]] = lambda source: ("", source.place)
    findings: Callable[[Any], Iterable[Finding]] = no_findings
    log: str = ""
    follower: str = ""
    appender: str = ""
    not_written: Callable[[Any], str] = lambda source: f"records cannot be appended to {source.place}"
    finder: str = ""


@dataclass(frozen=True)
class SinkConnector(Kind[Any]):
    """A kind of sink, by the class of its settings, and its section in a pipeline file.

    `findings` and `dataset` (of one of its tables) are as for a source. `tables` names the
    `windrow.connectors.sink.Sink` that writes the rows (made from the `SinkSpec` of each table in one database), and
    `database` the `windrow.connectors.database.Database` for use outside of a run (made from the settings). `called` is
    the sink's name in messages. `row_bytes` names the function for the bytes of a row (given a table and the bytes of a
    text). Opening the sink needs the packages of `extra`.
    """

    dataset: Callable[[Any, str], tuple[str, str]] = lambda sink, table: ("", f"{sink.place}/{table}")
    tables: str = ""
    findings: Callable[[Any], Iterable[Finding]] = no_findings
    database: str = ""
    called: str = "a sink without result tables"
    row_bytes: str = "windrow.connectors.row_bytes:columnar"
    extra: str = ""

    def load(self, name: str) -> Any:  # noqa: ANN401 - any object
        """Return an object of the connector by its name; raise SetupError if the packages of its extra are missing."""
        with needs_extra(self.extra, self.called) if self.extra else nullcontext():
            return load(name)


@dataclass(frozen=True)
class Connector:
    """A system that can be read, written, or both."""

    source: SourceConnector | None = None
    sink: SinkConnector | None = None
