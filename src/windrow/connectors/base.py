"""Descriptions of connectors, which need no drivers: the properties of each kind of source and sink.

An object is referred to as ``module:name``. Its module is imported only when the object is used.
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
    """Import the object ``module:name``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def no_findings(_settings: object) -> Iterable[Finding]:
    """Return an empty collection of findings."""
    return ()


@dataclass(frozen=True)
class SourceConnector(Kind[Any]):
    """A kind of source: the class of its settings, and its section in a pipeline file.

    `findings` yields the problems in the settings, with keys relative to the source's section. `dataset` returns the
    namespace and name of the log in OpenLineage. `log` refers to the reader, a `windrow.connectors.source.Source` that
    is constructed from the settings. A followed source has no reader of its own, because the log in its `records` is
    read instead.

    `follower` refers to the `windrow.connectors.follower.Follower` that appends changes to the log. It is constructed
    from the source's node in the graph, its `ReadColumns`, and for a source of several tables those of each, by its
    name. `appender` refers to the `windrow.connectors.source.Appender` of corrected records, constructed from the
    settings, an identity and the first bytes of a record; without one, `not_written` returns the reason. `finder`
    refers to a function that takes the settings and returns a function that looks up the partitions and can be sent to
    other processes.
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
    """A kind of sink: the class of its settings, and its section in a pipeline file.

    `findings` and `dataset` (for one of the sink's tables) work as they do for a source. `tables` refers to the
    `windrow.connectors.sink.Sink` that writes the rows, constructed from the `SinkSpec` of each table in one database.
    `database` refers to the `windrow.connectors.database.Database` used outside of a run, constructed from the
    settings. `ddl` refers to the function that returns, without connecting, the lines of SQL that create the tables of
    several `SinkSpec`s in one database, or none if the run creates them. `called` is what messages call the sink.
    `row_bytes` refers to the function that estimates the bytes of a row, given the table and the average bytes of a
    text. Opening the sink needs the packages of `extra`.
    """

    dataset: Callable[[Any, str], tuple[str, str]] = lambda sink, table: ("", f"{sink.place}/{table}")
    tables: str = ""
    findings: Callable[[Any], Iterable[Finding]] = no_findings
    database: str = ""
    ddl: str = ""
    called: str = "a sink without result tables"
    row_bytes: str = "windrow.connectors.row_bytes:columnar"
    extra: str = ""

    def load(self, name: str) -> Any:  # noqa: ANN401 - any object
        """Load an object of the connector by name; raise SetupError if packages of its extra are missing."""
        with needs_extra(self.extra, self.called) if self.extra else nullcontext():
            return load(name)


@dataclass(frozen=True)
class Connector:
    """A system that windrow can read from, write to, or both."""

    source: SourceConnector | None = None
    sink: SinkConnector | None = None
