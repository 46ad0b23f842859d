"""YAML nodes that know their file and line, with readers for texts, numbers, durations, lists and mappings.

The reader of a mapping collects the errors of all its keys, and raises them as one PipelineError.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import yaml

from windrow import model as m
from windrow.errors import PipelineError, Place, call_all, join_errors


def compose(text: str, file: str) -> YamlNode:
    """Read a single YAML document; raise PipelineError, with file:line, if it is invalid, empty or not the only one."""
    first, *others = compose_all(text, file)
    if others:
        msg = "the file has several YAML documents, but only one is expected here: remove ---"
        raise others[0].error(msg)
    return first


def compose_all(text: str, file: str) -> list[YamlNode]:
    """Read all YAML documents of a text except empty ones.

    Raise PipelineError, with file:line, if a document is invalid, or if all are empty.
    """
    # libyaml's loader is faster, but crashes on deeply nested input; a pipeline is small
    try:
        nodes = [YamlNode(node, file) for node in yaml.compose_all(text.removeprefix("\ufeff"), Loader=_Loader)]
    except yaml.MarkedYAMLError as exc:
        line = _error_line(exc)
        source_line = next(islice(text.split("\n"), line - 1, None), "")
        hint = '; within {...} put "${NAME}" in quotes' if "${" in source_line else ""
        msg = f"the file is not YAML: {', '.join(filter(None, (exc.context, exc.problem)))}{hint}"
        raise PipelineError(msg, Place(file, line)) from exc
    except yaml.reader.ReaderError as exc:
        msg = f"the file is not YAML: the character {chr(exc.character)!r} is not allowed in it"
        raise PipelineError(msg, Place(file, text.count("\n", 0, exc.position) + 1)) from exc
    except RecursionError as exc:
        msg = "the file is nested too deeply"
        raise PipelineError(msg, Place(file, 1)) from exc
    found = [node for node in nodes if not node.is_null]
    if not found:
        msg = "the file is empty"
        raise PipelineError(msg, Place(file, 1))
    return found


class _Loader(yaml.SafeLoader):
    """A loader that reads two escapes of a surrogate pair as one character, as JSON does."""

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:  # noqa: ANN401 - of an untyped class
        """Return a scalar. Half of a surrogate pair is kept here; `YamlNode.text` reports it."""
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        node.value = _SURROGATE_PAIR.sub(_join_pair, node.value)
        return node


_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def _join_pair(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _error_line(exc: yaml.MarkedYAMLError) -> int:
    # an unclosed quote is reported on the line that opens it, not at the end of the file
    is_open = exc.context is not None and exc.context.startswith("while scanning a quoted scalar")
    mark = (exc.context_mark if is_open else None) or exc.problem_mark or exc.context_mark
    return mark.line + 1 if mark else 1


class SqlMark(yaml.Mark):
    """The position of a node that was made from SQL text, where places include the column as well as the line."""


def place_of(node: yaml.Node, file: str) -> Place:
    """Return the line where a node starts; in SQL, also the column."""
    mark = node.start_mark
    return Place(file, mark.line + 1, mark.column + 1 if isinstance(mark, SqlMark) else None)


T = TypeVar("T")
_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True)
class YamlNode:
    """A YAML node of `file`. Its `name` is its path, such as ``window.tumbling``, or "" for the whole file.

    `above` are the ancestors of the node.
    """

    node: yaml.Node
    file: str
    name: str = ""
    above: tuple[yaml.Node, ...] = ()

    @property
    def place(self) -> Place:
        """The place where the node starts."""
        return place_of(self.node, self.file)

    @property
    def called(self) -> str:
        """What messages call the node."""
        return self.name or "the pipeline"

    @property
    def is_scalar(self) -> bool:
        """Whether the node is a single value, not a list or mapping."""
        return isinstance(self.node, yaml.ScalarNode)

    @property
    def is_null(self) -> bool:
        """Whether the node is null: empty, ``~`` or ``null``."""
        return bool(self.node.tag == _NULL)

    @property
    def keys(self) -> frozenset[str]:
        """The keys of a mapping; empty if the node is not a mapping."""
        pairs = self.node.value if self.is_mapping else ()
        return frozenset(key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode))

    @property
    def is_mapping(self) -> bool:
        """Whether the node is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Whether the node is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def kind(self) -> str:
        """The kind of node, as messages call it: ``a mapping``, ``a list``, ``null`` or ``text``."""
        match self.node:
            case yaml.MappingNode():
                return "a mapping"
            case yaml.SequenceNode():
                return "a list"
            case yaml.ScalarNode() if self.is_null:
                return "null"
            case _:
                return "text"  # the text is not quoted: it may be a password

    def under(self, node: yaml.Node, name: str) -> YamlNode:
        """Return a child of this node; `name` is added to the path."""
        return YamlNode(node, self.file, f"{self.name}.{name}" if self.name else name, (*self.above, self.node))

    def error(self, message: str) -> PipelineError:
        """Return an error with this message and the place of the node."""
        return PipelineError(message, self.place)

    def wrong_kind(self, *, expected: str) -> PipelineError:
        """Return the error for a node that is not what was `expected`, such as ``a list``."""
        if self.is_null:
            return self.error(f"{self.called} is missing: it must be {expected}")
        return self.error(f"{self.called} must be {expected}, not {self.kind}")

    def text(self) -> str:
        """Return the value as text, exactly as written (``no`` and ``2024`` are also text).

        Raise PipelineError for null, empty text, and characters that text must not have.
        """
        if not self.is_scalar or self.is_null:
            raise self.wrong_kind(expected="text")
        text: str = self.node.value
        if not text:
            msg = f"{self.called} must not be empty"
            raise self.error(msg)
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text):
            msg = f"{self.called} contains a character that is not allowed in text (U+0000 or half of a surrogate pair)"
            raise self.error(msg)
        return text

    def number(self) -> int:
        """Read a whole number."""
        text = self.text()
        try:
            return int(text)
        except ValueError:
            msg = f"{self.called} must be a whole number, not {text!r}"
            raise self.error(msg) from None  # the cause quotes the text, which may be secret

    def fraction(self) -> float:
        """Read a number such as 0.99."""
        text = self.text()
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            msg = f"{self.called} must be a number, such as 0.99, not {text!r}"
            raise self.error(msg)
        return number

    def choice(self, options: Iterable[T]) -> T:
        """Return the option whose text is the value; raise PipelineError if there is none."""
        text = self.text()
        known = {str(option): option for option in options}
        if text not in known:
            msg = f"{self.called} must be {' or '.join(known)}, not {text!r}"
            raise self.error(msg)
        return known[text]

    def duration(self) -> int:
        """Read a duration in microseconds."""
        return self.parsed(m.parse_duration)

    def parsed(self, parse: Callable[[str], T]) -> T:
        """Parse the text with a function that raises PipelineError for invalid text, and add the place to its error."""
        text = self.text()
        try:
            return parse(text)
        except PipelineError as exc:
            msg = f"{self.called}: {exc.message}"
            raise self.error(msg) from exc

    def items(self) -> list[YamlNode]:
        """Read a list."""
        if not self.is_list:
            raise self.wrong_kind(expected="a list")
        return [self.under(node, str(index)) for index, node in enumerate(self.node.value)]

    def each(self, read: Callable[[YamlNode], T]) -> tuple[T, ...]:
        """Read each item of a list; raise the errors of all items as one PipelineError."""
        return call_all(partial(read, item) for item in self.items())


