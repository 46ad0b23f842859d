"""A pipeline file: the pipeline in it, and the line of each of its parts."""

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
    """Read and validate the text of a pipeline file; raise PipelineError, with file:line, if it is wrong."""
    document = read_document(text, file)
    return require_valid(document.pipeline, document.place)


@dataclass(frozen=True)
class Document:
    """A pipeline as its file says it, not yet validated; `is_alone` if the file has no other."""

    pipeline: m.Graph
    file: str
    root: yaml.Node
    is_alone: bool = True

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
    """Read the text of a file with one pipeline; raise PipelineError, with file:line, for all wrong with its form."""
    return only_one(read_documents(text, file))


def only_one(documents: Sequence[Document]) -> Document:
    """Return the one document; raise PipelineError if there are several."""
    first, *others = documents
    if others:
        names = ", ".join(document.pipeline.name for document in documents)
        msg = f"{first.file} has {len(documents)} pipelines: choose one of {names} (--only NAME)"
        raise PipelineError(msg)
    return first


def read_documents(text: str, file: str, given: Given = NOTHING_GIVEN) -> list[Document]:
    """Read the text of a file with one pipeline or, as YAML documents, several; with `given.only` the one of that name.

    Raise PipelineError, with file:line, for all that is wrong with their form, and if two have one name or one table.
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
    """Return the documents of a file with its variables as they are; raise PipelineError, with file:line."""
    return [_compose_sql(text, file)] if is_sql(file) else compose_all(text, file)


def _refuse_shared(roots: Sequence[YamlNode], documents: Sequence[Document]) -> None:
    names: set[str] = set()
    tables: dict[tuple[object, str], str] = {}
    for root, document in zip(roots, documents, strict=True):
        name = document.pipeline.name
        if name in names:
            msg = f"two pipelines of this file are called {name!r}: each needs a name of its own"
            raise root.error(msg)
        names.add(name)
        for node in document.pipeline.sinks:
            other = tables.setdefault((node.sink.database, node.sink.table.lower()), name)
            if other != name:
                msg = (
                    f"the table {node.sink.table!r} is written by {other!r} too: each pipeline needs tables of its own"
                )
                raise root.error(msg)


def _name(root: YamlNode) -> str:
    """Return the name of a pipeline that is not read yet."""
    pairs = root.node.value if root.is_mapping else ()
    return next((str(value.value) for key, value in pairs if key.value == "name"), "")


def _read_root(root: YamlNode) -> Document:
    if looks_like_a_story(root):
        msg = "this is a story, not a pipeline; run it with `windrow transcript`"
        raise PipelineError(msg, root.place)
    if root.keys == {"profiles"}:
        msg = "these are the profiles of the pipelines beside this file, and no pipeline"
        raise PipelineError(msg, root.place)
    return Document(DOCUMENT.read(root), root.file, root.node)


def _read_profile(path: Path, name: str) -> dict[str, str]:
    """Return the variables of a profile in a file of profiles; raise PipelineError if there is none of that name."""
    if not path.exists():
        msg = f"there is no profile {name!r}: profiles are in a file {PROFILES} beside the pipeline, and there is none"
        raise PipelineError(msg)
    root = compose(read_file(path), str(path))
    fields = YamlMapping(root, ("profiles",))
    profiles = fields.required("profiles", lambda node: dict(YamlMapping(node)))
    fields.check()
    if name not in profiles.value:
        msg = f"there is no profile {name!r}; there are {', '.join(profiles.value) or 'none'}"
        raise root.error(msg)
    return dict(read_texts(profiles.value[name], str))


def is_sql(file: str) -> bool:
    """Return whether a file has a pipeline said as SQL, by its name."""
    return file.lower().endswith(".sql")


def _compose_sql(text: str, file: str) -> YamlNode:
    with needs_extra("sql", "a pipeline in SQL"):
        from windrow.authoring.sql import compose_sql  # noqa: PLC0415 - sqlglot is an extra, and YAML needs none
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
