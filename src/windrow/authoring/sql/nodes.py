"""Build YAML nodes for parts of an SQL text. The nodes have the positions of these parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import yaml

from windrow.authoring.sql.syntax import Script
from windrow.declare.yaml_node import SqlMark, compose
from windrow.errors import PipelineError

_STR, _MAP, _SEQ = "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


@dataclass(frozen=True)
class Nodes:
    """Builds the YAML nodes of one script; `at` is a position in its text."""

    script: Script

    def mark(self, at: int) -> SqlMark:
        """Return the YAML mark for a position in the text."""
        return SqlMark(self.script.file, at, *self.script.line_and_column(at), None, 0)

    def text(self, value: str, at: int) -> yaml.ScalarNode:
        """Return a scalar node with a text."""
        return yaml.ScalarNode(_STR, value, self.mark(at), self.mark(at))

    def texts(self, values: Iterable[str], at: int) -> yaml.SequenceNode:
        """Return a sequence node with several texts."""
        return yaml.SequenceNode(_SEQ, [self.text(value, at) for value in values], self.mark(at), self.mark(at))

    def mapping(self, at: int) -> yaml.MappingNode:
        """Return an empty mapping node."""
        return yaml.MappingNode(_MAP, [], self.mark(at), self.mark(at))

    def option(self, value: str, at: int) -> yaml.Node:
        """Return the value of an option: a list or mapping is parsed as YAML, anything else is text."""
        if not value.lstrip().startswith(("[", "{")):
            return self.text(value, at)
        try:
            return self._place(compose(value, self.script.file).node, at)
        except PipelineError as exc:
            raise PipelineError(exc.message.replace("the file", "this value"), self.script.place(at)) from exc

    def put(self, root: yaml.MappingNode, path: Sequence[str], value: yaml.Node, at: int) -> None:
        """Set the value at a path of keys, creating the mappings on the way."""
        key, *rest = path
        if not rest:
            root.value.append((self.text(key, at), value))
            return
        inner = key_of(root, key)
        if inner is None:
            inner = self.mapping(at)
            root.value.append((self.text(key, at), inner))
        if not isinstance(inner, yaml.MappingNode):
            msg = f"{'.'.join(path)!r} is not possible: {key} is a single value already"
            raise PipelineError(msg, self.script.place(at))
        self.put(inner, rest, value, at)

    def _place(self, node: yaml.Node, at: int) -> yaml.Node:
        """Set the position of a node and all nodes below it."""
        node.start_mark = node.end_mark = self.mark(at)
        for item in node.value if isinstance(node, yaml.CollectionNode) else ():
            for part in item if isinstance(item, tuple) else (item,):
                self._place(part, at)
        return node


def key_of(node: yaml.MappingNode, key: str) -> yaml.Node | None:
    """Return the value of a key in a mapping node, or None."""
    return next((value for name, value in node.value if name.value == key), None)