D = TypeVar("D")


@dataclass(frozen=True)
class ReadResult(Generic[T]):
    """The value of a key, or the error in it, which the mapping reports together with its other errors."""

    result: T | PipelineError

    @property
    def value(self) -> T:
        """The value; if reading it failed, getting it raises the error."""
        if isinstance(self.result, PipelineError):
            raise self.result
        return self.result


_SYNONYMS = {
    **dict.fromkeys(("tumble", "fixed", "calendar"), "tumbling"),
    **dict.fromkeys(("hop", "slide", "sliding"), "hopping"),
    **dict.fromkeys(("cumulative", "cumulating"), "cumulate"),
    **dict.fromkeys(("sessions", "session_window"), "session"),
}
"""Names of windows in other engines, and the key for them."""


class YamlMapping:
    """Reads a mapping and collects the errors in it.

    `check` raises all errors as one PipelineError. Values must not be used before `check`.
    """

    def __init__(self, node: YamlNode, known: Sequence[str] | None = None) -> None:
        """Read the entries of a mapping. Keys that are not in `known` are errors; None allows all keys."""
        self.node = node
        self._errors: list[PipelineError] = []
        self._meant: set[str] = set()
        self._entries: dict[str, YamlNode] = {}
        for key, entry in self._pairs():
            if known is None or key.node.value in known:
                self._entries[key.node.value] = entry
            else:
                self._unknown(key, known)

    def __iter__(self) -> Iterator[tuple[str, YamlNode]]:
        """Iterate over the entries in the order of the file."""
        return iter(self._entries.items())

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def problem(self, error: PipelineError) -> None:
        """Add an error to those of the mapping."""
        self._errors.append(error)

    def attempt(self, read: Callable[[YamlNode], T], node: YamlNode) -> ReadResult[T]:
        """Read a node; if this fails, add its errors to those of the mapping."""
        try:
            return ReadResult(read(node))
        except PipelineError as exc:
            self._errors.append(exc)
            return ReadResult(exc)

    def required(self, key: str, read: Callable[[YamlNode], T], hint: str = "") -> ReadResult[T]:
        """Read the value of a required key; `hint` is appended to the error message for a missing key."""
        if key in self._entries:
            return self.attempt(read, self._entries[key])
        error = self.node.error(f"{self.node.called} lacks {key!r} {hint}".rstrip())
        if key not in self._meant:
            self._errors.append(error)
        return ReadResult(error)

    def optional(self, key: str, read: Callable[[YamlNode], T], default: D) -> ReadResult[T | D]:
        """Read the value of a key, or return the default if the key is missing."""
        if key not in self._entries:
            return ReadResult(default)
        return ReadResult(self.attempt(read, self._entries[key]).result)

    def check(self) -> None:
        """Raise PipelineError if there are any errors."""
        if self._errors:
            raise join_errors(self._errors)

    def _pairs(self) -> Iterator[tuple[YamlNode, YamlNode]]:
        if not self.node.is_mapping:
            raise self.node.wrong_kind(expected="a mapping (key: value)")
        first: dict[str, YamlNode] = {}
        for key_node, node in self.node.node.value:
            key = self.node.under(key_node, "a key")
            if not isinstance(key_node, yaml.ScalarNode):
                self.problem(key.error(f"a key of {self.node.called} must be text, not {key.kind}"))
                continue
            named = YamlNode(key_node, self.node.file, f"a key of {self.node.called}")
            if isinstance(self.attempt(YamlNode.text, named).result, PipelineError):
                continue
            if key_node.value in first:
                line = first[key_node.value].place.line
                self.problem(
                    key.error(f"{key_node.value!r} is given twice in {self.node.called} (first on line {line})")
                )
                continue
            first[key_node.value] = key
            yield key, self.node.under(node, key_node.value)

    def _unknown(self, key: YamlNode, known: Sequence[str]) -> None:
        name: str = key.node.value
        synonym = _SYNONYMS.get(name.lower(), "")
        close = [synonym] if synonym in known else difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"expected {_one_of(known)}"
        self._meant.update(close)
        self.problem(key.error(f"{name!r} is not a key of {self.node.called}; {hint}"))


