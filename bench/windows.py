"""What a window's shape costs the operator, without Spark: ``PYTHONPATH=. python bench/windows.py``.

Prints CPU seconds of the clock stage and the operator over one log for each window: every key has so many events a
minute, some of them out of order.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from bench.pipelines import main_job

from windrow.authoring.pipeline_file import parse_pipeline
from windrow.engine.level import open_levels
from windrow.engine.messages import Message
from windrow.engine.operators.ingest import Ingest
from windrow.engine.schema import RAW
from windrow.engine.state.store import MemoryState
from windrow.engine.tick import Tick
from windrow.model import Calendar, Emit, Every, Global, Graph, Hopping, Records, Session, Tumbling, Window, WindowNode
from windrow.runtime.spark.rows import output_frame
from windrow.runtime.spark.transport import TableTransport

SECOND = 1_000_000
MINUTE = 60 * SECOND
START = 1_767_261_600_000
PARTITIONS = 4


def shapes(base: Graph) -> dict[str, Graph]:
    """Return the pipelines that are compared, the first as the measure."""

    def of(window: Window, emit: Emit | None = None) -> Graph:
        return base.map_nodes(
            lambda node: replace(node, window=window, emit=emit or node.emit) if isinstance(node, WindowNode) else node
        )

    def early(window: Tumbling | Global, trigger: Records | Every) -> Graph:
        return of(window, Emit(early=trigger))

    return {
        "tumbling 1m": base,
        "tumbling 1h": of(Tumbling(60 * MINUTE)),
        "hopping 5m by 1m": of(Hopping(5 * MINUTE, MINUTE)),
        "hopping 1h by 1m": of(Hopping(60 * MINUTE, MINUTE)),
        "calendar day": of(Calendar(1, "day", "Europe/Berlin")),
        "session 30s": of(Session(30 * SECOND)),
        "session 2m": of(Session(2 * MINUTE)),
        "early: 1h, 100 records": early(Tumbling(60 * MINUTE), Records(100)),
        "early: 1m, every 10s": early(Tumbling(MINUTE), Every(10 * SECOND)),
        "early: global, 100 records": early(Global(), Records(100)),
    }


def main() -> None:
    """Print a line a window."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=3_000_000)
    parser.add_argument("--step", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=7, help="events a key and minute")
    parser.add_argument("--only", default="", help="the beginning of the names of those to run")
    arguments = parser.parse_args()
    base = parse_pipeline(main_job(time="delay: 10s, future: 1h", window="{tumbling: 1m}", emit="lateness: 0s"))
    steps = list(_steps(arguments.events, arguments.step, arguments.keys, arguments.rate))
    packets, seconds = _packets(base, steps)
    print(f"{arguments.events:,} events, {arguments.keys:,} keys, steps of {arguments.step:,}; "
          f"clock stage {seconds:.2f} CPU s")  # fmt: skip
    first = None
    for name, pipeline in shapes(base).items():
        if not name.startswith(arguments.only):
            continue
        took, changes = _run(pipeline, packets)
        first = first or took
        print(
            f"{name:28} {took:7.2f} CPU s {arguments.events / took:12,.0f} events/s and core {changes:12,} changes, "
            f"{took / first:5.2f} of the first, {(took + seconds) / (first + seconds):5.2f} with the clock stage"
        )


def _steps(events: int, size: int, keys: int, rate: int) -> Iterator[pa.Table]:
    """Yield the log: events up to 10 seconds out of order, in turn in each partition."""
    random = np.random.default_rng(7)
    for first in range(0, events, size):
        number = np.arange(first, min(first + size, events))
        times = START + number * 60_000 // (keys * rate) - random.integers(0, 10_000, len(number))
        users, cents = random.integers(0, keys, len(number)), random.integers(0, 100_000, len(number))
        values = [
            b'{"user_id":"u%05d","event_time":%d,"amount":"%d.%02d"}' % (user, at, *divmod(cent, 100))
            for user, at, cent in zip(users.tolist(), times.tolist(), cents.tolist(), strict=True)
        ]
        partitions = pa.array(number % PARTITIONS, pa.int32())
        offsets = pa.array(number // PARTITIONS, pa.int64())
        nothing = [pa.nulls(len(number), RAW.field(name).type) for name in ("log_time", "key")]
        yield pa.table([partitions, offsets, *nothing, pa.array(values, pa.binary())], schema=RAW)


def _packets(pipeline: Graph, steps: list[pa.Table]) -> tuple[list[list[list[Message]]], float]:
    """Return the packets by step and key group, and what the clock stage took."""
    stage, found = Ingest(pipeline), []
    began = time.process_time()
    for number, raw in enumerate(steps):
        groups: list[list[Message]] = [[] for _ in range(pipeline.key_groups)]
        for partition in range(PARTITIONS):
            part = raw.filter(pa.compute.equal(raw.column("partition"), partition)).combine_chunks()
            for packet in stage.run(part.to_batches(max_chunksize=100_000)):
                groups[packet.key_group].append(packet.message)
        for messages in groups:
            messages.append(Tick(number * 10 * SECOND))
        found.append(groups)
    return found, time.process_time() - began


def _run(pipeline: Graph, packets: list[list[list[Message]]]) -> tuple[float, int]:
    """Return the CPU seconds and the number of changes."""
    (level,) = open_levels(pipeline, range(PARTITIONS))
    states = [MemoryState() for _ in range(pipeline.key_groups)]
    began, changes = time.process_time(), 0
    for groups in packets:
        for group, state in enumerate(states):
            output = level.step(group, groups[group], state)
            output_frame(group, output, TableTransport())
            changes += output.rows.changes.num_rows
    return time.process_time() - began, changes


if __name__ == "__main__":
    main()
