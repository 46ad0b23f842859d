"""Declarations of process functions: their state and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from windrow import model as m
from windrow.client.arguments import checked
from windrow.errors import PipelineError, call_all


@dataclass(frozen=True)
class StateType:
    """A kind of state with the types of its values; `process` gives it a name."""

    kind: type[m.ValueState | m.ListState | m.MapState]
    types: tuple[str | m.DataType, ...]


@checked
def value_state(type_: str | m.DataType) -> StateType:
    """Keep one value for each key."""
    return StateType(m.ValueState, (type_,))


@checked
def list_state(type_: str | m.DataType) -> StateType:
    """Keep a list of values for each key, in the order of appending."""
    return StateType(m.ListState, (type_,))


@checked
def map_state(key: str | m.DataType, value: str | m.DataType) -> StateType:
    """Keep a map for each key."""
    return StateType(m.MapState, (key, value))


def state_declarations(state: Mapping[str, StateType]) -> tuple[m.KeyedState, ...]:
    """Return the named states of a process function; raise PipelineError for invalid types."""
    return call_all(partial(_state, name, of) for name, of in state.items())


def column_declarations(returns: Mapping[str, str | m.DataType]) -> tuple[m.Field, ...]:
    """Return the columns of the rows that a function emits; raise PipelineError for invalid types."""
    types = call_all(partial(_type, f"process.returns.{name}", type_) for name, type_ in returns.items())
    return tuple(m.Field(name, type_) for name, type_ in zip(returns, types, strict=True))


def _state(name: str, of: StateType) -> m.KeyedState:
    return of.kind(name, *(_type(f"process.state.{name}", type_) for type_ in of.types))


def _type(where: str, type_: str | m.DataType) -> m.DataType:
    if isinstance(type_, m.ArrayType):
        msg = f"{where}: {type_} is only for fields of records; use a list state, or a string"
        raise PipelineError(msg)
    try:
        return m.parse_type(type_) if isinstance(type_, str) else type_
    except PipelineError as exc:
        msg = f"{where}: {exc.message}"
        raise PipelineError(msg) from exc
