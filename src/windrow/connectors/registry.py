"""Connectors by kind: those of windrow itself, and connectors added by other distributions.

A connector is a package that describes itself, and has a line in this module. Another distribution can add a connector
with an entry point in the group `windrow.connectors`. The entry point's name is the kind, and its object is a
`windrow.connectors.base.Connector`. It is loaded only if a kind is used that is not one of windrow's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

from windrow import model as m
from windrow.connectors.base import Connector, SinkConnector, SourceConnector, load
from windrow.errors import SetupError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "windrow.connectors"
OWN: Final = {
    "log": "windrow.connectors.log.connector:LOG",
    "files": "windrow.connectors.files.connector:FILES",
    "file": "windrow.connectors.file.connector:FILE",
    "postgres_cdc": "windrow.connectors.postgres.cdc.connector:POSTGRES_CDC",
    "sqlite": "windrow.connectors.sqlite.connector:SQLITE",
    "duckdb": "windrow.connectors.duckdb.connector:DUCKDB",
    "postgres": "windrow.connectors.postgres.connector:POSTGRES",
    "delta": "windrow.connectors.delta.connector:DELTA",
    "parquet": "windrow.connectors.parquet.connector:PARQUET",
    "jsonl": "windrow.connectors.jsonl.connector:JSONL",
    "kafka": "windrow.connectors.kafka.connector:KAFKA",
}
"""The connectors included in windrow by kind, in the order of the reference."""

C = TypeVar("C", SourceConnector, SinkConnector)


def source_connector(source: m.Source) -> SourceConnector:
    """Return the connector of a source."""
    return SOURCES[source.section]


def sink_connector(sink: m.Sink) -> SinkConnector:
    """Return the connector of a sink."""
    return SINKS[sink.section]


class Connectors(Mapping[str, C], Generic[C]):
    """Maps each kind to the connector of its source or of its sink, which is loaded when it is looked up.

    Raise SetupError if a connector of another distribution cannot be loaded, or if its kind is already taken.
    """

    def __init__(self, role: Literal["source", "sink"]) -> None:
        self._role = role

    def __getitem__(self, kind: str) -> C:
        found = getattr(_connector(kind), self._role)
        if found is None:
            raise KeyError(kind)
        return found  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return (kind for kind in (*OWN, *_installed()) if getattr(_connector(kind), self._role) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


SOURCES: Final = Connectors[SourceConnector]("source")
SINKS: Final = Connectors[SinkConnector]("sink")


_load: Callable[[str], Connector] = cache(load)


def _connector(kind: str) -> Connector:
    """Load the connector of a kind; raise KeyError if there is none."""
    if kind in OWN:
        return _load(OWN[kind])
    entry = _installed()[kind]
    try:
        found = _load(entry.value)
    except Exception as exc:
        msg = f"the connector {kind!r} of {_distribution(entry)} cannot be loaded ({exc!r}): update it, or remove it"
        raise SetupError(msg) from exc
    if not isinstance(found, Connector):
        msg = (
            f"{entry.value}, the connector {kind!r} of {_distribution(entry)}, is not a Connector: "
            f"update it, or remove it"
        )
        raise SetupError(msg)
    return found


def _installed() -> dict[str, EntryPoint]:
    return _installed_on(tuple(sys.path))


@lru_cache(maxsize=4)
def _installed_on(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Return the entry points of other distributions by kind; raise SetupError if a kind is defined twice."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - few pipelines have such a connector

    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.name in OWN or entry.name in found:
            other = "windrow" if entry.name in OWN else _distribution(found[entry.name])
            msg = f"{_distribution(entry)} has a connector {entry.name!r}, and so does {other}: remove one of them"
            raise SetupError(msg)
        found[entry.name] = entry
    return found


def _distribution(entry: EntryPoint) -> str:
    return "another distribution" if entry.dist is None else f"the distribution {entry.dist.name}"
