"""The text of a call, cut into its parts where SQL cuts it: ``sum(price * qty) where kind = 'buy'``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_PLAIN = re.compile(r"\s*(\w+)\s*\(([\w\s.,]*)\)\s*")
_WORD = re.compile(r"\w+")
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True)
class Call:
    """A function's name, the texts of its arguments, and the condition behind `where`, if there is one."""

    name: str
    arguments: tuple[str, ...]
    where: str | None


def split_call(text: str) -> Call | None:
    """Cut a call with an optional condition into its parts; return None for any other text.

    Brackets and commas in quotes or in comments are none. What the parts mean is not looked at.
    """
    plain = _PLAIN.fullmatch(text)
    if plain:
        return Call(plain[1], _given([argument.strip() for argument in plain[2].split(",")]), None)
    tokens = list(_tokens(text))
    if [_WORD.fullmatch(part) is not None for _, part in tokens[:2]] != [True, False] or tokens[1][1] != "(":
        return None
    depth, cuts = 0, [tokens[1][0]]
    for number, (position, part) in enumerate(tokens[1:], 1):
        depth += (part in _OPEN) - (part in _CLOSE)
        if depth == 0 or (depth == 1 and part == ","):
            cuts.append(position)
        if depth == 0:
            where = _where(text, tokens[number + 1 :])
            arguments = [text[start + 1 : end].strip() for start, end in pairwise(cuts)]
            return None if where is None else Call(tokens[0][1], _given(arguments), where or None)
    return None


def _given(arguments: list[str]) -> tuple[str, ...]:
    return () if arguments == [""] else tuple(arguments)


def _where(text: str, rest: list[tuple[int, str]]) -> str | None:
    """Return the condition that the tokens behind a call are, empty if there are none; None if they are another."""
    if not rest:
        return ""
    if rest[0][1].lower() != "where" or len(rest) == 1:
        return None
    return text[rest[1][0] :].strip()


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Yield the tokens of SQL with their positions; brackets and commas by themselves, a text with its quotes."""
    import duckdb  # noqa: PLC0415 - it is heavy, and plain calls are cut without it

    # the positions are those of bytes
    written = text.encode()
    found = [(len(written[:position].decode()), str(kind)) for position, kind in duckdb.tokenize(text)]
    starts = [position for position, _ in found]
    for (start, kind), end in zip(found, [*starts[1:], len(text)], strict=False):
        if not kind.endswith("comment"):
            yield start, text[start:end].strip()
