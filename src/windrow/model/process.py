"""A Python function for each record, with state for each key: what windows cannot say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from windrow.model.context import Context
from windrow.model.decode import Decode, Field
from windrow.model.derive import Derive
from windrow.model.pipeline import DEFAULT_KEY_GROUPS, Pipeline
from windrow.model.sink import Sink
from windrow.model.source import Source
from windrow.model.time import EventTime
from windrow.model.types import DataType


@dataclass(frozen=True)
class ValueState:
    """One value for each key."""

    name: str
    type: DataType


@dataclass(frozen=True)
class ListState:
    """Values in the order in which they were appended, for each key."""

    name: str
    type: DataType


@dataclass(frozen=True)
class MapState:
    """Values by a key of their own, for each key."""

    name: str
    key: DataType
    type: DataType


KeyedState = ValueState | ListState | MapState

ProcessFunction = Callable[[Context, Any], None]
"""What is called with a context and a record, or with a context and a timer."""


@dataclass(frozen=True)
class Process:
    """A function that is called for each record of a key, with the key's state.

    `returns` are the columns of the rows that it emits, one row a key. An entry of state is gone `ttl` microseconds of
    event time after it was written, and a key (with its row) so long after its last call. Records come in the order of
    the log, or, held until the watermark has passed them, in that of event time. `on_timer` is called for timers of
    event time, `on_processing_timer` for those of processing time.
    """

    function: ProcessFunction
    state: tuple[KeyedState, ...]
    returns: tuple[Field, ...]
    ttl: int | None = None
    order: Literal["log", "event_time"] = "log"
    on_timer: ProcessFunction | None = None
    on_processing_timer: ProcessFunction | None = None


@dataclass(frozen=True)
class ProcessPipeline:
    """From a log to a table of one row a key, by a Python function; only the fluent form has it.

    `at_end` says whether the end of a bounded input fires the timers (and gives the records that event time still
    holds) or leaves them for the next run. The other fields are those of `Pipeline`.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    key: tuple[str, ...]
    process: Process
    sink: Sink
    key_groups: int = DEFAULT_KEY_GROUPS
    derive: tuple[Derive, ...] = ()
    at_end: Literal["fire", "hold"] = "fire"


AnyPipeline = Pipeline | ProcessPipeline


def with_at_end(pipeline: AnyPipeline, at_end: Literal["fire", "hold"]) -> AnyPipeline:
    """Return the pipeline with another end of the input."""
    if isinstance(pipeline, ProcessPipeline):
        return replace(pipeline, at_end=at_end)
    return replace(pipeline, emit=replace(pipeline.emit, at_end=at_end))
