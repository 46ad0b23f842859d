"""A story: a log in steps, its expected results, and the hosts that run it.

Times are microseconds since the epoch, UTC. Hosts are imported when they are used, since the command line lists them
without loading Arrow.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, Protocol

from windrow import model as m
from windrow.engine.tick import Crash, PlayStep, Tick
from windrow.errors import InputError, Place, not_one_of
from windrow.expressions import OperatorSpec, spec_of

if TYPE_CHECKING:
    from windrow.engine.changelog import StepOutput

Value = str | bool | int | float | Decimal | None
"""A key's field or a result; times are microseconds, null is None."""

AtEnd = Literal["fire", "hold"]

Tabled = OperatorSpec[m.WindowNode | m.RulesNode]
"""A stream that a story has a table of.

A row of windows is identified by its window and key, with the results as values. An alert is identified by the
microsecond of its record's event time, and by key, subject and rule, with its text as the value.
"""


@dataclass(frozen=True)
class RecordStep:
    """One step: records as (partition, value)."""

    records: tuple[tuple[int, bytes], ...]
    place: Place


@dataclass(frozen=True)
class MarkWatermark:
    """One step: a punctuation mark in some partitions, as (partition, value)."""

    records: tuple[tuple[int, bytes], ...]
    place: Place


@dataclass(frozen=True)
class TellTime:
    """One step without records at the processing time `micros`."""

    micros: int
    place: Place


@dataclass(frozen=True)
class KillRun:
    """The run is killed after the last step, and resumes from its checkpoint."""

    crash: Crash
    place: Place


@dataclass(frozen=True)
class ChangeRow:
    """An entry of the changelog."""

    op: str
    pane: str
    window: tuple[int, int]
    key: tuple[Value, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class LateRow:
    """An expired record and the window that it missed, None if no stream has a window for it."""

    partition: int | str
    offset: int
    window: tuple[int, int] | None


@dataclass(frozen=True)
class DeadRow:
    """A dead letter; `reason` is the beginning of the reason if expected. A row without a record has no place."""

    partition: int | str | None
    offset: int | None
    reason: str


@dataclass(frozen=True)
class TableRow:
    """A row of the final table."""

    window: tuple[int, int]
    key: tuple[Value, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Expect:
    """All changes of a stream since the last `Expect`."""

    rows: tuple[ChangeRow, ...]
    place: Place
    stream: str = ""


@dataclass(frozen=True)
class ExpectLate:
    """All expired records of a stream since the last `ExpectLate`."""

    rows: tuple[LateRow, ...]
    place: Place
    stream: str = ""


@dataclass(frozen=True)
class ExpectDead:
    """All dead letters of a stream since the last `ExpectDead`."""

    rows: tuple[DeadRow, ...]
    place: Place
    stream: str = ""


@dataclass(frozen=True)
class End:
    """The end of the input: open windows fire, or stay open."""

    at_end: AtEnd
    place: Place


Step = RecordStep | MarkWatermark | TellTime | KillRun | Expect | ExpectLate | ExpectDead | End


@dataclass(frozen=True)
class Final:
    """The whole table of a stream at the end."""

    rows: tuple[TableRow, ...]
    place: Place


@dataclass(frozen=True)
class Story:
    """A whole story; `pipeline` has the types of the story's records, and its `at_end`.

    `streams` are those with a table in the story, by name; that of a short form has the name "".
    """

    name: str
    file: str
    pipeline: m.Graph
    steps: tuple[Step, ...]
    final: Mapping[str, Final]
    streams: Mapping[str, Tabled]

    @property
    def log(self) -> dict[int, list[bytes]]:
        """The values of each partition, in offset order from 0."""
        log: dict[int, list[bytes]] = {}
        for step in self.feed:
            for partition, value in () if isinstance(step, Tick | Crash) else step:
                log.setdefault(partition, []).append(value)
        return log

    @property
    def feed(self) -> list[PlayStep | Crash]:
        """The log in steps: for each step its records as (partition, value), its tick, or a crash."""
        feed: list[PlayStep | Crash] = []
        for step in self.steps:
            match step:
                case RecordStep(records) | MarkWatermark(records):
                    feed.append(records)
                case TellTime(micros):
                    feed.append(Tick(micros))
                case KillRun(crash):
                    feed.append(crash)
        return feed


def tabled(graph: m.Graph) -> dict[str, Tabled]:
    """Return the streams that can have tables in a story, by name, each with its operator's inputs."""
    return {node.name: spec_of(graph, node) for node in graph.keyed if isinstance(node, m.WindowNode | m.RulesNode)}


def sink_of(stream: str) -> str:
    """Return the name of the sink of a stream."""
    return f"to_{stream}" if stream else ""


HOSTS = {
    "memory": "windrow.runtime.memory",
    "stream": "windrow.runtime.stream.run",
    "batch": "windrow.runtime.batch.run",
}
"""The module of each host's `play`."""


class Play(Protocol):
    """Runs a log given in steps."""

    def __call__(
        self, graph: m.Graph, steps: Sequence[PlayStep | Crash], at_end: AtEnd, /
    ) -> list[dict[str, StepOutput]]:
        """Return the output by sink of each step of (partition, value), tick or crash, and of the end of the input.

        All partitions exist from the start; offsets count from 0 in each.
        """
        ...


def load_play(host: str) -> Play:
    """Return a host's `play`; raise InputError if there is no such host."""
    if host not in HOSTS:
        msg = f"the host of a story {not_one_of(host, list(HOSTS))}"
        raise InputError(msg)
    play: Play = importlib.import_module(HOSTS[host]).play
    return play
