"""Process functions: the state they declare, and the stage they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from windrow.api.checks import require_valid
from windrow.errors import PipelineError, call_all
from windrow.model import (
    DEFAULT_ALERTS,
    DEFAULT_KEY_GROUPS,
    Alerts,
    ArrayType,
    DataType,
    Field,
    KeyedState,
    ListState,
    MapState,
    Process,
    ProcessPipeline,
    RunMode,
    Sink,
    ValueState,
    parse_type,
)

if TYPE_CHECKING:
    from windrow.api.fluent.streams import Given, Timed


@dataclass(frozen=True)
class StateType:
    """A kind of state with its types, which `process` gives a name."""

    kind: Literal["value", "list", "map"]
    types: tuple[str | DataType, ...]


def value_state(type_: str | DataType) -> StateType:
    """Keep one value for each key."""
    return StateType("value", (type_,))


def list_state(type_: str | DataType) -> StateType:
    """Keep values in the order in which they are appended."""
    return StateType("list", (type_,))


def map_state(key: str | DataType, value: str | DataType) -> StateType:
    """Keep values by keys of their own."""
    return StateType("map", (key, value))


@dataclass(frozen=True)
class Processed:
    """Rows that a function emits for each key."""

    of: Timed | Given
    key: tuple[str, ...]
    process: Process

    def to(
        self,
        sink: Sink,
        *,
        name: str | None = None,
        key_groups: int = DEFAULT_KEY_GROUPS,
        at_end: Literal["fire", "hold"] = "fire",
        mode: RunMode = "micro-batch",
        alerts: Alerts = DEFAULT_ALERTS,
    ) -> ProcessPipeline:
        """Write to a sink, and so complete the pipeline.

        Args:
            sink: `windrow.sqlite`, `windrow.duckdb`, `windrow.postgres`, `windrow.delta`, `windrow.parquet` or
                `windrow.kafka_sink`.
            name: the pipeline's name; left out, the table's.
            key_groups: the upper bound of parallelism, which stays as it is for the pipeline's life.
            at_end: at the end of a bounded input, pending timers and held records fire, or are kept.
            mode: how a live run takes records: in steps, or with ``"realtime"`` as they come, from Kafka to Kafka.
            alerts: which alerts a run raises, and where they are sent (`windrow.alerts`).

        Raises:
            PipelineError: the pipeline is invalid; the error has all its problems.
        """
        from windrow.api.fluent.streams import ends_of  # noqa: PLC0415 - it imports this room

        return require_valid(
            ProcessPipeline(
                **ends_of(self.of, sink, name),
                key=self.key,
                process=self.process,
                key_groups=key_groups,
                at_end=at_end,
                mode=mode,
                alerts=alerts,
            )
        )


def declared_states(state: Mapping[str, StateType]) -> tuple[KeyedState, ...]:
    """Return states with their names; raise PipelineError for invalid types."""
    return call_all(partial(_state, name, of) for name, of in state.items())


def declared_columns(returns: Mapping[str, str | DataType]) -> tuple[Field, ...]:
    """Return the columns that a function emits; raise PipelineError for invalid types."""
    types = call_all(partial(_type, f"process.returns.{name}", type_) for name, type_ in returns.items())
    return tuple(Field(name, type_) for name, type_ in zip(returns, types, strict=True))


def _state(name: str, of: StateType) -> KeyedState:
    where = f"process.state.{name}"
    if not isinstance(of, StateType):
        msg = f"{where}: give wr.value_state, wr.list_state or wr.map_state, not {of!r}"
        raise PipelineError(msg)
    types = [_type(where, type_) for type_ in of.types]
    match of.kind:
        case "value":
            return ValueState(name, *types)
        case "list":
            return ListState(name, *types)
        case "map":
            return MapState(name, *types)


def _type(where: str, type_: str | DataType) -> DataType:
    if not isinstance(type_, str):
        if isinstance(type_, ArrayType):
            msg = f"{where}: {type_} is for fields of records alone; use a list state, or a string"
            raise PipelineError(msg)
        return type_
    try:
        return parse_type(type_)
    except PipelineError as exc:
        msg = f"{where}: {exc.message}"
        raise PipelineError(msg) from exc
