"""The state of a key as a user's function sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, assert_never

from windrow.core.micros import BEFORE_ALL
from windrow.core.process.codec import codec
from windrow.core.process.memory import Memory
from windrow.core.schema import arrow_type
from windrow.model import KeyedState, ListState, MapState, ValueState

Accept = Callable[[Any], Any]


@dataclass(slots=True)
class Call:
    """The call that is being made: its key's memory, its event time and watermark, and whether what it emits is early.

    Entries that were written at or before `horizon` are gone. All times are microseconds.
    """

    memory: Memory = field(default_factory=lambda: Memory((), []))
    time: int = 0
    watermark: int = BEFORE_ALL
    horizon: int = BEFORE_ALL - 1
    early: bool = False


def handles(call: Call, states: tuple[KeyedState, ...]) -> StateHandles:
    """Return an object with a handle for each declared state, by its name."""
    return StateHandles(**{state.name: _handle(call, number, state) for number, state in enumerate(states)})


def _handle(call: Call, number: int, state: KeyedState) -> ValueHandle | ListHandle | MapHandle:
    accept = codec(arrow_type(state.type), f"state {state.name}").accept
    match state:
        case ValueState():
            return ValueHandle(call, number, accept)
        case ListState():
            return ListHandle(call, number, accept)
        case MapState():
            return MapHandle(call, number, codec(arrow_type(state.key), f"a key of state {state.name}").accept, accept)
        case _:
            assert_never(state)


class StateHandles(SimpleNamespace):
    """The handles by their names."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never returns
        """Raise AttributeError: there is no such state."""
        msg = f"there is no state {name!r}; process(...) declares {', '.join(vars(self)) or 'none'}"
        raise AttributeError(msg)


class ValueHandle:
    """One value of the key."""

    __slots__ = ("_accept", "_call", "_number")

    def __init__(self, call: Call, number: int, accept: Accept) -> None:
        self._call = call
        self._number = number
        self._accept = accept

    def get(self, default: Any = None) -> Any:  # noqa: ANN401 - of the declared type
        """Return the value, or `default` if there is none."""
        entry = self._call.memory.slots[self._number]
        return default if entry is None or entry[1] <= self._call.horizon else entry[0]

    def set(self, value: Any) -> None:  # noqa: ANN401 - of the declared type
        """Replace the value; raise TypeError if it is not of the declared type."""
        self._call.memory.slots[self._number] = (self._accept(value), self._call.time)

    def clear(self) -> None:
        """Forget the value."""
        self._call.memory.slots[self._number] = None


class ListHandle:
    """Values of the key in the order in which they were appended."""

    __slots__ = ("_accept", "_call", "_number")

    def __init__(self, call: Call, number: int, accept: Accept) -> None:
        self._call = call
        self._number = number
        self._accept = accept

    def append(self, value: Any) -> None:  # noqa: ANN401 - of the declared type
        """Add a value; raise TypeError if it is not of the declared type."""
        self._call.memory.slots[self._number].append((self._accept(value), self._call.time))

    def get(self) -> list[Any]:
        """Return the values."""
        horizon = self._call.horizon
        return [value for value, time in self._call.memory.slots[self._number] if time > horizon]

    def clear(self) -> None:
        """Forget all values."""
        self._call.memory.slots[self._number] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self.get())


class MapHandle:
    """Values of the key by keys of their own, in the order in which these were first set."""

    __slots__ = ("_accept", "_accept_key", "_call", "_number")

    def __init__(self, call: Call, number: int, accept_key: Accept, accept: Accept) -> None:
        self._call = call
        self._number = number
        self._accept_key = accept_key
        self._accept = accept

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401 - of the declared types
        """Return the value of a key, or `default` if there is none."""
        entry = self._call.memory.slots[self._number].get(key)
        return default if entry is None or entry[1] <= self._call.horizon else entry[0]

    def set(self, key: Any, value: Any) -> None:  # noqa: ANN401 - of the declared types
        """Set the value of a key; raise TypeError if one of them is not of the declared type."""
        entries, key = self._call.memory.slots[self._number], self._accept_key(key)
        entry = entries.get(key)
        if entry is not None and entry[1] <= self._call.horizon:
            # it is gone, whether or not a step has ended since and taken it out: the key begins anew, at the end
            del entries[key]
        entries[key] = (self._accept(value), self._call.time)

    def delete(self, key: Any) -> None:  # noqa: ANN401 - of the declared type
        """Forget the value of a key, if there is one."""
        self._call.memory.slots[self._number].pop(key, None)

    def items(self) -> list[tuple[Any, Any]]:
        """Return the keys with their values."""
        horizon = self._call.horizon
        return [(key, value) for key, (value, time) in self._call.memory.slots[self._number].items() if time > horizon]

    def clear(self) -> None:
        """Forget all values."""
        self._call.memory.slots[self._number] = {}

    def __contains__(self, key: object) -> bool:
        entry = self._call.memory.slots[self._number].get(key)
        return entry is not None and entry[1] > self._call.horizon

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self.items()])

    def __len__(self) -> int:
        horizon = self._call.horizon
        return sum(time > horizon for _, time in self._call.memory.slots[self._number].values())
