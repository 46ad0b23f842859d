"""The code that runs in Spark's Python workers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from windrow.core.messages import Packet
from windrow.core.operators import Operator, open_operator
from windrow.core.operators.base import StepInput
from windrow.core.operators.ingest import Ingest
from windrow.core.operators.local_aggregate import LocalAggregate, copy_clocks
from windrow.core.state.store import MemoryState, State
from windrow.core.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.hosts.savepoint import Savepoint
from windrow.hosts.stream.carrier import Carrier
from windrow.hosts.stream.sent import received, send
from windrow.hosts.stream.slots import slots
from windrow.hosts.stream.wire import output_frame, packet_batch, packet_frame, packets
from windrow.model import AnyPipeline, is_salted


# a worker process serves many steps: what a pipeline needs is built once in it
@lru_cache(maxsize=4)
def _clock_stage(pipeline: AnyPipeline, floors: WatermarkBounds, carrier: Carrier) -> Ingest:
    return Ingest(pipeline, floors, carrier.pack)


@lru_cache(maxsize=4)
def _operator(pipeline: AnyPipeline, partitions: tuple[int, ...]) -> Operator:
    return open_operator(pipeline, partitions)


@lru_cache(maxsize=4)
def _spread(pipeline: AnyPipeline, partitions: tuple[int, ...]) -> LocalAggregate:
    if not is_salted(pipeline):
        msg = "only a salted pipeline has two stages"
        raise TypeError(msg)
    return LocalAggregate(pipeline, partitions)


def clock_stage(
    pipeline: AnyPipeline, carrier: Carrier, floors: WatermarkBounds = NO_BOUNDS, ticks: int | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that makes packets of one partition's raw records, for `mapInArrow`.

    The carrier brings the records in them. Those of the partition `ticks`, if there is one, are ticks: microseconds in
    digits.
    """
    sent = send(pipeline)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pipeline = received(sent)
        told: list[int] = []

        def records() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                # an embedded log's batches, and only that has ticks, are of one partition each
                if ticks is not None and batch.column("partition")[:1].to_pylist() == [ticks]:
                    told.extend(map(int, batch.column("value").to_pylist()))
                else:
                    yield batch

        for packet in _clock_stage(pipeline, floors, carrier).run(records()):
            yield packet_batch(packet)
        for group in range(pipeline.key_groups if told else 0):
            yield packet_batch(Packet(key_group=group, kind="tick", watermark=max(told)))

    return run


class _Processor(StatefulProcessor):
    """What is done in a key group, in a step after the other.

    A key group that knows nothing takes what the savepoint `start` has of it: in the first step, and again where that
    is run again. (Spark's own initial state would go through a frame, a row a blob.)
    """

    def __init__(self, pipeline: AnyPipeline, partitions: tuple[int, ...], start: Path | None) -> None:
        self._sent = send(pipeline)
        self._slots = slots(pipeline.key_groups)
        self._partitions = partitions
        self._start = start
        self._state: _SparkState | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._state = _SparkState(handle)

    def handleInputRows(  # type: ignore[override] # noqa: N802 - Spark's name; it gives frames, never rows
        self,
        key: Any,  # noqa: ANN401 - Spark's signature
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ANN401, ARG002, N803 - Spark's signature
    ) -> Iterator[pd.DataFrame]:
        """Take one step of one key group."""
        if self._state is None:
            msg = "Spark called handleInputRows before init"
            raise RuntimeError(msg)
        (slot,) = key
        group = self._slots.index(int(slot))
        if self._start is not None and self._state.summary() is None:
            self.begin(self._state, Savepoint.state(self._start, group))
        yield self.step(group, packets(rows), self._state)

    def begin(self, state: State, known: MemoryState) -> None:
        """Take over what a key group knew in a savepoint."""
        known.copy_to(state)

    @abstractmethod
    def step(self, group: int, packets: Iterator[Packet], state: State) -> pd.DataFrame:
        """Take one step."""

    def close(self) -> None:
        """Nothing is held."""


class KeyGroupProcessor(_Processor):
    """Gives a key group's packets and state to the operator; gives its output to a carrier."""

    def __init__(
        self, pipeline: AnyPipeline, partitions: tuple[int, ...], start: Path | None, carrier: Carrier
    ) -> None:
        super().__init__(pipeline, partitions, start)
        self._carrier = carrier

    def step(self, group: int, packets: Iterator[Packet], state: State) -> pd.DataFrame:
        """Take one step."""
        pipeline = received(self._sent)
        operator = _operator(pipeline, self._partitions)
        output = operator.step(group, StepInput.of(pipeline, packets), state)
        return output_frame(group, output, self._carrier)


class SpreadProcessor(_Processor):
    """Gives a key group's packets and state to the first stage of a salted pipeline; gives packets."""

    def begin(self, state: State, known: MemoryState) -> None:
        """Take over the clocks."""
        copy_clocks(known, state)

    def step(self, group: int, packets: Iterator[Packet], state: State) -> pd.DataFrame:
        """Take one step."""
        return packet_frame(_spread(received(self._sent), self._partitions).step(group, packets, state))


# not as text: Spark would parse it in each task
_PLACE = StructType([StructField("kind", StringType()), StructField("bucket", LongType())])
_BLOB = StructType([StructField("blob", BinaryType())])


class _SparkState:
    """A key group's state in Spark's state store."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._summary = handle.getValueState("summary", _BLOB)
        self._blobs = handle.getMapState("blobs", _PLACE, _BLOB)

    def summary(self) -> bytes | None:
        """Return the summary, None in the first step."""
        return _blob(self._summary.get())

    def set_summary(self, blob: bytes) -> None:
        """Replace the summary."""
        self._summary.update((blob,))

    def get(self, kind: str, bucket: int) -> bytes | None:
        """Return a blob, None if there is none."""
        return _blob(self._blobs.getValue((kind, bucket)))

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Replace a blob."""
        self._blobs.updateValue((kind, bucket), (blob,))

    def drop(self, kind: str, bucket: int) -> None:
        """Forget a blob."""
        self._blobs.removeKey((kind, bucket))


def _blob(row: tuple[Any, ...] | None) -> bytes | None:
    return None if row is None else bytes(row[0])
