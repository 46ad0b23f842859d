"""Errors: all exceptions that windrow raises deliberately.

::

    WindrowError
    ├── InputError               the input is wrong               exit code 2
    │   ├── PipelineError        a pipeline, with file:line
    │   │   ├── ManyProblemsError        several problems of one pipeline
    │   │   ├── ArgumentError            an argument in Python of a wrong type (also a TypeError)
    │   │   └── StageError               a method in Python that a stage does not have (also an AttributeError)
    │   ├── TranscriptError      a story, with file:line
    │   ├── CheckpointError      a checkpoint or savepoint that is missing, damaged or of another pipeline
    │   ├── SetupError           Java, a jar or a package is missing, here or on an executor
    │   └── SinkAddressError     the sink's path or url cannot be used (also a SinkError)
    └── RunError                 the run failed                   exit code 1
        ├── SourceError          the log or the broker
        │   ├── SourceUnavailableError   it does not answer now, or does not know the topic
        │   └── RecordsLostError         unread records are lost
        ├── SinkError            the database
        │   └── SinkUnavailableError     it does not answer now, or somebody holds a lock
        ├── LimitError           more dead letters or expired records than were allowed     exit code 3
        ├── EngineError          Spark
        │   └── WorkerLostError          a Python worker of Spark has died
        └── StoppedError         an explanation that nobody waits for

The exit code follows one rule. It is 2 if what the user gave (options, files, paths, urls, a checkpoint) is wrong and
that was found before anything ran, also if it names a table, a partition or an offset that does not exist. It is 1 if
a server, Spark or the machine refused or failed, or if what a database or a log holds does not fit the command. It is
3 if the command did its work, and its records do not meet a limit that was given.

Each message says what is wrong, where, and what to do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from opcode import opmap
from typing import Final, TypeVar

T = TypeVar("T")

_MOST: Final = 2000
"""Characters of an error's text."""
_RAISE: Final = opmap["RAISE_VARARGS"]


@dataclass(frozen=True)
class Place:
    """A position in a file that a person wrote; lines and columns count from 1."""

    file: str
    line: int
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + ("" if self.column is None else f":{self.column}")


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return the end of a message that names the name that was likely meant; empty if none is near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(given).lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def not_one_of(given: object, options: Sequence[object]) -> str:
    """Return what is said of a value that is none of those it can be."""
    *first, last = (repr(option) for option in options)
    texts = [option for option in options if isinstance(option, str)]
    either = f"{', '.join(first)} or {last}" if first else last
    return f"must be {either}, not {given!r}{did_you_mean(given, texts)}"


def encodable(text: str) -> str:
    """Return a text with escapes for what UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()


def described(exc: BaseException) -> str:
    """Return the kind of an error of the user's code and its text, on one line, whatever that does."""
    try:
        text = HIDDEN_VALUES.hide(" ".join(str(exc).split()))
    except BaseException as of_text:  # noqa: BLE001 - it is said of the one that is described
        text = f"its text cannot be had, as {type(of_text).__name__} is raised"
    if len(text) > _MOST:
        text = f"{text[:_MOST]}..."
    return encodable(f"{type(exc).__name__}: {text}" if text else type(exc).__name__)


def is_interrupt(exc: BaseException) -> bool:
    """Return whether a signal raised an exception of the user's code: its handler has no `raise` statement."""
    place = exc.__traceback__
    if not isinstance(exc, KeyboardInterrupt) or place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_code.co_code[place.tb_lasti] != _RAISE


def encoded_pattern(text: str) -> str:
    """Return a regular expression that finds a text however it is printed.

    As it is, and as Python, JSON, YAML, URLs, SQL, HTML and shells write it, also one form within another, and over
    several lines. There is no group in it.
    """
    return "".join(_encoded_run(match[0]) for match in _RUN.finditer(text))


def unquoted(text: str) -> str:
    """Return a text without the whitespace and the quotes around it."""
    return _AROUND.sub("", text)


