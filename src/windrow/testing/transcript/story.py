"""A story: a log in steps, its expected results, and the hosts that can run it.

Times are microseconds since the epoch, UTC. Hosts are imported only when used, because the command line lists them
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
"""The value of a key field or a result. Times are microseconds; null is None."""

AtEnd = Literal["fire", "hold"]

Tabled = OperatorSpec[m.WindowNode | m.RulesNode]
"""A stream for which a story has a table.

A row is identified by its window and key and has the results as values. An alert is identified by the event time of its
record (a window of one microsecond), its key, subject and rule, and has its text as the value.
"""


@dataclass(frozen=True)
class RecordStep:
    """A step with records, as (partition, value) pairs."""

    records: tuple[tuple[int, bytes], ...]
    place: Place


@dataclass(frozen=True)
class MarkWatermark:
    """A step with a punctuation mark in some partitions, as (partition, value) pairs."""

    records: tuple[tuple[int, bytes], ...]
    place: Place


@dataclass(frozen=True)
class TellTime:
    """A step without records, at the processing time `micros`."""

    micros: int
    place: Place


@dataclass(frozen=True)
class KillRun:
    """A crash of the run after the last step; the run resumes from its checkpoint."""

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
    """An expired record and the window that it missed, or None if no stream has a window for it."""

    partition: int | str
    offset: int
    window: tuple[int, int] | None


@dataclass(frozen=True)
class DeadRow:
    """A dead letter. A row without a record has no partition and offset.

    In an expected dead letter, `reason` is only the beginning of the reason.
    """

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
    """The expected changes of a stream since the last `Expect`."""

    rows: tuple[ChangeRow, ...]
    place: Place
    stream: str = ""


@dataclass(frozen=True)
class ExpectLate:
    """The expected expired records of a stream since the last `ExpectLate`."""

    rows: tuple[LateRow, ...]
    place: Place
    stream: str = ""


@dataclass(frozen=True)
class ExpectDead:
    """The expected dead letters of a stream since the last `ExpectDead`."""

    rows: tuple[DeadRow, ...]
    place: Place
    stream: str = ""


@dataclass(frozen=True)
class End:
    """The end of the input: open windows fire or stay open."""

    at_end: AtEnd
    place: Place


Step = RecordStep | MarkWatermark | TellTime | KillRun | Expect | ExpectLate | ExpectDead | End


@dataclass(frozen=True)
class Final:
    """The expected table of a stream at the end."""

    rows: tuple[TableRow, ...]
    place: Place


@dataclass(frozen=True)
class Story:
    """A complete story. `pipeline` has the field types inferred from the story's records, and its `at_end`.

    `streams` maps the name of each stream with a table in the story to the stream. The only stream of a pipeline in
    short form has an empty name.
    """

    name: str
    file: str
    pipeline: m.Graph
    steps: tuple[Step, ...]
    final: Mapping[str, Final]
    streams: Mapping[str, Tabled]

    @property
    def log(self) -> dict[int, list[bytes]]:
        """The values of each partition in order of offsets, which start at 0."""
        log: dict[int, list[bytes]] = {}
        for step in self.feed:
            for partition, value in () if isinstance(step, Tick | Crash) else step:
                log.setdefault(partition, []).append(value)
        return log

    @property
    def feed(self) -> list[PlayStep | Crash]:
        """The steps of the log: for each step its (partition, value) pairs, a tick, or a crash."""
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
    """Map the name of each stream that can have a table in a story to its operator and inputs."""
    return {node.name: spec_of(graph, node) for node in graph.keyed if isinstance(node, m.WindowNode | m.RulesNode)}


def sink_of(stream: str) -> str:
    """Return the name of a stream's sink."""
    return f"to_{stream}" if stream else ""


HOSTS = {
    "memory": "windrow.runtime.memory",
    "stream": "windrow.runtime.stream.run",
    "batch": "windrow.runtime.batch.run",
}
"""The hosts, each with the module of its `play` function."""


class Play(Protocol):
    """A function that runs a log given in steps."""

    def __call__(
        self, graph: m.Graph, steps: Sequence[PlayStep | Crash], at_end: AtEnd, /
    ) -> list[dict[str, StepOutput]]:
        """Return the output of each sink for each step (records, tick or crash), and for the end of the input.

        All partitions exist from the start, and offsets start at 0 in each.
        """
        ...


def load_play(host: str) -> Play:
    """Return the `play` function of a host; raise InputError if there is no such host."""
    if host not in HOSTS:
        msg = f"the host of a story {not_one_of(host, list(HOSTS))}"
        raise InputError(msg)
    play: Play = importlib.import_module(HOSTS[host]).play
    return play
