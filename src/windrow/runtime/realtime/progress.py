"""How far a realtime run is: the committed offsets of its consumer group against the ends of its topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow import model as m
from windrow.connectors.kafka.client import Admin
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.read import CommittedOffsets
from windrow.connectors.source import another_log
from windrow.errors import RecordsLostError, RunError, WindrowError
from windrow.runtime.realtime.partition import Owner
from windrow.runtime.realtime.topics import group_of, moved_keys, source_of
from windrow.telemetry.facts import PartitionName
from windrow.telemetry.part_times import Stopwatch
from windrow.telemetry.reports import Fault, Lag, OnLag, OnStep, OnTrouble, StepReport, now_micros

REPORT_SECONDS = 1.0
"""Between two reports, and how long one waits for the ends of the topic."""


@dataclass(frozen=True)
class Position:
    """How far a partition is: its committed offset and the task that committed it, None before; and its log's ends."""

    partition: int
    committed: int | None
    owner: Owner | None
    first: int
    end: int

    @property
    def lag(self) -> int:
        """How many offsets there are to be read; of what was never read, all."""
        return max(0, self.end - (self.first if self.committed is None else self.committed))


class Positions:
    """Asks how far the partitions of a pipeline are, for at most `seconds` a question; the clients are kept."""

    def __init__(self, graph: m.Graph, seconds: float = TIMEOUT) -> None:
        self._source = source_of(graph)
        settings = client_options(self._source)
        self._committed = CommittedOffsets(group_of(graph), self._source.topic, settings)
        self._topic = Admin(self._source.topic, settings, seconds)

    def topic_id(self) -> str:
        """Return the id of the topic, which another one of its name does not have; raise SourceError as `ask` does."""
        return self._topic.topic_id()

    def ask(self) -> list[Position]:
        """Return how far each partition is; raise SourceError if the broker or the topic is not there."""
        partitions = self._topic.partitions()
        # before the ends, so that nothing is committed behind them
        committed = self._committed.ask(partitions, TIMEOUT)
        ends = self._topic.offsets(partitions)
        return [
            Position(number, None if at is None else at.offset, Owner.of(at), first, end)
            for number, (first, end) in sorted(ends.items())
            for at in [committed.get(number)]
        ]


class Progress:
    """Reports what the run with the id `run` has committed, and sees that its topic stays what it was."""

    def __init__(
        self,
        graph: m.Graph,
        run: str,
        partitions: Sequence[int],
        on_trouble: OnTrouble,
        on_lag: OnLag = lambda _: None,
    ) -> None:
        self._run = run
        self._on_lag = on_lag
        self._source = source_of(graph)
        self._positions = Positions(graph, REPORT_SECONDS)
        self._topic_id: str | None = None
        self._partitions = len(partitions)
        self._on_trouble = on_trouble
        self._is_down = False
        self._watch = Stopwatch()
        self._epoch = -1
        self._last: dict[PartitionName, int] = {}

    def report(self, on_step: OnStep) -> None:
        """Report what was committed since the last report; nothing if no broker answers, or none is.

        Raise RecordsLostError if the topic was made anew, RunError if it has another number of partitions.
        """
        try:
            topic_id, positions = self._positions.topic_id(), self._positions.ask()
        except WindrowError as exc:
            if not self._is_down:
                self._on_trouble(Fault.of(exc, str(exc), "the tasks try again"))
            self._is_down = True
            return
        self._is_down = False
        self._topic_id = self._topic_id or topic_id
        if topic_id != self._topic_id:
            raise RecordsLostError(another_log(self._source.topic))
        if len(positions) != self._partitions:
            raise RunError(moved_keys(self._source, len(positions), self._partitions, "when the run began"))
        offsets: dict[PartitionName, int] = {
            position.partition: position.committed for position in positions if position.committed is not None
        }
        behind: dict[PartitionName, int] = {position.partition: position.lag for position in positions}
        self._on_lag(Lag(now_micros(), behind))
        if offsets == self._last and any(behind.values()):
            return  # a report is of what was committed
        self._epoch += 1
        read: dict[PartitionName, int] = {
            position.partition: self._read(position) for position in positions if position.committed is not None
        }
        self._last = offsets
        seconds = self._watch.lap()
        on_step(
            StepReport(
                epoch=self._epoch,
                records=sum(read.values()),
                late=0,
                expired=0,
                dead=0,
                inserts=0,
                revisions=0,
                open_windows=0,
                watermarks={},
                offsets=offsets,
                low_watermark=None,
                idle=[],
                seconds=seconds,
                took=seconds,
                lag=behind,
                committed=now_micros(),
                read=read,
                only_offsets=True,
            )
        )

    def _read(self, at: Position) -> int:
        """Return how many offsets the run has read of a partition since the last report, or since it began."""
        if at.committed is None or at.owner is None or at.owner.first is None or at.owner.run != self._run:
            return 0
        return at.committed - max(at.owner.first, self._last.get(at.partition, 0))
