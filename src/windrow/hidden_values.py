"""Hide values of variables in messages, print-outs and logs, in whatever encoding they appear.

`windrow.authoring.variables` registers the values of a pipeline. They stay hidden for the lifetime of the process.
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
    """Return a regular expression, without groups, that finds a text in any encoding in which it may be printed.

    It finds the text itself and the forms that Python, JSON, YAML, URLs, SQL, HTML and shells give it, including one
    form nested in another, and a text broken over several lines.
    """
    return "".join(_run_pattern(match[0]) for match in _RUN.finditer(text))


def strip_quotes(text: str) -> str:
    """Remove the whitespace and quotes around a text."""
    return _AROUND.sub("", text)


def _run_pattern(run: str) -> str:
    """Return the regular expression for a match of `_RUN`: a run of one character, or of whitespace and quotes."""
    letter = run[0]
    if _IN_GAP.fullmatch(letter):
        return f"(?:{_GAPS})+"
    if letter.isascii() and letter.isalnum():
        return re.escape(run)
    most = 2 * len(run)  # YAML, formats and shells double some
    return f"(?:{'|'.join(_letter_patterns(letter))}){{{len(run)},{most}}}"


def _letter_patterns(letter: str) -> Iterator[str]:
    """Yield a regular expression for each way of writing a character."""
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
    """Return the regular expression for a hidden value; a short or plain word must not be part of a longer word."""
    pattern = encoded_pattern(word)
    if _WORD.fullmatch(word) is None:
        return pattern
    before = r"(?:(?<![^\W_])|(?<=\\[nrt])|(?<=%0[9AD]))" if word[0].isalnum() else ""
    return f"{before}{pattern}" + (r"(?![^\W_])" if word[-1].isalnum() else "")


def _is_distinct(word: str) -> bool:
    return len(word) >= _SHORTEST and _FIGURE.fullmatch(word) is None


class _WordSearch:
    """Finds words in a text in any encoding; longer words are matched first."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(words, key=lambda word: (-len(word), word))
        self._pattern = re.compile("|".join(f"({_word_pattern(word)})" for word in self._words), re.IGNORECASE)

    def find(self, text: str) -> Iterator[str]:
        """Yield each word that occurs in the text, once for each occurrence."""
        return map(self._word, self._pattern.finditer(text))

    def replace(self, text: str, instead: Mapping[str, str]) -> str:
        """Replace each word in the text by the text that `instead` maps it to."""
        return self._pattern.sub(lambda match: instead[self._word(match)], text)

    def _word(self, match: re.Match[str]) -> str:
        return self._words[(match.lastindex or 1) - 1]


class _HiddenValues:
    """A set of values that are not printed, with the text that is printed in place of each."""

    def __init__(self) -> None:
        self._instead: dict[str, str] = {}
        self._parts: dict[str, frozenset[str]] = {}
        self._cached: _WordSearch | None = None

    def add(self, value: str, instead: str, parts: Iterable[str] = ()) -> None:
        """Print `instead` in place of a value from now on, unless the value is a number or too short to be distinct.

        A message that contains the value does not show its `parts` either.
        """
        word = strip_quotes(value)
        if _is_distinct(word):
            self._instead[word] = instead
            self._parts[word] = self._parts.get(word, frozenset()).union(filter(_is_distinct, parts))
            self._cached = None

    def clear(self) -> None:
        """Stop hiding all values."""
        self._instead.clear()
        self._parts.clear()
        self._cached = None

    def hide(self, text: str) -> str:
        """Return the text with hidden values replaced."""
        return self._search().replace(text, self._instead) if self._instead else text

    def hide_in_message(self, text: str) -> str:
        """Return the message with hidden values replaced, and also the parts of these values, which it may quote."""
        found: set[str] = set(self._search().find(text)) if self._instead else set()
        if not found:
            return text
        instead = {part: self._instead[word] for word in sorted(found) for part in self._parts[word]}
        instead |= {word: self._instead[word] for word in found}
        return _WordSearch(instead).replace(text, instead)

    def are_in(self, text: str) -> bool:
        """Return True if the text contains a hidden value."""
        return bool(self._instead) and any(self._search().find(text))

    def _search(self) -> _WordSearch:
        if self._cached is None:
            self._cached = _WordSearch(self._instead)
        return self._cached


HIDDEN_VALUES: Final = _HiddenValues()
"""The values that are hidden in this process."""
