"""What grows with partitions, key groups and keys, without Spark: ``python bench/scale.py``.

Control messages: a step of one record in each of P partitions, read by 16 tasks, for G key groups that 16 tasks hold:
rows and bytes that go to the key groups, the CPU time of each side, and the bytes of state that the step writes. The
records are made here, so that no log of 1,000 partitions is needed.

State: 1,000,000 keys with a record each, open at once, by kind of node: bytes a key.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
from bench.pipelines import main_job

from windrow.authoring.pipeline_file import parse_pipeline
from windrow.engine.level import open_levels
from windrow.engine.messages import Message
from windrow.engine.operators.ingest import Ingest
from windrow.engine.schema import MICROS, RAW
from windrow.engine.state.store import MemoryState
from windrow.runtime.memory import MemoryHost
from windrow.runtime.spark.rows import packet_batch
from windrow.telemetry.probe import step_probe
from windrow.tools.generate.spec import START

TASKS = 16
MINUTE = 60_000_000


def records(partitions: np.ndarray, offsets: np.ndarray, users: np.ndarray) -> pa.RecordBatch:
    """Return RAW records of these users at one time of the day."""
    times = START // 1000 + offsets * 1000
    values = [
        json.dumps({"user_id": f"user-{user:09}", "event_time": int(at), "amount": "1.25"}).encode()
        for user, at in zip(users.tolist(), times.tolist(), strict=True)
    ]
    columns = [pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64()), pa.nulls(len(values), MICROS)]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary())], schema=RAW
    )


def control(partitions: int, groups: int, steps: int = 3) -> str:
    """Return a row of the table on control messages: the last of some steps."""
    pipeline = parse_pipeline(main_job(key_groups=groups))
    probe = step_probe(pipeline)
    stages = [Ingest(pipeline, probe=probe) for _ in range(TASKS)]
    runners = [open_levels(pipeline, tuple(range(partitions)), probe=probe)[0] for _ in range(TASKS)]
    states = [MemoryState() for _ in range(groups)]
    figures = (0.0, 0.0, 0, 0, 0)
    for step in range(steps):
        messages: list[list[Message]] = [[] for _ in range(groups)]
        began, rows, size = time.process_time(), 0, 0
        packets = chain.from_iterable(
            stage.run(
                records(np.array([number]), np.array([step]), np.array([number]))
                for number in range(task, partitions, TASKS)
            )
            for task, stage in enumerate(stages)
        )
        for packet in packets:
            batch = packet_batch(packet)
            rows, size = rows + 1, size + batch.nbytes
            messages[packet.key_group].append(packet.message)
        ingested = time.process_time()
        for group in range(groups):
            runners[group % TASKS].step(group, messages[group], states[group])
        done = time.process_time()
        state = sum(len(one.summary() or b"") for one in states)
        figures = ingested - began, done - ingested, rows, size, state
    read, run, rows, size, state = figures
    return (
        f"| {partitions:,} | {groups:,} | {rows:,} | {size / 1e6:.1f} | {state / 1e6:.1f} "
        f"| {read:.2f} | {run:.2f} | {run / groups * 1e3:.2f} |"
    )


def state(keys: int) -> Iterator[str]:
    """Yield rows of the table on state."""
    kinds = {
        "tumbling 5m": main_job(),
        "hopping 1h every 5m": main_job(window="{hopping: {size: 1h, slide: 5m}}"),
        "session 5m": main_job(window="{session: 5m}"),
        "global": main_job(window="{global: {}}", emit="mode: retract, early: {count: 1}"),
    }
    for name, text in kinds.items():
        host = MemoryHost(parse_pipeline(text), [0])
        every = 250_000
        for first in range(0, keys, every):
            users = np.arange(first, first + every)
            # all within a second
            batch = records(np.zeros(every), users, users)
            host.step(pa.Table.from_batches([_at_once(batch)]))
        size = host.state_size
        yield f"| {name} | {size / 1e6:,.0f} | {size / keys:.0f} | {size / keys * 1e8 / 1e9:.0f} |"


def _at_once(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give all records one event time."""
    values = [
        json.dumps(json.loads(value) | {"event_time": START // 1000}).encode() for value in batch["value"].to_pylist()
    ]
    return batch.set_column(4, batch.schema.field(4), pa.array(values, pa.binary()))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--groups", type=int, nargs="*", default=[8, 128, 1024])
    arguments = parser.parse_args()
    print("| partitions | key groups | rows | MB sent | MB of clocks | CPU s of ingest | of levels | ms a group |")
    print("| ---: " * 8 + "|")
    for partitions in arguments.partitions:
        for groups in arguments.groups:
            print(control(partitions, groups), flush=True)
    print(f"\n| state of {arguments.keys:,} keys | MB | bytes a key | GB at 100,000,000 keys |")
    print("| --- | ---: | ---: | ---: |")
    for row in state(arguments.keys):
        print(row, flush=True)


if __name__ == "__main__":
    main()
