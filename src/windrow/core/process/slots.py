"""The entries of a declared state of one key: checked values, each with the event time of its writing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, assert_never

from windrow.core.process.codec import Codec, codec
from windrow.core.schema import arrow_type
from windrow.model import KeyedState, ListState, MapState, ValueState


class Slot(Protocol):
    """How the entries of one declared state are held: what holds none of them is false."""

    def empty(self) -> Any:  # noqa: ANN401 - its own
        """Return what holds no entries."""
        ...

    def pruned(self, held: Any, horizon: int) -> Any:  # noqa: ANN401 - its own
        """Return the entries that were written after `horizon` (microseconds)."""
        ...

    def written(self, held: Any) -> Any:  # noqa: ANN401 - its own, and plain JSON
        """Return the entries as JSON holds them."""
        ...

    def kept(self, plain: Any) -> Any:  # noqa: ANN401 - the same
        """Return the entries from what `written` returned."""
        ...


def slot_of(state: KeyedState) -> Slot:
    """Return the slot of a declared state."""
    value = codec(arrow_type(state.type), state.name)
    match state:
        case ValueState():
            return ValueSlot(value)
        case ListState():
            return ListSlot(value)
        case MapState():
            return MapSlot(codec(arrow_type(state.key), f"a key of {state.name}"), value)
        case _:
            assert_never(state)


@dataclass(frozen=True)
class ValueSlot:
    """None, or one entry: (value, time)."""

    value: Codec

    def empty(self) -> None:
        """Return None."""

    def pruned(self, held: tuple[Any, int] | None, horizon: int) -> tuple[Any, int] | None:
        """Return the entry if it was written after that."""
        return None if held is None or held[1] <= horizon else held

    def written(self, held: tuple[Any, int] | None) -> Any:  # noqa: ANN401 - plain JSON
        """Return [value, time], or None."""
        return None if held is None else [self.value.written(held[0]), held[1]]

    def kept(self, plain: Any) -> tuple[Any, int] | None:  # noqa: ANN401 - plain JSON
        """Read what `written` returned."""
        return None if plain is None else (self.value.kept(plain[0]), plain[1])


@dataclass(frozen=True)
class ListSlot:
    """A list of (value, time)."""

    value: Codec

    def empty(self) -> list[tuple[Any, int]]:
        """Return an empty list."""
        return []

    def pruned(self, held: list[tuple[Any, int]], horizon: int) -> list[tuple[Any, int]]:
        """Return the entries that were written after that."""
        return [entry for entry in held if entry[1] > horizon]

    def written(self, held: list[tuple[Any, int]]) -> Any:  # noqa: ANN401 - plain JSON
        """Return [[value, time], ...]."""
        return held if self.value.write is None else [(self.value.write(value), time) for value, time in held]

    def kept(self, plain: Any) -> list[tuple[Any, int]]:  # noqa: ANN401 - plain JSON
        """Read what `written` returned."""
        return [(self.value.kept(value), time) for value, time in plain]


@dataclass(frozen=True)
class MapSlot:
    """A dict of (value, time)."""

    key: Codec
    value: Codec

    def empty(self) -> dict[Any, tuple[Any, int]]:
        """Return an empty dict."""
        return {}

    def pruned(self, held: dict[Any, tuple[Any, int]], horizon: int) -> dict[Any, tuple[Any, int]]:
        """Return the entries that were written after that."""
        return {key: entry for key, entry in held.items() if entry[1] > horizon}

    def written(self, held: dict[Any, tuple[Any, int]]) -> Any:  # noqa: ANN401 - plain JSON
        """Return [[key, value, time], ...]."""
        return [(self.key.written(key), self.value.written(value), time) for key, (value, time) in held.items()]

    def kept(self, plain: Any) -> dict[Any, tuple[Any, int]]:  # noqa: ANN401 - plain JSON
        """Read what `written` returned."""
        return {self.key.kept(key): (self.value.kept(value), time) for key, value, time in plain}
