"""The sections `source` and `sink`, which have a kind for each connector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from windrow import model as m
from windrow.connectors.registry import OWN, SINKS, SOURCES
from windrow.declare.spec import Kind, OneOf
from windrow.declare.yaml_node import YamlNode

T = TypeVar("T", m.Source, m.Sink)


@dataclass(frozen=True)
class ConnectorSpec(OneOf[T]):
    """A source or a sink.

    Connectors of other distributions are loaded only if the file uses a kind that windrow itself does not have.
    """

    def read(self, node: YamlNode) -> T:
        kinds = {name: self.kinds[name] for name in node.keys if name in self.kinds}
        if len(kinds) != 1 or set(node.keys) != set(kinds):  # the error lists all kinds
            kinds = {name: self.kinds[name] for name in {**OWN, **kinds} if name in self.kinds}
        return OneOf[T](self.what, kinds).read(node)

    def kind_of(self, value: T) -> tuple[str, Kind[Any]]:
        return value.section, self.kinds[value.section]


SOURCE: OneOf[m.Source] = ConnectorSpec("source", SOURCES)
SINK: OneOf[m.Sink] = ConnectorSpec("sink", SINKS)


def own_kinds(spec: OneOf[Any]) -> str:
    """List the kinds of connectors that are part of windrow, such as ``kafka, files or log``."""
    *most, last = (kind for kind in OWN if kind in spec.kinds)
    return f"{', '.join(most)} or {last}"