def read_one_of(node: YamlNode, what: str, readers: Mapping[str, Callable[[YamlNode], T]]) -> T:
    """Read a mapping whose only key is the kind of value, such as ``{tumbling: 5m}``."""
    if not node.is_mapping:
        raise node.wrong_kind(expected=f"a mapping such as {{{next(iter(readers))}: ...}}")
    fields = YamlMapping(node, tuple(readers))
    present = list(fields)
    if len(present) > 1:
        fields.problem(node.error(f"{node.called} must have one {what}, not {len(present)}"))
    read = [fields.attempt(readers[kind], entry) for kind, entry in present]
    fields.check()
    if not read:
        msg = f"{node.called} is empty; give one {what}: {' or '.join(readers)}"
        raise node.error(msg)
    return read[0].value


def _one_of(known: Sequence[str]) -> str:
    return known[0] if len(known) == 1 else f"one of {', '.join(known)}" if known else "none"


def read_texts(node: YamlNode, parse: Callable[[str], T]) -> tuple[tuple[str, T], ...]:
    """Read a mapping of names to texts; raise PipelineError, with file:line, for texts that `parse` rejects."""
    fields = YamlMapping(node)
    entries = list(fields)
    read = []
    cut = False
    for (name, entry), (_, after) in zip(entries, [*entries[1:], ("", None)], strict=False):
        if cut and entry.is_null:
            continue  # reported with the first part
        is_open = entry.is_scalar and entry.node.value.count("(") > entry.node.value.count(")")
        cut = is_open and after is not None and after.is_null
        if cut:
            msg = f'{entry.called}: a comma ends a value within {{...}}; put the text in quotes: "f(a, b)"'
            fields.problem(entry.error(msg))
        else:
            read.append((name, fields.attempt(lambda entry: entry.parsed(parse), entry)))
    fields.check()
    return tuple((name, value.value) for name, value in read)
