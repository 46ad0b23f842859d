"""Progress of a realtime run: the committed offsets of its consumer group and the ends of its topic."""

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
from windrow.telemetry import reports as r
from windrow.telemetry.facts import PartitionName
from windrow.telemetry.part_times import Stopwatch
from windrow.telemetry.reports import OnLag, OnStep, OnTrouble

REPORT_SECONDS = 1.0
"""Seconds between two reports, and the timeout of a request for the ends of the topic."""


@dataclass(frozen=True)
class Position:
    """The position of a partition: its committed offset, the task that committed it, and the two ends of its log.

    The offset and the task are None if nothing has been committed.
    """

    partition: int
    committed: int | None
    owner: Owner | None
    first: int
    end: int

    @property
    def lag(self) -> int:
        """The number of offsets left to read."""
        return max(0, self.end - (self.first if self.committed is None else self.committed))


class Positions:
    """Reads the positions of a pipeline's partitions, with a timeout of `seconds` for each request.

    It keeps its clients open between requests.
    """

    def __init__(self, graph: m.Graph, seconds: float = TIMEOUT) -> None:
        self._source = source_of(graph)
        settings = client_options(self._source)
        self._committed = CommittedOffsets(group_of(graph), self._source.topic, settings)
        self._topic = Admin(self._source.topic, settings, seconds)

    def topic_id(self) -> str:
        """Return the ID that distinguishes the topic from another topic of the same name.

        Raise SourceError if the broker or the topic is unavailable.
        """
        return self._topic.topic_id()

    def ask(self) -> list[Position]:
        """Return the position of each partition; raise SourceError if the broker or the topic is unavailable."""
        partitions = self._topic.partitions()
        # before the ends, so that no committed offset is beyond them
        committed = self._committed.ask(partitions, TIMEOUT)
        ends = self._topic.offsets(partitions)
        return [
            Position(number, None if at is None else at.offset, Owner.of(at), first, end)
            for number, (first, end) in sorted(ends.items())
            for at in [committed.get(number)]
        ]


class Progress:
    """Reports the commits of the run with the ID `run`, and checks that its topic has not been replaced."""

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
        """Report the commits since the last report, if there are any and the broker answers.

        Raise RecordsLostError if the topic was recreated, or RunError if its number of partitions has changed.
        """
        try:
            topic_id, positions = self._positions.topic_id(), self._positions.ask()
        except WindrowError as exc:
            if not self._is_down:
                self._on_trouble(r.Fault.of(exc, str(exc), "the tasks try again"))
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
        self._on_lag(r.Lag(r.now_micros(), behind))
        if offsets == self._last and any(behind.values()):
            return  # nothing was committed
        self._epoch += 1
        read: dict[PartitionName, int] = {
            position.partition: self._read(position) for position in positions if position.committed is not None
        }
        self._last = offsets
        seconds = self._watch.lap()
        on_step(
            r.StepReport(
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
                committed=r.now_micros(),
                read=read,
                only_offsets=True,
            )
        )

    def _read(self, at: Position) -> int:
        """Return the number of offsets of a partition that the run has read since the last report."""
        if at.committed is None or at.owner is None or at.owner.first is None or at.owner.run != self._run:
            return 0
        return at.committed - max(at.owner.first, self._last.get(at.partition, 0))
