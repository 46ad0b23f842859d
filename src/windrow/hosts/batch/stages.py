"""The code of a batch run that runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from windrow.core.columns import to_micros
from windrow.core.messages import Packet
from windrow.core.operators import open_operator
from windrow.core.operators.base import StepInput
from windrow.core.operators.ingest import Ingest
from windrow.core.operators.local_aggregate import LocalAggregate
from windrow.core.state.store import MemoryState
from windrow.core.watermarks.journal import WatermarkBounds
from windrow.hosts.batch.since import ending_after
from windrow.hosts.batch.slices import Slices
from windrow.hosts.batch.wire import by_slice, numbered, output_row, state_rows
from windrow.hosts.stream.carrier import Carrier
from windrow.hosts.stream.sent import received, send
from windrow.model import AnyPipeline, Pipeline

Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `mapInArrow`."""

_TOLD = ("tick", "idle", "end")


def clock_stage(pipeline: AnyPipeline, floors: WatermarkBounds, cut: Slices) -> Stage:
    """Return the function that makes numbered packets of one partition's raw records."""
    sent = send(pipeline)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage = Ingest(received(sent), floors)
        for number, pieces in groupby(_pieces(batches, cut), lambda piece: piece[0]):
            for packet in stage.run(batch for _, batch in pieces):
                yield numbered(number, packet)

    return run


def _pieces(batches: Iterable[pa.RecordBatch], cut: Slices) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut a partition's batches where its steps end; yield each piece with the number of its step."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        ends = np.array(cut.ends_of(batch.column("partition")[0].as_py()))
        numbers = np.searchsorted(ends, to_micros(batch.column("offset")), side="right")
        found, firsts = np.unique(numbers, return_index=True)
        lengths = np.diff(firsts, append=batch.num_rows)
        for number, first, length in zip(found.tolist(), firsts.tolist(), lengths.tolist(), strict=True):
            yield number, batch.slice(first, length)


def spread_stage(pipeline: Pipeline, partitions: tuple[int, ...], cut: Slices) -> Stage:
    """Return the function of a key group in the first stage of a salted pipeline: packets to packets, step by step."""
    sent = send(pipeline)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pipeline = received(sent)
        if not isinstance(pipeline, Pipeline):
            raise TypeError(pipeline)
        spread, state, group = LocalAggregate(pipeline, partitions), MemoryState(), _key_group()
        for number, packets in _steps(batches, cut, group):
            for packet in spread.step(group, packets, state):
                if packet.kind not in _TOLD:  # the next stage is told, too
                    yield numbered(number, packet)

    return run


def key_group_stage(
    pipeline: AnyPipeline,
    partitions: tuple[int, ...],
    cut: Slices,
    *,
    since: int | None,
    carrier: Carrier,
    keeps_state: bool,
) -> Stage:
    """Return the function of a key group: packets to results, a row a step, whose tables go to the carrier.

    Behind the steps comes what the key group knows then, at the position that follows those of the steps by its number.
    """
    sent = send(pipeline)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pipeline = received(sent)
        operator, state, group = open_operator(pipeline, partitions), MemoryState(), _key_group()
        for number, packets in _steps(batches, cut, group):
            output = operator.step(group, StepInput.of(pipeline, packets), state)
            if since is not None:
                output = ending_after(since, output)
            yield output_row(number, group, output, carrier)
        if keeps_state:
            yield from state_rows(len(cut) + group, group, state)

    return run


def _key_group() -> int:
    """Return the number of the task, which is that of its key group."""
    context = TaskContext.get()
    if context is None:
        msg = "this runs in Spark's workers only"
        raise RuntimeError(msg)
    return context.partitionId()


def _steps(batches: Iterable[pa.RecordBatch], cut: Slices, group: int) -> Iterator[tuple[int, list[Packet]]]:
    """Go through the steps in which there are packets or something is told."""
    told = {number: [replace(packet, key_group=group) for packet in packets] for number, packets in cut.told.items()}
    coming = sorted(told, reverse=True)
    for number, packets in by_slice(batches):
        while coming and coming[-1] < number:
            silent = coming.pop()
            yield silent, told[silent]
        is_told = bool(coming) and coming[-1] == number
        yield number, [*packets, *told[coming.pop()]] if is_told else packets
    for number in reversed(coming):
        yield number, told[number]
