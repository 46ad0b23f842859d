"""YAML nodes of parts of a text in SQL: each has the position of what it is made from."""

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
    """Makes the nodes of one script."""

    script: Script

    def mark(self, at: int) -> SqlMark:
        """Return the mark of a position."""
        return SqlMark(self.script.file, at, *self.script.line_and_column(at), None, 0)

    def text(self, value: str, at: int) -> yaml.ScalarNode:
        """Return a text."""
        return yaml.ScalarNode(_STR, value, self.mark(at), self.mark(at))

    def texts(self, values: Iterable[str], at: int) -> yaml.SequenceNode:
        """Return a list of texts."""
        return yaml.SequenceNode(_SEQ, [self.text(value, at) for value in values], self.mark(at), self.mark(at))

    def mapping(self, at: int) -> yaml.MappingNode:
        """Return an empty mapping."""
        return yaml.MappingNode(_MAP, [], self.mark(at), self.mark(at))

    def option(self, value: str, at: int) -> yaml.Node:
        """Return the value of an option: a list or mapping of YAML if it begins as one, else the text as it is."""
        if not value.lstrip().startswith(("[", "{")):
            return self.text(value, at)
        try:
            return self._placed(compose(value, self.script.file).node, at)
        except PipelineError as exc:
            raise PipelineError(exc.message.replace("the file", "this value"), self.script.place(at)) from exc

    def put(self, root: yaml.MappingNode, path: Sequence[str], value: yaml.Node, at: int) -> None:
        """Put a value at a path of keys; the mappings that lead there are made if needed."""
        key, *rest = path
        if not rest:
            root.value.append((self.text(key, at), value))
            return
        inner = next((node for name, node in root.value if name.value == key), None)
        if inner is None:
            inner = self.mapping(at)
            root.value.append((self.text(key, at), inner))
        if not isinstance(inner, yaml.MappingNode):
            msg = f"{'.'.join(path)!r} does not fit: {key} is given as one value already"
            raise PipelineError(msg, self.script.place(at))
        self.put(inner, rest, value, at)

    def _placed(self, node: yaml.Node, at: int) -> yaml.Node:
        """Give all nodes of a value the position of its text."""
        node.start_mark = node.end_mark = self.mark(at)
        if isinstance(node, yaml.MappingNode):
            for pair in node.value:
                for part in pair:
                    self._placed(part, at)
        elif isinstance(node, yaml.SequenceNode):
            for part in node.value:
                self._placed(part, at)
        return node


def key_of(node: yaml.MappingNode, key: str) -> yaml.Node | None:
    """Return the value of a key of a mapping, or None."""
    return next((value for name, value in node.value if name.value == key), None)
