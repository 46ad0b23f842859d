"""Everything that windrow raises on purpose.

::

    WindrowError
    ├── InputError               what was given is wrong           exit code 2
    │   ├── PipelineError        a pipeline, with file:line
    │   ├── TranscriptError      a story, with file:line
    │   ├── CheckpointError      a checkpoint that is not this pipeline's
    │   └── SetupError           Java, a jar or a package is missing
    └── RunError                 it ran, and failed                exit code 1
        ├── SourceError          the log or the broker
        │   ├── SourceUnavailableError   it does not answer now, or does not know the topic
        │   └── RecordsLostError         records are gone that were being read
        ├── SinkError            the database
        │   └── SinkUnavailableError     it does not answer now, or somebody holds a lock
        └── EngineError          Spark
            └── WorkerLostError          a Python process of Spark's has died

Each message says what is wrong, where, and what to do.
"""

from __future__ import annotations

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
