"""Kinds of streams: how files have one, how it is checked, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any

from windrow import model as m
from windrow.declare.findings import Finding
from windrow.declare.spec import TEXT, Key, Section
from windrow.expressions import Stream


@dataclass(frozen=True)
class NodeKind:
    """A kind of stream that is not a result.

    Files have the keys of `section`; `marks` are those that no other kind has. `findings` checks a node, given the
    stream that it reads. `words` are its settings as `windrow explain` shows them, by noun, and `keeps` says how long
    its state is kept, if it has any. `label` is its text in a flowchart, and `python` the expression that makes it,
    given those of its inputs.
    """

    node: type[Any] | UnionType
    marks: tuple[str, ...]
    section: Section[Any]
    findings: Callable[[m.Graph, Any, Stream], Iterator[Finding]]
    words: Callable[[m.Graph, Any], Mapping[str, str]]
    label: Callable[[Any], str]
    python: Callable[[Any, Sequence[str]], str]
    keeps: Callable[[m.Graph, Any], str] = lambda _, __: ""


def from_key(doc: str = "the source or stream that it reads.", field: str = "input") -> Key:
    """Return the key `from`, which names an input."""
    return Key("from", TEXT, doc, required=True, field=field)


def settings(*keys: Key) -> Section[Mapping[str, Any]]:
    """Return the section of the settings of a kind, under its own key."""
    return Section("", dict, keys)
