"""Descriptions of connectors, without their drivers: what other rooms ask of a kind of source or sink.

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
    """Find nothing."""
    return ()


@dataclass(frozen=True)
class SourceConnector(Kind[Any]):
    """A kind of source, by the class of its settings, with how it is written.

    `findings` are what is wrong with settings, each with its place below the source; `dataset` is the namespace and the
    name that OpenLineage has for the log. `log` names what reads it (given the settings;
    `windrow.connectors.source.Source`): a followed source has none, since its `records` are read.

    `follower` names what appends its changes to the log (given the node of the graph and the names of key fields of
    tables, `windrow.connectors.source.Follower`); `appender` what appends corrected records (given settings, an
    identity and their first bytes; `windrow.connectors.source.Appender`), and `not_written` says why there is none.
    `finder` names what returns a function that finds the partitions, which is sent to other processes.
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
    """A kind of sink, by the class of its settings, with how it is written.

    `findings` and `dataset` (of one of its tables) are as for a source. `tables` names what writes the rows (given the
    `SinkSpec` of each table in one database, `windrow.connectors.sink.Sink`), and `database` what looks into the
    database outside of a run (given the settings, `windrow.connectors.database.Database`). `called` is what the sink is
    in messages. `row_bytes` names the size of a row (given a table and the bytes of a text). The packages of `extra`
    are needed to open it.
    """

    dataset: Callable[[Any, str], tuple[str, str]] = lambda sink, table: ("", f"{sink.place}/{table}")
    tables: str = ""
    findings: Callable[[Any], Iterable[Finding]] = no_findings
    database: str = ""
    called: str = "one without tables of results"
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
