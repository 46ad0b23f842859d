"""All exceptions that windrow raises deliberately.

::

    WindrowError
    ├── InputError               the input is wrong               exit code 2
    │   ├── PipelineError        a pipeline, with file:line
    │   │   ├── ManyProblemsError        several errors in one pipeline
    │   │   ├── ArgumentError            a Python argument has the wrong type (also a TypeError)
    │   │   └── StageError               a stage in Python has no such method (also an AttributeError)
    │   ├── TranscriptError      a story, with file:line
    │   ├── CheckpointError      a checkpoint or savepoint is missing, damaged or from another pipeline
    │   ├── SetupError           Java, a jar or a package is missing, here or on an executor
    │   └── SinkAddressError     the sink's path or URL cannot be used (also a SinkError)
    └── RunError                 the run failed                   exit code 1
        ├── SourceError          the log or the broker
        │   ├── SourceUnavailableError   it does not respond, or does not know the topic
        │   └── RecordsLostError         unread records are lost
        ├── SinkError            the database
        │   └── SinkUnavailableError     it does not respond, or another session holds a lock
        ├── LimitError           more dead letters or expired records than allowed     exit code 3
        ├── EngineError          Spark
        │   ├── WorkerLostError          a Python worker of Spark has died
        │   └── ClockSetBackError        the machine's clock was set back
        └── StoppedError         an explanation whose request was closed

The exit code is 2 if the user's input (options, files, paths, URLs, a checkpoint) is wrong and this was found before
anything ran, or if it refers to a table, a partition or an offset that does not exist. The exit code is 1 if a server,
Spark or the machine refused or failed, or if the contents of a database or a log do not fit the command. It is 3 if the
command did its work, but its records exceed a limit that the user set.

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

INTERNAL: Final = "internal"
"""The first word of the reason of a dead letter for which a defect is to blame, and not the record or row."""
TRUNCATION: Final = "no change of a row: op is a truncation"
"""The beginning of the reason of a dead letter that is a truncation of a table."""
_MOST: Final = 2000
"""Characters of an error's text."""
_RAISE: Final = opmap["RAISE_VARARGS"]


@dataclass(frozen=True)
class Place:
    """A position in a file written by the user; lines and columns count from 1."""

    file: str
    line: int
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + ("" if self.column is None else f":{self.column}")


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return ``; did you mean 'NAME'?`` to append to a message, or "" if no known name is similar."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(given).lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def not_one_of(given: object, options: Sequence[object]) -> str:
    """Return the error message for a value that is not one of the options."""
    *first, last = (repr(option) for option in options)
    texts = [option for option in options if isinstance(option, str)]
    either = f"{', '.join(first)} or {last}" if first else last
    return f"must be {either}, not {given!r}{did_you_mean(given, texts)}"


def encodable(text: str) -> str:
    """Replace characters that UTF-8 cannot encode with escapes."""
    return text.encode(errors="backslashreplace").decode()


def described(exc: BaseException) -> str:
    """Return the type and message of an exception from the user's code, on one line, even if its `__str__` fails."""
    try:
        text = HIDDEN_VALUES.hide(" ".join(str(exc).split()))
    except BaseException as failure:  # noqa: BLE001 - the caller reports `exc`
        text = f"its __str__ raised {type(failure).__name__}"
    if len(text) > _MOST:
        text = f"{text[:_MOST]}..."
    return encodable(f"{type(exc).__name__}: {text}" if text else type(exc).__name__)


def is_interrupt(exc: BaseException) -> bool:
    """Return True if a signal interrupted the user's code: the last frame is then not at a `raise` statement."""
    place = exc.__traceback__
    if not isinstance(exc, KeyboardInterrupt) or place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_code.co_code[place.tb_lasti] != _RAISE


class WindrowError(Exception):
    """Base class of all exceptions that windrow raises deliberately; values of variables are hidden in its text."""

    exit_code = 1

    def __str__(self) -> str:
        return HIDDEN_VALUES.hide_in_message(super().__str__())

    def __repr__(self) -> str:
        return HIDDEN_VALUES.hide_in_message(super().__repr__())