_GAP: Final = r"\s\0-\x1f\x7f-\x9f'\"\\`"
"""Whitespace, control characters, quotes and backslashes: they grow, shrink and merge where a text is quoted."""
_RUN: Final = re.compile(rf"[{_GAP}]+|(.)\1*", re.DOTALL)
_PERCENT: Final = "%(?:25)*"
_BACKSLASH: Final = rf"(?:\\|{_PERCENT}5c){{1,8}}"
_ENTITY: Final = rf"(?:&|{_PERCENT}26)(?:amp(?:;|{_PERCENT}3b))*"
_HASH: Final = rf"(?:\#|{_PERCENT}23)"
_END: Final = rf"(?:;|{_PERCENT}3b)"
_GAPS: Final = "|".join(
    (
        rf"[{_GAP}+]",
        r"(?:(?<=\\)|(?<=5c))(?:[abefnrtvNLP_]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})",
        rf"{_PERCENT}(?:[01][0-9a-f]|2[027b]|5c|60|7f)",
        rf"{_PERCENT}(?:c2{_PERCENT}[89a]|e[123]{_PERCENT}[89a]0{_PERCENT}[89ab])[0-9a-f]",
        rf"{_ENTITY}(?:quot|apos|nbsp|{_HASH}(?:[0-9]{{1,5}}|x[0-9a-f]{{1,4}})){_END}",
        "<br ?/?>",
    )
)


def _encoded_run(run: str) -> str:
    """Return the regular expression of a run of `_RUN`."""
    letter = run[0]
    if _IN_GAP.fullmatch(letter):
        return f"(?:{_GAPS})+"
    if letter.isascii() and letter.isalnum():
        return re.escape(run)
    most = 2 * len(run)  # YAML, formats and shells double some
    return f"(?:{'|'.join(_encoded(letter))}){{{len(run)},{most}}}"


_IN_GAP: Final = re.compile(f"[{_GAP}]")
_AROUND: Final = re.compile(rf"\A[{_GAP}]+|[{_GAP}]+\Z")


def _encoded(letter: str) -> Iterator[str]:
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


_BASIC: Final = 0xFFFF


class _HiddenValues:
    """Values of variables, each with what is printed in its place; those of a pipeline stay while the process lives."""

    def __init__(self) -> None:
        self._instead: dict[str, str] = {}
        self._parts: dict[str, frozenset[str]] = {}
        self._search: tuple[re.Pattern[str], tuple[str, ...]] | None = None

    def add(self, value: str, instead: str, parts: Iterable[str] = ()) -> None:
        """Print `instead` for a value from now on, unless it is too short to be told from other text, or a number.

        A message that has the value in it has none of these parts of it either.
        """
        word = unquoted(value)
        if _is_distinct(word):
            self._instead[word] = instead
            self._parts[word] = self._parts.get(word, frozenset()).union(filter(_is_distinct, parts))
            self._search = None

    def clear(self) -> None:
        """Forget the values."""
        self._instead.clear()
        self._parts.clear()
        self._search = None

    def hide(self, text: str) -> str:
        """Return a text without the values."""
        if not self._instead:
            return text
        pattern, words = self._searching()
        return pattern.sub(lambda match: self._instead[words[(match.lastindex or 1) - 1]], text)

    def hide_in_message(self, text: str) -> str:
        """Return a message without the values, and without the parts of those that it has, which it may quote."""
        if not self._instead:
            return text
        pattern, words = self._searching()
        found = {words[(match.lastindex or 1) - 1] for match in pattern.finditer(text)}
        instead = {part: self._instead[word] for word in sorted(found) for part in self._parts[word]}
        instead |= {word: self._instead[word] for word in found}
        if not instead:
            return text
        pattern, words = _search(instead)
        return pattern.sub(lambda match: instead[words[(match.lastindex or 1) - 1]], text)

    def are_in(self, text: str) -> bool:
        """Return whether there are values in a text."""
        return bool(self._instead) and self._searching()[0].search(text) is not None

    def _searching(self) -> tuple[re.Pattern[str], tuple[str, ...]]:
        if self._search is None:
            self._search = _search(self._instead)
        return self._search


