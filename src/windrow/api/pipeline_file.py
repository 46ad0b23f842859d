"""A pipeline file: the pipeline in it, and the line of each of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from windrow.api.checks import require_valid
from windrow.api.sections import DOCUMENT
from windrow.api.yaml_node import YamlNode, compose, place_of
from windrow.errors import PipelineError, Place, needs_extra
from windrow.model import Graph, Pipeline, RulesPipeline


def load_pipeline(path: str | Path) -> Pipeline:
    """Read and validate a pipeline file.

    Paths in it are relative to the current directory. Raise PipelineError, with file:line, for all that is wrong.
    """
    return parse_pipeline(read_file(path), str(path))


def parse_pipeline(text: str, file: str = "<string>") -> Pipeline:
    """Read and validate the text of a pipeline with one stream; raise PipelineError, with file:line, if it is wrong."""
    document = read_document(text, file)
    if isinstance(document.pipeline, Graph):
        msg = "this is a graph of named streams, not a pipeline with one stream"
        raise PipelineError(msg, document.place(""))
    if isinstance(document.pipeline, RulesPipeline):
        msg = "this is a pipeline with rules, not one with windows"
        raise PipelineError(msg, document.place(""))
    return require_valid(document.pipeline, document.place)


@dataclass(frozen=True)
class Document:
    """A pipeline as its file says it, not yet validated."""

    pipeline: Pipeline | RulesPipeline | Graph
    file: str
    root: yaml.Node

    def place(self, where: str) -> Place:
        """Return where a part stands, such as ``aggregate.total``; the nearest part around it if it is left out."""
        where = self._derived_in_key(where)
        node, at, rest = self.root, self.root, where
        while rest:
            step = _step(node, rest)
            if step is None:
                break
            key, node, rest = step
            at = key
        return place_of(at, self.file)

    def _derived_in_key(self, where: str) -> str:
        """Return the way to a derived field that stands in the key, ``key.1.domain`` for ``derive.domain``."""
        section, _, name = where.partition(".")
        if section == "derive" and isinstance(self.root, yaml.MappingNode):
            sections = {key.value: value for key, value in self.root.value}
            key = sections.get("key")
            for index, part in enumerate(key.value if isinstance(key, yaml.SequenceNode) else ()):
                if isinstance(part, yaml.MappingNode) and name in {field.value for field, _ in part.value}:
                    return f"key.{index}.{name}"
        return where


def read_document(text: str, file: str) -> Document:
    """Read the text of a pipeline file; raise PipelineError, with file:line, for all that is wrong with its form."""
    root = _compose_sql(text, file) if is_sql(file) else compose(text, file)
    if looks_like_a_story(root):
        msg = "this is a story, not a pipeline; run it with `windrow transcript`"
        raise PipelineError(msg, root.place)
    return Document(DOCUMENT.read(root), file, root.node)


def is_sql(file: str) -> bool:
    """Return whether a file has a pipeline said as SQL, by its name."""
    return file.lower().endswith(".sql")


def _compose_sql(text: str, file: str) -> YamlNode:
    with needs_extra("sql", "a pipeline in SQL"):
        from windrow.api.sql import compose_sql  # noqa: PLC0415 - sqlglot is an extra, and YAML needs none
    return compose_sql(text, file)


def looks_like_a_story(root: YamlNode) -> bool:
    """Return whether a file has the keys that only stories have."""
    return root.keys >= {"pipeline", "steps"}


def looks_like_a_pipeline(root: YamlNode) -> bool:
    """Return whether a file has keys that only pipelines have, and none of those that only stories have."""
    keys = root.keys
    return len(
        keys & {"source", "decode", "window", "aggregate", "rules", "sink", "sources", "streams", "sinks"}
    ) > 1 and not keys & {"pipeline", "steps"}


def _read_regular(path: Path) -> bytes:
    """Return what is in a file; raise PipelineError for a pipe or a device, which may never end, and OSError."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        msg = f"{str(path)!r} is a pipe or a device; save the pipeline in a file"
        raise PipelineError(msg)
    return path.read_bytes()


def read_file(path: str | Path) -> str:
    """Read a text file; raise PipelineError if that cannot be done."""
    file = str(path)
    if not file:
        msg = "the name of the pipeline file is empty; give a file"
        raise PipelineError(msg)
    try:
        data = _read_regular(Path(path))
    except FileNotFoundError as exc:
        msg = f"there is no file {file!r}"
        raise PipelineError(msg) from exc
    except IsADirectoryError as exc:
        msg = f"{file!r} is a folder; give a pipeline file in it"
        raise PipelineError(msg) from exc
    except (OSError, ValueError) as exc:
        msg = f"{file!r} cannot be read: {getattr(exc, 'strerror', None) or exc}"
        raise PipelineError(msg) from exc
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        msg = "the file is not UTF-8; save it in that encoding"
        raise PipelineError(msg, Place(file, data.count(b"\n", 0, exc.start) + 1)) from exc


def _step(node: yaml.Node, rest: str) -> tuple[yaml.Node, yaml.Node, str] | None:
    """Go one step of the way `rest` down; keys may hold dots, so the longest key that fits is taken."""
    if isinstance(node, yaml.MappingNode):
        pairs = [pair for pair in node.value if f"{rest}.".startswith(f"{pair[0].value}.")]
        if pairs:
            key, value = max(pairs, key=lambda pair: len(pair[0].value))
            return key, value, rest[len(key.value) + 1 :]
    if isinstance(node, yaml.SequenceNode):
        index, _, below = rest.partition(".")
        if index.isdecimal() and int(index) < len(node.value):
            return node.value[int(index)], node.value[int(index)], below
    return None