class InputError(WindrowError):
    """Raised when the user's input is wrong and this is found before anything runs."""

    exit_code = 2

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message if place is None else f"{place}: {message}")
        self._message = message
        self.place = place

    @property
    def message(self) -> str:
        """The message without the place."""
        return HIDDEN_VALUES.hide_in_message(self._message)


class PipelineError(InputError):
    """Raised when a pipeline cannot be read or is invalid."""


class ArgumentError(PipelineError, TypeError):
    """Raised when an argument of a Python call has the wrong type."""


class StageError(PipelineError, AttributeError):
    """Raised when a stage of a pipeline in Python does not have this method; another stage may have it."""


class TranscriptError(InputError):
    """Raised when a story cannot be read."""


class CheckpointError(InputError):
    """Raised when a checkpoint or savepoint is missing, damaged or from another pipeline."""


class SetupError(InputError):
    """Raised when a program or package that windrow needs is not installed."""


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Raise SetupError if an import in the block fails; the message suggests installing the given extra of windrow.

    `what` is the feature that needs the package, such as ``a pipeline in SQL``.
    """
    try:
        yield
    except ImportError as exc:
        if (exc.name or "").partition(".")[0] == "windrow":
            raise
        msg = f"{what} needs the packages of windrow[{extra}] ({exc}): pip install 'windrow[{extra}]'"
        raise SetupError(msg) from exc


class RunError(WindrowError):
    """Raised when a run fails; steps that were committed are kept."""

    passes = False
    """Whether the error may be temporary: a run then retries for a while."""


class SourceError(RunError):
    """Raised when the log cannot be read."""


class SourceUnavailableError(SourceError):
    """Raised when the broker does not respond, or does not know the topic (perhaps because it is still starting)."""

    passes = True


class RecordsLostError(SourceError):
    """Raised when unread records were lost. A run determines which ones, and may continue with the rest."""

    passes = True


class SinkError(RunError):
    """Raised when the results cannot be written."""


class SinkUnavailableError(SinkError):
    """Raised when the database does not respond, or another session holds a lock."""

    passes = True


class SinkAddressError(InputError, SinkError):
    """Raised when the sink's path or URL cannot be used.

    The folder is missing, the file is not a database, or the URL is invalid.
    """


class LimitError(RunError):
    """Raised when a run had more dead letters or expired records than allowed; its results are kept."""

    exit_code = 3


class EngineError(RunError):
    """Raised when Spark fails."""


class WorkerLostError(EngineError):
    """Raised when a Python worker of Spark died or did not start in time, or a process lacked file descriptors."""

    passes = True


class ClockSetBackError(EngineError):
    """Raised when the machine's clock was set back: Spark would wait until it shows the old time again."""

    passes = True


class CheckpointBusyError(EngineError):
    """Raised when another process with the same checkpoint has not finished its last step yet."""

    passes = True


class StoppedError(RunError):
    """Raised when an explanation is stopped before it is complete, because its request was closed."""

    def __init__(self) -> None:
        super().__init__("the explanation was stopped because the request was closed; ask again")


class ManyProblemsError(PipelineError):
    """Raised when a pipeline has several errors; `errors` lists them in the order of the file."""

    def __init__(self, errors: Sequence[PipelineError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.place = errors[0].place


def each_error(error: PipelineError) -> tuple[PipelineError, ...]:
    """Return the individual errors that an error consists of."""
    return error.errors if isinstance(error, ManyProblemsError) else (error,)


def join_errors(errors: Sequence[PipelineError]) -> PipelineError:
    """Combine errors into one, in the order of the file; a single error is returned unchanged."""
    single = [problem for error in errors for problem in each_error(error)]
    if len(single) == 1:
        return single[0]
    return ManyProblemsError(sorted(single, key=lambda error: error.place.line if error.place else 0))


def call_all(calls: Iterable[Callable[[], T]]) -> tuple[T, ...]:
    """Make all calls and return their results; if any fail, raise the errors of all of them as one PipelineError."""
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
