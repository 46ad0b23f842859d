"""Mappings of a YAML file: every key is known, there once, and read by its own reader."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import yaml

from windrow.api.problems import joined
from windrow.api.yaml.spot import Spot
from windrow.errors import PipelineError

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True)
class Read(Generic[T]):
    """What reading a key gave: its value, or the problem, which is told with the mapping's others."""

    result: T | PipelineError

    @property
    def value(self) -> T:
        """The value; raises the problem if there was one."""
        if isinstance(self.result, PipelineError):
            raise self.result
        return self.result


class Fields:
    """A mapping that is being read.

    Problems are collected, and `check` raises them all as one PipelineError; only then may values be used.
    """

    def __init__(self, spot: Spot, known: Sequence[str] | None = None) -> None:
        """Take the entries of a mapping; keys other than `known` are problems (None: any key will do)."""
        self.spot = spot
        self._errors: list[PipelineError] = []
        self._meant: set[str] = set()
        self._entries: dict[str, Spot] = {}
        for key, spot_ in self._pairs():
            if known is None or key.node.value in known:
                self._entries[key.node.value] = spot_
            else:
                self._unknown(key, known)

    def __iter__(self) -> Iterator[tuple[str, Spot]]:
        """Go through the entries in the order of the file."""
        return iter(self._entries.items())

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def problem(self, error: PipelineError) -> None:
        """Add a problem."""
        self._errors.append(error)

    def attempt(self, read: Callable[[Spot], T], spot: Spot) -> Read[T]:
        """Read a spot; its problems become this mapping's."""
        try:
            return Read(read(spot))
        except PipelineError as exc:
            self._errors.append(exc)
            return Read(exc)

    def required(self, key: str, read: Callable[[Spot], T], hint: str = "") -> Read[T]:
        """Read the value of a key that must be there; `hint` follows its name if it is not."""
        if key in self._entries:
            return self.attempt(read, self._entries[key])
        error = self.spot.error(f"{self.spot.called} needs the key {key!r} {hint}".rstrip())
        if key not in self._meant:
            self._errors.append(error)
        return Read(error)

    def optional(self, key: str, read: Callable[[Spot], T], default: D) -> Read[T | D]:
        """Read the value of a key, or take the default if it is not there."""
        if key not in self._entries:
            return Read(default)
        return Read(self.attempt(read, self._entries[key]).result)

    def check(self) -> None:
        """Raise what was found, if anything was."""
        if self._errors:
            raise joined(self._errors)

    def _pairs(self) -> Iterator[tuple[Spot, Spot]]:
        if not self.spot.is_mapping:
            msg = f"{self.spot.called} must be a mapping (key: value), not {self.spot.kind}"
            raise self.spot.error(msg)
        first: dict[str, Spot] = {}
        for key_node, node in self.spot.node.value:
            key = self.spot.under(key_node, "a key")
            if not isinstance(key_node, yaml.ScalarNode):
                self.problem(key.error(f"a key of {self.spot.called} must be a text, not {key.kind}"))
                continue
            named = Spot(key_node, self.spot.file, f"a key of {self.spot.called}")
            if isinstance(self.attempt(Spot.text, named).result, PipelineError):
                continue
            if key_node.value in first:
                line = first[key_node.value].place.line
                self.problem(key.error(f"{key_node.value!r} is twice in {self.spot.called} (first on line {line})"))
                continue
            first[key_node.value] = key
            yield key, self.spot.under(node, key_node.value)

    def _unknown(self, key: Spot, known: Sequence[str]) -> None:
        name: str = key.node.value
        # case counts for nothing in a guess
        close = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"expected {_one_of(known)}"
        self._meant.update(close)
        self.problem(key.error(f"{name!r} is not a key of {self.spot.called}; {hint}"))


def read_one_of(spot: Spot, what: str, readers: Mapping[str, Callable[[Spot], T]]) -> T:
    """Read a mapping whose one key says which kind it is, such as ``{tumbling: 5m}``."""
    if not spot.is_mapping:
        msg = f"{spot.called} must be a mapping such as {{{next(iter(readers))}: ...}}, not {spot.kind}"
        raise spot.error(msg)
    fields = Fields(spot, tuple(readers))
    present = list(fields)
    if len(present) > 1:
        fields.problem(spot.error(f"{spot.called} must be one {what}, not {len(present)}"))
    read = [fields.attempt(readers[kind], entry) for kind, entry in present]
    fields.check()
    if not read:
        msg = f"{spot.called} is empty; give one {what}: {' or '.join(readers)}"
        raise spot.error(msg)
    return read[0].value


def _one_of(known: Sequence[str]) -> str:
    if not known:
        return "none"
    return known[0] if len(known) == 1 else f"one of {', '.join(known)}"
