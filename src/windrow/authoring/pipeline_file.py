"""Read pipeline files, and find the line of each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import yaml

from windrow import model as m
from windrow.authoring.checks import require_valid
from windrow.authoring.sections import DOCUMENT
from windrow.authoring.variables import NOTHING_GIVEN, PROFILES, Given, substitute
from windrow.declare.yaml_node import YamlMapping, YamlNode, compose, compose_all, place_of, read_texts
from windrow.errors import PipelineError, Place, call_all, needs_extra


def parse_pipeline(text: str, file: str = "<string>") -> m.Graph:
    """Read and validate the text of a pipeline file; raise PipelineError, with file:line, if it is invalid."""
    document = read_document(text, file)
    return require_valid(document.pipeline, document.place)


@dataclass(frozen=True)
class Document:
    """A pipeline as read, not yet validated; `is_alone` if its file contains no other pipeline."""

    pipeline: m.Graph
    file: str
    root: yaml.Node
    is_alone: bool = True

    def place(self, where: str) -> Place:
        """Return the place of a part, such as ``aggregate.total``, or of the nearest enclosing part in the file."""
        node, key, rest = self.root, self.root, self._find_derived(where)
        while rest and (step := _step(node, rest)) is not None:
            key, node, rest = step
        return place_of(key, self.file)

    def _find_derived(self, where: str) -> str:
        """Return the path of a part in the file; for a field derived in the key, it is like ``key.1.domain``."""
        section, _, name = where.partition(".")
        if section == "derive" and isinstance(self.root, yaml.MappingNode):
            sections = {key.value: value for key, value in self.root.value}
            key = sections.get("key")
            for index, part in enumerate(key.value if isinstance(key, yaml.SequenceNode) else ()):
                if isinstance(part, yaml.MappingNode) and name in {field.value for field, _ in part.value}:
                    return f"key.{index}.{name}"
        return where


def read_document(text: str, file: str) -> Document:
    """Read the text of a file with a single pipeline; raise PipelineError, with file:line, for all syntax errors."""
    return only_one(read_documents(text, file))


def only_one(documents: Sequence[Document]) -> Document:
    """Return the only document; raise PipelineError if there are several."""
    first, *others = documents
    if others:
        names = ", ".join(document.pipeline.name for document in documents)
        msg = f"{first.file} has {len(documents)} pipelines: choose one of {names} (--only NAME)"
        raise PipelineError(msg)
    return first


def read_documents(text: str, file: str, given: Given = NOTHING_GIVEN) -> list[Document]:
    """Read the text of a file with one or more pipelines, each a YAML document; `given.only` selects one by name.

    Raise PipelineError, with file:line, for all syntax errors, and if two pipelines share a name or a table.
    """
    roots = read_roots(text, file)
    chosen = roots if given.only is None else [root for root in roots if _name(root) == given.only]
    if not chosen:
        msg = f"{file} has no pipeline called {given.only!r}; it has {', '.join(map(_name, roots))}"
        raise PipelineError(msg)
    substitute(chosen, given, partial(_read_profile, Path(file).parent / PROFILES), roots)
    documents = call_all(partial(_read_root, root) for root in chosen)
    if len(documents) > 1:
        _refuse_shared(chosen, documents)
    return [replace(document, is_alone=len(roots) == 1) for document in documents]


def read_roots(text: str, file: str) -> list[YamlNode]:
    """Read the documents of a file without substituting variables; raise PipelineError, with file:line."""
    return [_compose_sql(text, file)] if is_sql(file) else compose_all(text, file)


def _refuse_shared(roots: Sequence[YamlNode], documents: Sequence[Document]) -> None:
    names: set[str] = set()
    tables: dict[tuple[object, str], str] = {}
    for root, document in zip(roots, documents, strict=True):
        name = document.pipeline.name
        if name in names:
            msg = f"two pipelines in this file are called {name!r}; give each its own name"
            raise root.error(msg)
        names.add(name)
        for node in document.pipeline.sinks:
            other = tables.setdefault((node.sink.database, node.sink.table.lower()), name)
            if other != name:
                msg = f"{other!r} also writes the table {node.sink.table!r}; give each pipeline its own tables"
                raise root.error(msg)


def _name(root: YamlNode) -> str:
    """Return the name of a pipeline whose document has not been read yet, or "" if it has no name."""
    pairs = root.node.value if root.is_mapping else ()
    return next((str(value.value) for key, value in pairs if key.value == "name"), "")


def _read_root(root: YamlNode) -> Document:
    if looks_like_a_story(root):
        msg = "this is a story, not a pipeline; run it with `windrow transcript`"
        raise PipelineError(msg, root.place)
    if root.keys == {"profiles"}:
        msg = "this file contains profiles for the pipelines beside it, not a pipeline"
        raise PipelineError(msg, root.place)
    return Document(DOCUMENT.read(root), root.file, root.node)


def _read_profile(path: Path, name: str) -> dict[str, str]:
    """Return the variables of a profile in a file of profiles; raise PipelineError if the profile does not exist."""
    if not path.exists():
        msg = f"there is no profile {name!r}, because there is no file {PROFILES} beside the pipeline"
        raise PipelineError(msg)
    root = compose(read_file(path), str(path))
    fields = YamlMapping(root, ("profiles",))
    profiles = fields.required("profiles", lambda node: dict(YamlMapping(node)))
    fields.check()
    if name not in profiles.value:
        msg = f"there is no profile {name!r}; the profiles are {', '.join(profiles.value) or 'none'}"
        raise root.error(msg)
    return dict(read_texts(profiles.value[name], str))


def is_sql(file: str) -> bool:
    """Return True if the name of a file says that its pipeline is in SQL."""
    return file.lower().endswith(".sql")


def _compose_sql(text: str, file: str) -> YamlNode:
    with needs_extra("sql", "a pipeline in SQL"):
        from windrow.authoring.sql import compose_sql  # noqa: PLC0415 - sqlglot is an extra
    return compose_sql(text, file)


def looks_like_a_story(root: YamlNode) -> bool:
    """Return True if a document has the keys of a story."""
    return root.keys >= {"pipeline", "steps"}


def looks_like_a_pipeline(root: YamlNode) -> bool:
    """Return True if a document has several keys of a pipeline, and no keys that only stories have."""
    own = {"source", "decode", "window", "aggregate", "rules", "sink", "sources", "streams", "sinks"}
    return len(root.keys & own) > 1 and not root.keys & {"pipeline", "steps"}


def read_file(path: str | Path) -> str:
    """Read a text file; raise PipelineError if it cannot be read or is not UTF-8."""
    file, path = str(path), Path(path)
    if not file:
        msg = "the name of the pipeline file is empty; give a file"
        raise PipelineError(msg)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # it may never end
            msg = f"{file!r} is a pipe or a device; save the pipeline in a file"
            raise PipelineError(msg)
        data = path.read_bytes()
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
    """Follow the first key of the path `rest`; return the key's node, its value and the remaining path, or None.

    Keys may contain dots, so the longest matching key is used.
    """
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
