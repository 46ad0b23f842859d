"""Where the time goes, stage by stage and without Spark: ``PYTHONPATH=. python bench/stages.py``.

Runs a day of the main job through each stage in this process and prints its CPU seconds: what is left to a whole run
beside these is Spark's: reading, moving rows between the JVM and Python, the shuffle, the state store.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from bench.pipelines import main_job

from windrow.authoring.pipeline_file import parse_pipeline
from windrow.engine.decode.decoder import Decoder
from windrow.engine.level import open_levels
from windrow.engine.messages import Message
from windrow.engine.operators.ingest import Ingest
from windrow.engine.state.store import MemoryState
from windrow.expressions import decoding_spec
from windrow.runtime.spark.rows import output_frame
from windrow.runtime.spark.transport import TableTransport
from windrow.tools.generate import LogSpec, generate


class Clock:
    """CPU seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add what happens inside to a stage."""
        began = time.process_time()
        yield
        self.seconds[name] += time.process_time() - began


def main() -> None:
    """Print a line a stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=250_000)
    parser.add_argument("--delay", default="10m", help="'{adaptive: {target: 0.99, min: 10s, max: 10m}}', say")
    arguments = parser.parse_args()
    pipeline = parse_pipeline(main_job(time=f"delay: {arguments.delay}, future: 1h"))
    clock, decoder, stage = Clock(), Decoder(decoding_spec(pipeline)), Ingest(pipeline)
    (level,) = open_levels(pipeline, range(4))
    states = [MemoryState() for _ in range(pipeline.key_groups)]
    rows = 0
    for raw in _steps(arguments.events, arguments.step):
        partitions = [raw.filter(pa.compute.equal(raw.column("partition"), p)).combine_chunks() for p in range(4)]
        with clock.stage("decode (alone)"):
            for partition in partitions:
                for batch in partition.to_batches(max_chunksize=100_000):
                    decoder.decode(batch)
        groups: list[list[Message]] = [[] for _ in states]
        with clock.stage("clock stage (with decode)"):
            packets = [p for part in partitions for p in stage.run(part.to_batches(max_chunksize=100_000))]
        for packet in packets:
            groups[packet.key_group].append(packet.message)
        for group, state in enumerate(states):
            with clock.stage("level (unpack, operator)"):
                output = level.step(group, groups[group], state)
            with clock.stage("pack changes"):
                output_frame(group, output, TableTransport())
            rows += output.rows.changes.num_rows
    print(f"{arguments.events:,} events in steps of {arguments.step:,}: {rows:,} changes")
    for name, seconds in clock.seconds.items():
        print(f"{name:28} {seconds:7.2f} CPU s {arguments.events / seconds:14,.0f} events/s and core")


def _steps(events: int, size: int) -> Iterator[pa.Table]:
    log = pa.Table.from_batches(generate(LogSpec(events=events)))
    for start in range(0, log.num_rows, size):
        yield log.slice(start, size)


if __name__ == "__main__":
    main()
