"""Pipelines: with windows and aggregates, a process function, or rules; and what each needs of its host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from windrow.model.aggregates import Aggregate
from windrow.model.alerts import DEFAULT_ALERTS, Alerts
from windrow.model.connectors import Sink, Source
from windrow.model.process import Process
from windrow.model.rules import RuleSet
from windrow.model.time import EventTime
from windrow.model.triggers import AllOf, AnyOf, Emit, Every, EveryEventTime, Records, Repeat, Trigger, When
from windrow.model.types import Decode, Derive
from windrow.model.windows import Window

DEFAULT_KEY_GROUPS = 8
RunMode = Literal["micro-batch", "realtime"]
"""How a live run takes its records: on the stream host in steps, or on the realtime host as they come."""
_MOST_STATE_PARTITIONS = 16


def state_partitions(key_groups: int) -> int:
    """Return how many parts the state of so many key groups is in on a cluster: the number of tasks of a level.

    It divides 5040, for which key groups are spread evenly over tasks, and is 16 at most.
    """
    return max(n for n in range(1, _MOST_STATE_PARTITIONS + 1) if n <= key_groups and 5040 % n == 0)


@dataclass(frozen=True)
class Pipeline:
    """From a log to a table: what is read, what it means, and where it goes.

    `key_groups` is how many parts the keys (and the state) fall into; it is the upper bound of parallelism and stays
    as it is for a pipeline's life. `derive` adds fields to the decoded ones. `salt` spreads each key's records over so
    many key groups before they come together, which is for keys with a large part of all records.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    key: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    emit: Emit
    sink: Sink
    key_groups: int = DEFAULT_KEY_GROUPS
    derive: tuple[Derive, ...] = ()
    salt: int = 1
    mode: RunMode = "micro-batch"
    alerts: Alerts = DEFAULT_ALERTS

    @property
    def at_end(self) -> Literal["fire", "hold"]:
        """Whether a bounded run fires what is still open at the end of the input, or holds it."""
        return self.emit.at_end


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
    mode: RunMode = "micro-batch"
    alerts: Alerts = DEFAULT_ALERTS


@dataclass(frozen=True)
class RulesPipeline:
    """From a log to a table of alerts, by rules over each record and the recent ones of its key.

    Nothing waits for the end of an input, so `at_end` only says whether the clock journal has it. The other fields are
    those of `Pipeline`.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    key: tuple[str, ...]
    rules: RuleSet
    sink: Sink
    key_groups: int = DEFAULT_KEY_GROUPS
    derive: tuple[Derive, ...] = ()
    at_end: Literal["fire", "hold"] = "fire"
    mode: RunMode = "micro-batch"
    alerts: Alerts = DEFAULT_ALERTS


AnyPipeline = Pipeline | ProcessPipeline | RulesPipeline


def needs_ticks(pipeline: AnyPipeline) -> bool:
    """Return whether anything in a pipeline depends on processing time, which comes as ticks."""
    if pipeline.time.idle is not None:
        return True
    if isinstance(pipeline, ProcessPipeline):
        return pipeline.process.on_processing_timer is not None
    if isinstance(pipeline, RulesPipeline):
        return False
    return pipeline.emit.early is not None and _has_every(pipeline.emit.early)


def _has_every(trigger: Trigger) -> bool:
    match trigger:
        case Every():
            return True
        case AnyOf(triggers) | AllOf(triggers):
            return any(_has_every(part) for part in triggers)
        case Repeat(inner):
            return _has_every(inner)
        case EveryEventTime() | Records() | When():
            return False
        case _:
            assert_never(trigger)
