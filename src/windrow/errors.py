"""Errors: everything that windrow raises on purpose.

::

    WindrowError
    ├── InputError               the input is wrong               exit code 2
    │   ├── PipelineError        a pipeline, with file:line
    │   │   └── ManyProblemsError        several problems of one pipeline
    │   ├── TranscriptError      a story, with file:line
    │   ├── CheckpointError      a checkpoint that is not this pipeline's
    │   └── SetupError           Java, a jar or a package is missing
    └── RunError                 it ran, and failed               exit code 1
        ├── SourceError          the log or the broker
        │   ├── SourceUnavailableError   it does not answer now, or does not know the topic
        │   └── RecordsLostError         unread records are lost
        ├── SinkError            the database
        │   └── SinkUnavailableError     it does not answer now, or somebody holds a lock
        └── EngineError          Spark
            └── WorkerLostError          a Python worker of Spark has died

Each message says what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A position in a file that a person wrote; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class WindrowError(Exception):
    """The root: catch this to catch all that windrow raises on purpose."""

    exit_code = 1


class InputError(WindrowError):
    """What was given is wrong; nothing ran."""

    exit_code = 2

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message if place is None else f"{place}: {message}")
        self.message = message
        self.place = place


class PipelineError(InputError):
    """A pipeline that cannot be read or means nothing."""


class TranscriptError(InputError):
    """A story that cannot be read."""


class CheckpointError(InputError):
    """A checkpoint that belongs to another pipeline, or is damaged."""


class SetupError(InputError):
    """Something that windrow needs is not installed."""


class RunError(WindrowError):
    """It ran, and failed; what was committed stays."""

    passes = False
    """Whether it may pass by itself: a run tries again for a while."""


class SourceError(RunError):
    """The log could not be read."""


class SourceUnavailableError(SourceError):
    """The broker does not answer now, or does not know the topic (yet, or for as long as it starts)."""

    passes = True


class RecordsLostError(SourceError):
    """Records are gone that were being read; a run looks which, and may go on with what is there."""

    passes = True


class SinkError(RunError):
    """The results could not be written."""


class SinkUnavailableError(SinkError):
    """The database does not answer now, or somebody holds a lock on it."""

    passes = True


class EngineError(RunError):
    """Spark failed."""


class WorkerLostError(EngineError):
    """A Python process of Spark's has died, or did not start in time."""

    passes = True


class ManyProblemsError(PipelineError):
    """Several things are wrong with a pipeline; `errors` holds them one by one, in the order of the file."""

    def __init__(self, errors: Sequence[PipelineError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.place = errors[0].place


def each_error(error: PipelineError) -> tuple[PipelineError, ...]:
    """Return the single problems that an error tells of."""
    return error.errors if isinstance(error, ManyProblemsError) else (error,)


def join_errors(errors: Sequence[PipelineError]) -> PipelineError:
    """Return one error for several, in the order of the file; there must be at least one."""
    single = [one for error in errors for one in each_error(error)]
    if len(single) == 1:
        return single[0]
    return ManyProblemsError(sorted(single, key=lambda error: error.place.line if error.place else 0))
