"""Process functions: a Python function called for each record, with state and timers for each key.

`Context` and `Timer` are what the function receives beside the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from windrow.model.types import DataType, Field


@dataclass(frozen=True)
class Timer:
    """A timer that is due: its name, and when it is due, in event time or processing time."""

    name: str
    at: datetime


class Context(Protocol):
    """The key's state, times and timers, and the way out for rows.

    One object serves all calls: what is to be kept belongs in `state`, which has a handle for each declared state:
    ``get(default)``, ``set``, ``clear`` of a value; ``append``, ``get``, ``clear`` of a list; ``get(key, default)``,
    ``set``, ``delete``, ``items``, ``clear`` of a map. Lists and maps have a length and can be gone through.
    """

    @property
    def state(self) -> Any:  # noqa: ANN401 - it has the names that the pipeline declares
        """The key's state: ``ctx.state.NAME``."""
        ...

    @property
    def key(self) -> Mapping[str, Any]:
        """The key's fields by name."""
        ...

    @property
    def event_time(self) -> datetime | None:
        """The event time of the record or the timer; None for a processing-time timer before any event time."""
        ...

    @property
    def watermark(self) -> datetime | None:
        """The watermark at this call; None before the partition's first record."""
        ...

    def emit(self, /, **values: Any) -> None:  # noqa: ANN401 - of the declared types
        """Write the key's row, in the place of the one that was there: a value, or None, for each declared column.

        Raise TypeError if a column is missing or is not declared, or if a value is not of its type.
        """
        ...

    def timer(self, *, at: datetime, name: str = "") -> None:
        """Call `on_timer` when the watermark reaches a time; right after this call if its watermark has reached that.

        A timer replaces the key's other timer of that name. Raise ValueError if `on_timer` sets one that is not later
        than itself, which would repeat forever.
        """
        ...

    def processing_timer(self, *, after: str | timedelta, name: str = "") -> None:
        """Call `on_processing_timer` so long after now by processing time, at the first tick then.

        A timer replaces the key's other timer of that name.
        """
        ...

    def cancel(self, name: str = "") -> None:
        """Forget the key's timer of that name, if it is set."""
        ...


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
"""A function that is called with a context and a record, or with a context and a timer."""


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
