"""The text of an aggregate: ``sum(price * quantity) where kind = 'buy'``, or a formula over other results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from windrow.api.calls import NAMES, make_function
from windrow.errors import PipelineError
from windrow.model import Formula, Function

_CALL = re.compile(r"\s*(\w+)\s*\(")
_WHERE = re.compile(r"where\b", re.IGNORECASE)
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Measure:
    """What a result is computed by, before it has a name."""

    function: Function
    where: str | None = None


def parse_aggregate(text: str) -> Measure:
    """Read the text of an aggregate; raise PipelineError if it is a call that is not as it should be."""
    call = _CALL.match(text)
    if call is None or call[1] not in NAMES:
        return Measure(Formula(text.strip()))
    end = _end(text, call.end() - 1)
    if end is None:
        msg = f"{text!r} lacks a closing bracket or quote"
        raise PipelineError(msg)
    arguments = [named(argument) for argument in _split(text[call.end() : end])]
    where = _condition(text, text[end + 1 :].strip())
    return Measure(make_function(call[1], [] if arguments == [""] else arguments), where)


def named(argument: str) -> str:
    """Return an argument as a model holds it: a name that cannot stand by itself is written in double quotes."""
    bare = argument.strip()
    quoted = _QUOTED.fullmatch(bare)
    name = quoted[1].replace('""', '"') if quoted else bare
    return bare if stands_alone(name) else name


def argument_text(argument: str) -> str:
    """Return an argument so that it reads back as itself."""
    if stands_alone(argument):
        return argument
    escaped = argument.replace('"', '""')
    return f'"{escaped}"'


def stands_alone(text: str) -> bool:
    """Whether a text is one argument: no blanks around it, no comma outside brackets, brackets and quotes closed."""
    return bool(text) and text == text.strip() and _end(f"({text})", 0) == len(text) + 1 and len(_split(text)) == 1


def _condition(text: str, rest: str) -> str | None:
    if not rest:
        return None
    where = _WHERE.match(rest)
    if where is None:
        msg = (
            f"{text!r} is neither one aggregate nor a formula over results: give each aggregate a name, and compute "
            "with the names, such as {total: sum(amount), events: count(), mean: total / events}"
        )
        raise PipelineError(msg)
    condition = rest[where.end() :].strip()
    if not condition:
        msg = f"{text!r} needs a condition after `where`, such as where kind = 'buy'"
        raise PipelineError(msg)
    return condition


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotes."""
    cuts = [at for at, character, depth in _scan(text) if character == "," and depth == 0]
    return [text[begin + 1 : end] for begin, end in zip([-1, *cuts], [*cuts, len(text)], strict=True)]


def _end(text: str, begin: int) -> int | None:
    """Return where the bracket that opens at `begin` closes; None if it does not, or if brackets cross."""
    opened: list[str] = []
    for at, character, _ in _scan(text[begin:]):
        if character in _CLOSING:
            opened.append(_CLOSING[character])
        elif character in _CLOSING.values():
            if opened.pop() != character:
                return None
            if not opened:
                return begin + at
    return None


def _scan(text: str) -> Iterator[tuple[int, str, int]]:
    """Go through the characters outside of quotes, with how many brackets are open before each."""
    quote, depth = "", 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            yield at, character, depth
            depth += (character in _CLOSING) - (character in _CLOSING.values())
