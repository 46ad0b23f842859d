"""What a batch run reads, and in which steps."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.core.messages import Packet
from windrow.errors import SourceError
from windrow.hosts.batch.settings import BatchSettings
from windrow.hosts.batch.slices import END, Slices, slices
from windrow.hosts.meaning import meaning
from windrow.hosts.savepoint import Savepoint
from windrow.model import AnyPipeline, KafkaSource
from windrow.sinks.base import Run
from windrow.sources import Cut, Source
from windrow.sources.base import Offset


@dataclass(frozen=True)
class Plan:
    """Where each partition is read from, and the steps from there.

    `at` is where that ends, as the source notes it, and `identity` what tells the log from another one of the same
    name; None where no savepoint is to say it.
    """

    begin: Cut
    cut: Slices
    at: Offset | None = None
    identity: str | None = None

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that are read."""
        return tuple(sorted(self.begin))

    @property
    def end(self) -> Cut:
        """Where that ends."""
        return self.cut.upto[-1] if len(self.cut) else self.begin

    def savepoint(self, pipeline: AnyPipeline, run: Run, epoch: int) -> Savepoint:
        """Return what a savepoint says of a run that has read all this."""
        return Savepoint(
            run=run,
            epoch=epoch,
            offsets=dict(self.end),
            partitions=self.partitions,
            key_groups=pipeline.key_groups,
            meaning=meaning(pipeline),
            at=self.at,
            identity=self.identity,
        )


def batch_plan(pipeline: AnyPipeline, source: Source, settings: BatchSettings) -> Plan:
    """Look at the log, and return what is read of it; raise SourceError if what is asked for is not there."""
    identity = None if settings.savepoint is None else source.identity()
    begin, end = _range(pipeline, source, settings)
    at = None if settings.savepoint is None else source.beginning(end)
    last = [
        Packet(key_group=-1, kind="idle", partition=partition, watermark=settings.silence.low)
        for partition in settings.silence.partitions
    ]
    if (settings.at_end or pipeline.at_end) == "fire":
        last.append(END)
    return Plan(begin, slices(begin, end, settings.ends, settings.max_records, tuple(last)), at, identity)


def _range(pipeline: AnyPipeline, source: Source, settings: BatchSettings) -> tuple[dict[int, int], dict[int, int]]:
    """Return where each partition is read from and to; raise SourceError if that is not in the log."""
    there = source.ends()
    begin = {partition: first for partition, (first, _) in there.items()}
    end = {partition: last for partition, (_, last) in there.items()}
    if settings.begin is not None:
        begin |= _within(settings.begin, there)
    elif isinstance(pipeline.source, KafkaSource) and pipeline.source.start == "latest":
        begin = dict(end)
    if settings.end is not None:
        end = begin | _within(settings.end, there)
    return begin, end


def _within(asked: Cut, there: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Return a cut; raise SourceError if the log does not hold it (any more)."""
    for partition, offset in asked.items():
        first, end = there.get(partition, (0, 0))
        if not first <= offset <= end:
            msg = (
                f"offset {offset} of partition {partition} is asked for, but the log holds {first} to {end} now: "
                "records were lost, or it is another log"
            )
            raise SourceError(msg)
    return dict(asked)