def _search(words: Iterable[str]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return a regular expression that finds words, longer ones first, and the word of each of its groups."""
    longest_first = tuple(sorted(words, key=lambda word: (-len(word), word)))
    pattern = "|".join(f"({_searched(word)})" for word in longest_first)
    return re.compile(pattern, re.IGNORECASE), longest_first


def _is_distinct(word: str) -> bool:
    return len(word) >= _SHORTEST and _FIGURE.fullmatch(word) is None


_SHORTEST: Final = 4
"""Characters of a value that is hidden: a shorter one is in other words too."""
_FIGURE: Final = re.compile(r"[-+]?[0-9]{0,5}(?:\.[0-9]{0,5})?%?|(?:[0-9]+(?:us|ms|s|m|h|d))+")
"""A number of few digits, or a duration."""
_WORD: Final = re.compile(r"[^\W\d_]+|[0-9]+|.{0,5}", re.DOTALL)
"""What is a part of other words and numbers."""


def _searched(word: str) -> str:
    """Return the regular expression that finds a value: one that may be a part of other words stands alone."""
    pattern = encoded_pattern(word)
    if _WORD.fullmatch(word) is None:
        return pattern
    before = r"(?:(?<![^\W_])|(?<=\\[nrt])|(?<=%0[9AD]))" if word[0].isalnum() else ""
    return f"{before}{pattern}" + (r"(?![^\W_])" if word[-1].isalnum() else "")


HIDDEN_VALUES: Final = _HiddenValues()
"""The values of variables that messages, print-outs and logs do not show (`windrow.authoring.variables` adds them)."""


class WindrowError(Exception):
    """Base class of all errors that windrow raises deliberately; its text shows no value of a variable."""

    exit_code = 1

    def __str__(self) -> str:
        return HIDDEN_VALUES.hide_in_message(super().__str__())

    def __repr__(self) -> str:
        return HIDDEN_VALUES.hide_in_message(super().__repr__())


class InputError(WindrowError):
    """The input is wrong, which was found before anything ran."""

    exit_code = 2

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message if place is None else f"{place}: {message}")
        self._message = message
        self.place = place

    @property
    def message(self) -> str:
        """The text without its place."""
        return HIDDEN_VALUES.hide_in_message(self._message)


class PipelineError(InputError):
    """A pipeline that cannot be read or is invalid."""


class ArgumentError(PipelineError, TypeError):
    """An argument of a call in Python is of another type than the call takes."""


class StageError(PipelineError, AttributeError):
    """A stage of a pipeline in Python has no such method: it may be one of another stage."""


class TranscriptError(InputError):
    """A story that cannot be read."""


class CheckpointError(InputError):
    """A checkpoint or savepoint that is missing, damaged or of another pipeline."""


class SetupError(InputError):
    """Something that windrow needs is not installed."""


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Raise SetupError, with the extra of windrow to install, if the block imports what is missing or too old.

    `what` needs it, such as ``a pipeline in SQL``.
    """
    try:
        yield
    except ImportError as exc:
        if (exc.name or "").partition(".")[0] == "windrow":
            raise
        msg = f"{what} needs the packages of windrow[{extra}] ({exc}): pip install 'windrow[{extra}]'"
        raise SetupError(msg) from exc


class RunError(WindrowError):
    """The run failed; committed steps are kept."""

    passes = False
    """Whether the error may be temporary: a run then retries for a while."""


class SourceError(RunError):
    """The log could not be read."""


class SourceUnavailableError(SourceError):
    """The broker does not respond, or does not know the topic (yet, or while it starts)."""

    passes = True


class RecordsLostError(SourceError):
    """Unread records were lost; a run determines which, and may continue with what is left."""

    passes = True


class SinkError(RunError):
    """The results could not be written."""


class SinkUnavailableError(SinkError):
    """The database does not respond, or another session holds a lock."""

    passes = True


class SinkAddressError(InputError, SinkError):
    """The sink's path or url cannot be used: a missing folder, a file that is not a database, an invalid url."""


class LimitError(RunError):
    """More records are dead letters or expired than the run was allowed; the results stay."""

    exit_code = 3


class EngineError(RunError):
    """Spark failed."""


class WorkerLostError(EngineError):
    """A Python worker of Spark died, or did not start in time."""

    passes = True


class CheckpointBusyError(EngineError):
    """Another process was still ending its last step as this one began, with the same checkpoint."""

    passes = True


class StoppedError(RunError):
    """An explanation was stopped before it was done."""

    def __init__(self) -> None:
        super().__init__("the explanation was stopped, as nobody waited for it: ask again")


class ManyProblemsError(PipelineError):
    """Several problems of a pipeline; `errors` has each of them, in the order of the file."""

    def __init__(self, errors: Sequence[PipelineError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.place = errors[0].place


def each_error(error: PipelineError) -> tuple[PipelineError, ...]:
    """Return the problems that an error consists of."""
    return error.errors if isinstance(error, ManyProblemsError) else (error,)


def join_errors(errors: Sequence[PipelineError]) -> PipelineError:
    """Return one error for at least one, with the problems in the order of the file."""
    single = [one for error in errors for one in each_error(error)]
    if len(single) == 1:
        return single[0]
    return ManyProblemsError(sorted(single, key=lambda error: error.place.line if error.place else 0))


def call_all(calls: Iterable[Callable[[], T]]) -> tuple[T, ...]:
    """Return the results of all calls; raise the problems of all that fail as one PipelineError."""
    results: list[T] = []
    errors: list[PipelineError] = []
    for call in calls:
        try:
            results.append(call())
        except PipelineError as exc:
            errors.append(exc)
    if errors:
        raise join_errors(errors)
    return tuple(results)
