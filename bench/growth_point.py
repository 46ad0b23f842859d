"""One point of ``bench/growth.py``, in a process (and a session) of its own; prints one line of JSON.

Spark starts and the pipeline runs over a warm-up topic before anything is measured; then it runs over the topic some
times, each with a new checkpoint. At last one more step without records writes the state as one compacted snapshot.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.discard import DiscardSink
from bench.disk import last_version
from bench.pipelines import from_kafka, main_job
from bench.processes import Sampler, cpu
from pyspark.sql import SparkSession

from windrow.authoring.pipeline_file import parse_pipeline
from windrow.connectors.source import Loss
from windrow.engine.columns import unpack
from windrow.model import Graph
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.session import spark_session
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.runtime.stream.offsets import OffsetLog
from windrow.runtime.stream.run import StreamRun
from windrow.runtime.stream.take_savepoint import read_states
from windrow.telemetry.reports import StepReport

_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"


@dataclass(frozen=True)
class Ran:
    """A run: seconds of the clock and of the processors, the greatest MiB (all, driver, Java, Python's workers)."""

    seconds: float
    cpu: float
    memory: float
    driver: float
    jvm: float
    workers: float
    steps: int
    events: int
    results: int


@dataclass(frozen=True)
class Held:
    """What is held at the end: rows by kind (a window and key is a row of `panes`), and bytes.

    The bytes are those of the rows' blobs, of the state's files as the run left them, and of one compacted snapshot.
    """

    rows: dict[str, int]
    blobs: int
    left: int
    compacted: int


def run(pipeline: Graph, sink: DiscardSink, checkpoint: Path, step: int) -> Ran:
    """Run to the end of the topic, and measure."""
    steps: list[StepReport] = []
    leader = os.getpid()
    used = cpu(leader)
    with Sampler(lambda: leader, 0.1) as sampler:
        began = time.monotonic()
        StreamRun(pipeline, sink, RunSettings(checkpoint, until_end=True, max_records=step)).run(steps.append)
        seconds = time.monotonic() - began
    most = {
        name: max((getattr(sample, name) for sample in sampler.samples), default=0.0)
        for name in ("driver", "jvm", "workers")
    }
    return Ran(
        seconds=seconds,
        cpu=cpu(leader) - used,
        memory=max((sample.total for sample in sampler.samples), default=0.0),
        **most,
        steps=len(steps),
        events=sum(one.events for one in steps),
        results=sum(one.inserts + one.revisions for one in steps),
    )


def held(spark: SparkSession, pipeline: Graph, sink: DiscardSink, folder: Path) -> Held:
    """Count what a run has left, and let it write a snapshot."""
    left = last_version(folder / "spark" / "state")
    spark.conf.set(f"{_ROCKSDB}.changelogCheckpointing.enabled", "false")
    spark.conf.set(f"{_ROCKSDB}.compactOnCommit", "true")
    checkpoint = Checkpoint.read(folder)
    if checkpoint is None or checkpoint.batch is None:
        msg = f"there is no committed step in {folder}"
        raise RuntimeError(msg)
    # what tells that nothing is gone is a step without records
    stood = checkpoint.offsets().get(0, 0)
    OffsetLog(checkpoint).move(checkpoint.note(checkpoint.batch).at, [Loss(0, stood, stood, "nothing")])
    StreamRun(pipeline, sink, RunSettings(folder, until_end=True)).run(lambda _: None)
    compacted = last_version(folder / "spark" / "state")
    rows: Counter[str] = Counter()
    size = 0
    for _, state in read_states(spark, checkpoint.spark, checkpoint.batch, checkpoint.meaning["key_groups"]):
        for (kind, _), blob in state.items():
            rows[kind] += unpack(blob).num_rows
            size += len(blob)
    return Held(dict(rows), size, left, compacted)


def main() -> None:
    """Measure one point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--warm", required=True, help="the topic to warm up on")
    parser.add_argument("--window", required=True)
    parser.add_argument("--lateness", required=True)
    parser.add_argument("--salt", type=int, required=True)
    parser.add_argument("--step", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    given = parser.parse_args()
    topics = [given.warm, *[given.topic] * given.runs]
    with tempfile.TemporaryDirectory(prefix="windrow-growth-") as name:
        folder = Path(name)
        spark = spark_session(log=folder / "spark.log")
        ran = []
        for number, topic in enumerate(topics):
            sink = DiscardSink()
            text = main_job(
                from_kafka(given.servers, topic),
                window=given.window,
                emit=f"lateness: {given.lateness}, late: each, mode: retract, at_end: hold",
                salt=given.salt,
            )
            pipeline = parse_pipeline(text)
            ran.append(run(pipeline, sink, folder / str(number), given.step))
        found = held(spark, pipeline, sink, folder / str(len(topics) - 1))
        spark.stop()
    print(json.dumps({"first": asdict(ran[0]), "runs": [asdict(one) for one in ran[1:]], "held": asdict(found)}))


if __name__ == "__main__":
    main()
