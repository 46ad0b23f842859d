"""A node of a YAML file with its name and place, and how it is read as text, a choice, a duration or a list."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import yaml

from windrow.api.problems import joined
from windrow.errors import PipelineError, Place
from windrow.model import parse_duration

T = TypeVar("T")
_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True)
class Spot:
    """A node of `file`; `name` is the way to it, such as ``window.tumbling`` (empty for the whole file)."""

    node: yaml.Node
    file: str
    name: str = ""

    @property
    def place(self) -> Place:
        """Where the node begins."""
        return Place(self.file, self.node.start_mark.line + 1)

    @property
    def called(self) -> str:
        """The name as it is said in a message."""
        return self.name or "the pipeline"

    @property
    def is_scalar(self) -> bool:
        """Whether it is one value, and no list or mapping."""
        return isinstance(self.node, yaml.ScalarNode)

    @property
    def is_null(self) -> bool:
        """Whether it is nothing: left out, ``~`` or ``null``."""
        return bool(self.node.tag == _NULL)

    @property
    def is_mapping(self) -> bool:
        """Whether it is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def kind(self) -> str:
        """What it is, as said in a message."""
        match self.node:
            case yaml.MappingNode():
                return "a mapping"
            case yaml.SequenceNode():
                return "a list"
            case yaml.ScalarNode() if self.is_null:
                return "nothing"
            case _:
                return "a text"  # which is not repeated: it may hold a password

    def under(self, node: yaml.Node, name: str) -> Spot:
        """Return the spot of a node below this one."""
        return Spot(node, self.file, f"{self.name}.{name}" if self.name else name)

    def error(self, message: str) -> PipelineError:
        """Return the error that `message` is at this place."""
        return PipelineError(message, self.place)

    def text(self) -> str:
        """Read a value as it is written: ``no`` and ``2024`` are texts too. Null and empty text are errors."""
        if not self.is_scalar or self.is_null:
            msg = f"{self.called} must be a text, not {self.kind}"
            raise self.error(msg)
        text: str = self.node.value
        if not text:
            msg = f"{self.called} must not be empty"
            raise self.error(msg)
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text):
            msg = f"{self.called} holds a character that no text can hold (U+0000 or half a surrogate pair)"
            raise self.error(msg)
        return text

    def number(self) -> int:
        """Read a whole number."""
        text = self.text()
        try:
            return int(text)
        except ValueError as exc:
            msg = f"{self.called} must be a whole number, not {text!r}"
            raise self.error(msg) from exc

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
        """Read one of the texts in `options`."""
        text = self.text()
        known = tuple(options)
        for option in known:
            if option == text:
                return option
        msg = f"{self.called} must be {_either(known)}, not {text!r}"
        raise self.error(msg)

    def duration(self) -> int:
        """Read a duration as microseconds."""
        return self.parsed(parse_duration)

    def parsed(self, parse: Callable[[str], T]) -> T:
        """Read a text by a function that raises PipelineError for what it cannot read."""
        text = self.text()
        try:
            return parse(text)
        except PipelineError as exc:
            msg = f"{self.called}: {exc.message}"
            raise self.error(msg) from exc

    def items(self) -> list[Spot]:
        """Read a list."""
        if not self.is_list:
            msg = f"{self.called} must be a list, not {self.kind}"
            raise self.error(msg)
        return [self.under(node, str(index)) for index, node in enumerate(self.node.value)]

    def each(self, read: Callable[[Spot], T]) -> tuple[T, ...]:
        """Read each item of a list; raise the problems of all of them as one PipelineError."""
        values: list[T] = []
        errors: list[PipelineError] = []
        for item in self.items():
            try:
                values.append(read(item))
            except PipelineError as exc:
                errors.append(exc)
        if errors:
            raise joined(errors)
        return tuple(values)


def _either(options: tuple[object, ...]) -> str:
    return " or ".join(str(option) for option in options)
