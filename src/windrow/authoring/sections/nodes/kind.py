"""Kinds of streams: how files have one, how it is checked, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final

from windrow import model as m
from windrow.declare.findings import Finding
from windrow.declare.spec import TEXT, Key, Section
from windrow.expressions import Stream


@dataclass(frozen=True)
class NodeKind:
    """A kind of stream that is not a result.

    Files have the keys of `section`; `marks` are those that no other kind has. `findings` checks a node, given the
    stream that it takes. `words` are its settings as `windrow explain` shows them, by noun, and `keeps` says for how
    long its state is kept, if it has any. `label` is its text in a flowchart, and `python` the expression that makes
    it, given those of the streams that it takes.
    """

    node: type[Any] | UnionType
    marks: tuple[str, ...]
    section: Section[Any]
    findings: Callable[[m.Graph, Any, Stream], Iterator[Finding]]
    words: Callable[[m.Graph, Any], Mapping[str, str]]
    label: Callable[[Any], str]
    python: Callable[[Any, Sequence[str]], str]
    keeps: Callable[[m.Graph, Any], str] = lambda _, __: ""


STREAM: Final = "the source or stream whose records it takes. A window over the rows of a window is one over windows."


def from_key(of: str, field: str = "input") -> Key:
    """Return the key `from`, which names the stream that a node takes."""
    return Key("from", TEXT, of, required=True, field=field)
