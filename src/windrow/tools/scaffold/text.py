"""The text of a drafted pipeline: YAML, with what each part was chosen by beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import yaml

_COMMENT_AT: Final = 44
"""The column at which comments stand, if the lines are not longer."""
_WIDEST: Final = 120


@dataclass(frozen=True)
class Choice:
    """A chosen value in YAML, and the reason."""

    value: str
    why: str


@dataclass
class DraftText:
    """The parts of a pipeline as they are chosen; `written` is valid as soon as there are fields and a time.

    `is_wide` if sums may have more digits than NUMERIC columns of SQLite keep.
    """

    name: str
    source: str
    size: str
    place: str
    whole: bool
    time: Choice = Choice("", "")
    delay: Choice = Choice("10m", "")
    key: Choice = Choice("[]", "")
    lateness: Choice = Choice("1h", "")
    future: str | None = "1h"
    window: str = "1m"
    results: dict[str, str] = field(default_factory=lambda: {"events": "count()"})
    dead: list[str] = field(default_factory=list)
    is_wide: bool = False
    _fields: list[tuple[str, str]] = field(default_factory=list)
    _left: list[tuple[str, str]] = field(default_factory=list)

    def add_field(self, name: str, type_: str, path: Sequence[str], why: str) -> None:
        """Add a field; `path` is empty if records have it under its name."""
        value = type_
        if path:
            value = f"{{type: {self.scalar(type_)}, path: {self.scalar('.'.join(path))}}}"
        self._fields.append((f"  {self.scalar(name)}: {value}", why))

    def left_out(self, name: str, why: str) -> None:
        """Add a field of the records that the pipeline does not have."""
        self._left.append((name, why))

    @staticmethod
    def scalar(text: str) -> str:
        """Write text as YAML, with quotes where it needs them."""
        is_plain = re.fullmatch(r"[A-Za-z_./][\w./-]*", text, re.ASCII) and yaml.safe_load(text) == text
        return text if is_plain else json.dumps(text, ensure_ascii=False)

    @property
    def table(self) -> str:
        """The name of the table of results."""
        word = re.sub(r"\W+", "_", self.name, flags=re.ASCII).strip("_").lower()[:40] or "records"
        return f"{word if word[0].isalpha() else f't_{word}'}_{self.window}"

    def written(self) -> str:
        """Return the text."""
        return "\n".join(_aligned([*self._lines()])) + "\n"

    def _lines(self) -> Iterator[tuple[str, str]]:
        named = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("._-")[:80] or "records"
        yield f"# Drafted by `windrow init --from {self.place}` from {self.size}{'' if self.whole else ' of more'}.", ""
        yield "# What was guessed, and why, is said beside it: change what is wrong, and `windrow check` the file.", ""
        for reason in self.dead:
            yield f"# Dead letters of the sample: {reason}"[:_WIDEST], ""
        yield f"name: {self.scalar(named)}", ""
        yield f"source: {self.source}", ""
        yield "decode:", ""
        yield from self._fields
        for name, why in self._left:
            yield f"  # left out: {' '.join(name.split())} ({why})"[:_WIDEST], ""
        yield "time:", ""
        yield f"  field: {self.scalar(self.time.value)}", self.time.why
        yield f"  delay: {self.delay.value}", self.delay.why
        if self.future is not None:
            yield f"  future: {self.future}", "farther ahead of its log timestamp is a record of a wrong clock"
        yield f"key: {self.key.value}", self.key.why
        yield f"window: {{tumbling: {self.window}}}", ""
        yield "aggregate:", ""
        yield from ((f"  {self.scalar(name)}: {sql}", "") for name, sql in self.results.items())
        yield f"emit: {{lateness: {self.lateness.value}}}", self.lateness.why
        digits = ", decimals: text" if self.is_wide else ""
        yield f"sink: {{sqlite: {{path: {self.table}.db, table: {self.table}{digits}}}}}", ""


def _aligned(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Put comments beside their lines, or above those that are long."""
    for line, why in lines:
        comment = " ".join(f"# {why}".split())[: _WIDEST - 2]
        if not why:
            yield line
        elif max(len(line) + 2, _COMMENT_AT) + len(comment) <= _WIDEST:
            yield f"{line:<{_COMMENT_AT - 2}}  {comment}"
        else:
            indent = " " * (len(line) - len(line.lstrip()))
            yield f"{indent}{comment}"
            yield line
