"""Errors: all exceptions that windrow raises deliberately.

::

    WindrowError
    ├── InputError               the input is wrong               exit code 2
    │   ├── PipelineError        a pipeline, with file:line
    │   │   ├── ManyProblemsError        several problems of one pipeline
    │   │   ├── ArgumentError            an argument in Python of a wrong type (also a TypeError)
    │   │   └── StageError               a method in Python that a stage lacks (also an AttributeError)
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
        └── StoppedError         an explanation whose request was closed

The exit code follows one rule. It is 2 if what the user gave (options, files, paths, urls, a checkpoint) is wrong and
that was found before anything ran, also if it names a table, a partition or an offset that does not exist. It is 1 if
a server, Spark or the machine refused or failed, or if what a database or a log holds does not fit the command. It is
3 if the command did its work, and its records do not meet a limit that was given.

Each message says what is wrong, where, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from opcode import opmap
from typing import Final, TypeVar

from windrow.hidden_values import HIDDEN_VALUES as HIDDEN_VALUES  # noqa: PLC0414 - errors hide them for all rooms

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
    """Return the end of a message that suggests the likely name; empty if no known name is close."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(given).lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def not_one_of(given: object, options: Sequence[object]) -> str:
    """Return the message for a value that is not one of the options."""
    *first, last = (repr(option) for option in options)
    texts = [option for option in options if isinstance(option, str)]
    either = f"{', '.join(first)} or {last}" if first else last
    return f"must be {either}, not {given!r}{did_you_mean(given, texts)}"


def encodable(text: str) -> str:
    """Return a text with escapes for the characters that UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()


def described(exc: BaseException) -> str:
    """Return the type and text of an error raised by the user's code, on one line, even if its `__str__` fails."""
    try:
        text = HIDDEN_VALUES.hide(" ".join(str(exc).split()))
    except BaseException as failure:  # noqa: BLE001 - the caller reports `exc`
        text = f"its __str__ raised {type(failure).__name__}"
    if len(text) > _MOST:
        text = f"{text[:_MOST]}..."
    return encodable(f"{type(exc).__name__}: {text}" if text else type(exc).__name__)


def is_interrupt(exc: BaseException) -> bool:
    """Return whether a signal interrupted the user's code: the last frame then has no `raise` statement."""
    place = exc.__traceback__
    if not isinstance(exc, KeyboardInterrupt) or place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_code.co_code[place.tb_lasti] != _RAISE


class WindrowError(Exception):
    """Base class of all errors that windrow raises deliberately; its text shows no value of a variable."""

    exit_code = 1

    def __str__(self) -> str:
        return HIDDEN_VALUES.hide_in_message(super().__str__())

    def __repr__(self) -> str:
        return HIDDEN_VALUES.hide_in_message(super().__repr__())


class InputError(WindrowError):
    """The input is wrong, and this was found before anything ran."""

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
    """An argument of a call in Python has the wrong type."""


class StageError(PipelineError, AttributeError):
    """A stage of a pipeline in Python does not have this method; another stage may."""


class TranscriptError(InputError):
    """A story that cannot be read."""


class CheckpointError(InputError):
    """A checkpoint or savepoint that is missing, damaged or of another pipeline."""


class SetupError(InputError):
    """Something that windrow needs is not installed."""


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Raise SetupError, naming the extra of windrow to install, if the block imports a missing or too old package.

    `what` is the feature that needs it, such as ``a pipeline in SQL``.
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
    """Another process with the same checkpoint has not finished its last step yet."""

    passes = True


class StoppedError(RunError):
    """An explanation was stopped before it was complete."""

    def __init__(self) -> None:
        super().__init__("the explanation was stopped because the request was closed; ask again")


class ManyProblemsError(PipelineError):
    """Several problems of a pipeline; `errors` has each of them, in the order of the file."""

    def __init__(self, errors: Sequence[PipelineError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.place = errors[0].place


def each_error(error: PipelineError) -> tuple[PipelineError, ...]:
    """Return the single problems of an error."""
    return error.errors if isinstance(error, ManyProblemsError) else (error,)


def join_errors(errors: Sequence[PipelineError]) -> PipelineError:
    """Return one error with the problems of one or more errors, in the order of the file."""
    single = [problem for error in errors for problem in each_error(error)]
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
