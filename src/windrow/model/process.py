"""Process functions: a Python function called for each record, with state and timers for each key.

The function receives a `Context` with each record and each `Timer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from windrow.model.types import DataType, Field


@dataclass(frozen=True)
class Timer:
    """A timer that has fired: its `name`, and the time `at` for which it was set."""

    name: str
    at: datetime


class Context(Protocol):
    """The context of a call: the key's state, times and timers.

    The same object is used for all calls, so keep data in `state`. A value has the methods ``get(default)``, ``set``
    and ``clear``; a list ``append``, ``get`` and ``clear``; a map ``get(key, default)``, ``set``, ``delete``, ``items``
    and ``clear``. Lists and maps have a length and are iterable.
    """

    @property
    def state(self) -> Any:  # noqa: ANN401 - it has the names that the pipeline declares
        """The key's state, with an attribute for each declared one: ``ctx.state.NAME``."""
        ...

    @property
    def key(self) -> Mapping[str, Any]:
        """The key's fields by name."""
        ...

    @property
    def event_time(self) -> datetime | None:
        """Event time of the record or timer; None for a processing-time timer before any event time."""
        ...

    @property
    def watermark(self) -> datetime | None:
        """The watermark at this call; None before the partition's first record."""
        ...

    def emit(self, /, **values: Any) -> None:  # noqa: ANN401 - of the declared types
        """Write the key's row, replacing the previous one; pass a value or None for each declared column.

        Raise TypeError if a column is missing or not declared, or has another type.
        """
        ...

    def timer(self, *, at: datetime, name: str = "") -> None:
        """Call `on_timer` when the watermark reaches a time, or right after this call if it has.

        It replaces the key's timer with the same name. Raise ValueError if `on_timer` sets a timer that is not later
        than its own.
        """
        ...

    def processing_timer(self, *, after: str | timedelta, name: str = "") -> None:
        """Call `on_processing_timer` at the first tick that is at least `after` from now, in processing time.

        It replaces the key's timer with the same name.
        """
        ...

    def cancel(self, name: str = "") -> None:
        """Delete the key's timer with this name, if there is one."""
        ...


@dataclass(frozen=True)
class ValueState:
    """One value for each key."""

    name: str
    type: DataType


@dataclass(frozen=True)
class ListState:
    """A list of values for each key, in the order in which they were appended."""

    name: str
    type: DataType


@dataclass(frozen=True)
class MapState:
    """A map for each key."""

    name: str
    key: DataType
    type: DataType


KeyedState = ValueState | ListState | MapState

ProcessFunction = Callable[[Context, Any], None]
"""A function of a context and a record, or of a context and a timer."""


@dataclass(frozen=True)
class Process:
    """A function that is called for each record of a key, with the key's state.

    `returns` are the columns of the rows that it emits, one row per key. An entry of state expires `ttl` microseconds
    of event time after it was written, and a key (with its row) `ttl` after its last call. Records are processed in the
    `order` of the log, or in order of event time, for which they wait until the watermark has passed them. `on_timer`
    is called for timers in event time, `on_processing_timer` for timers in processing time.
    """

    function: ProcessFunction
    state: tuple[KeyedState, ...]
    returns: tuple[Field, ...]
    ttl: int | None = None
    order: Literal["log", "event_time"] = "log"
    on_timer: ProcessFunction | None = None
    on_processing_timer: ProcessFunction | None = None
