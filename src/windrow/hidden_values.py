"""Values of variables that messages, print-outs and logs do not show, and the search for a value however it is written.

`windrow.authoring.variables` adds the values of a pipeline. They stay for as long as the process lives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Final

_GAP: Final = r"\s\0-\x1f\x7f-\x9f'\"\\`"
"""Whitespace, control characters, quotes and backslashes: they grow, shrink and merge where a text is quoted."""
_IN_GAP: Final = re.compile(f"[{_GAP}]")
_AROUND: Final = re.compile(rf"\A[{_GAP}]+|[{_GAP}]+\Z")
_RUN: Final = re.compile(rf"[{_GAP}]+|(.)\1*", re.DOTALL)
_PERCENT: Final = "%(?:25)*"
_BACKSLASH: Final = rf"(?:\\|{_PERCENT}5c){{1,8}}"
_ENTITY: Final = rf"(?:&|{_PERCENT}26)(?:amp(?:;|{_PERCENT}3b))*"
_HASH: Final = rf"(?:\#|{_PERCENT}23)"
_END: Final = rf"(?:;|{_PERCENT}3b)"
_GAPS: Final = "|".join(
    (
        rf"[{_GAP}+]",
        r"(?:(?<=\\)|(?<=5c))(?:[0abefnrtvNLP_]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})",
        rf"{_PERCENT}(?:[01][0-9a-f]|2[027b]|5c|60|7f)",
        rf"{_PERCENT}(?:c2{_PERCENT}[89a]|e[123]{_PERCENT}[89a]0{_PERCENT}[89ab])[0-9a-f]",
        rf"{_ENTITY}(?:quot|apos|nbsp|{_HASH}(?:[0-9]{{1,5}}|x[0-9a-f]{{1,4}})){_END}",
        "<br ?/?>",
    )
)
_BASIC: Final = 0xFFFF
_SHORTEST: Final = 4
"""Length of the shortest hidden value: a shorter one is part of other words too."""
_FIGURE: Final = re.compile(r"[-+]?[0-9]{0,5}(?:\.[0-9]{0,5})?%?|(?:[0-9]+(?:us|ms|s|m|h|d))+")
"""A number of few digits, or a duration."""
_WORD: Final = re.compile(r"[^\W\d_]+|[0-9]+|.{0,5}", re.DOTALL)
"""A text that may be part of another word or number."""


def encoded_pattern(text: str) -> str:
    """Return a regular expression, without groups, that finds a text however it is printed.

    It finds the text as it is, and as Python, JSON, YAML, URLs, SQL, HTML and shells write it, also one form within
    another, and over several lines.
    """
    return "".join(_run_pattern(match[0]) for match in _RUN.finditer(text))


def strip_quotes(text: str) -> str:
    """Return a text without the whitespace and the quotes around it."""
    return _AROUND.sub("", text)


def _run_pattern(run: str) -> str:
    """Return the regular expression of a run of `_RUN`."""
    letter = run[0]
    if _IN_GAP.fullmatch(letter):
        return f"(?:{_GAPS})+"
    if letter.isascii() and letter.isalnum():
        return re.escape(run)
    most = 2 * len(run)  # YAML, formats and shells double some
    return f"(?:{'|'.join(_letter_patterns(letter))}){{{len(run)},{most}}}"


def _letter_patterns(letter: str) -> Iterator[str]:
    """Yield a regular expression for each way to write a character."""
    number, in_utf8 = ord(letter), letter.encode("utf-8", "surrogatepass")
    yield re.escape(letter)
    if not letter.isalnum():
        yield rf"{_BACKSLASH}{re.escape(letter)}"
    yield "".join(f"{_PERCENT}{byte:02x}" for byte in in_utf8)
    yield "".join(rf"{_BACKSLASH}x{byte:02x}" for byte in in_utf8)
    yield rf"{_BACKSLASH}(?:x{number:02x}|u{number:04x}|U{number:08x})"
    if number > _BASIC:  # as JSON writes it
        in_utf16 = letter.encode("utf-16-be").hex()
        yield rf"{_BACKSLASH}u{in_utf16[:4]}{_BACKSLASH}u{in_utf16[4:]}"
    named = escape(letter).strip("&;")
    yield f"{_ENTITY}(?:{_HASH}(?:{number}|x0*{number:x})|{re.escape(named)}){_END}"


def _word_pattern(word: str) -> str:
    """Return the regular expression that finds a value: one that may be part of other words stands alone."""
    pattern = encoded_pattern(word)
    if _WORD.fullmatch(word) is None:
        return pattern
    before = r"(?:(?<![^\W_])|(?<=\\[nrt])|(?<=%0[9AD]))" if word[0].isalnum() else ""
    return f"{before}{pattern}" + (r"(?![^\W_])" if word[-1].isalnum() else "")


def _is_distinct(word: str) -> bool:
    return len(word) >= _SHORTEST and _FIGURE.fullmatch(word) is None


class _WordSearch:
    """Finds words in a text however they are written, longer ones first."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(words, key=lambda word: (-len(word), word))
        self._pattern = re.compile("|".join(f"({_word_pattern(word)})" for word in self._words), re.IGNORECASE)

    def find(self, text: str) -> Iterator[str]:
        """Yield the word at each place of the text that has one."""
        return map(self._word, self._pattern.finditer(text))

    def replace(self, text: str, instead: Mapping[str, str]) -> str:
        """Return the text with another text in place of each word."""
        return self._pattern.sub(lambda match: instead[self._word(match)], text)

    def _word(self, match: re.Match[str]) -> str:
        return self._words[(match.lastindex or 1) - 1]


class _HiddenValues:
    """Values, each with the text that is printed in its place."""

    def __init__(self) -> None:
        self._instead: dict[str, str] = {}
        self._parts: dict[str, frozenset[str]] = {}
        self._cached: _WordSearch | None = None

    def add(self, value: str, instead: str, parts: Iterable[str] = ()) -> None:
        """Print `instead` for a value from now on, unless the value is too short to be distinct, or a number.

        A message that has the value in it has none of its `parts` either.
        """
        word = strip_quotes(value)
        if _is_distinct(word):
            self._instead[word] = instead
            self._parts[word] = self._parts.get(word, frozenset()).union(filter(_is_distinct, parts))
            self._cached = None

    def clear(self) -> None:
        """Forget the values."""
        self._instead.clear()
        self._parts.clear()
        self._cached = None

    def hide(self, text: str) -> str:
        """Return a text without the values."""
        return self._search().replace(text, self._instead) if self._instead else text

    def hide_in_message(self, text: str) -> str:
        """Return a message without the values in it, and without their parts, which it may quote."""
        found: set[str] = set(self._search().find(text)) if self._instead else set()
        if not found:
            return text
        instead = {part: self._instead[word] for word in sorted(found) for part in self._parts[word]}
        instead |= {word: self._instead[word] for word in found}
        return _WordSearch(instead).replace(text, instead)

    def are_in(self, text: str) -> bool:
        """Return whether a text has a value in it."""
        return bool(self._instead) and any(self._search().find(text))

    def _search(self) -> _WordSearch:
        if self._cached is None:
            self._cached = _WordSearch(self._instead)
        return self._cached


HIDDEN_VALUES: Final = _HiddenValues()
"""The values that are hidden in this process."""
