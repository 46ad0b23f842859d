"""Plays a log that is given as steps, as the memory host does: one Spark job, cut where the steps end."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from windrow.core.changelog import StepOutput
from windrow.core.messages import Packet
from windrow.core.tick import PlayStep, Tick
from windrow.hosts.batch.job import Job
from windrow.hosts.batch.plan import Plan
from windrow.hosts.batch.slices import END, Slices
from windrow.hosts.stream.carrier import Carrier
from windrow.hosts.stream.errors import SPARK_ERRORS, translate
from windrow.hosts.stream.session import spark_session
from windrow.hosts.stream.wire import outputs
from windrow.model import AnyPipeline, LogSource
from windrow.sources import open_source


def play(pipeline: AnyPipeline, steps: Sequence[PlayStep], at_end: Literal["fire", "hold"]) -> list[StepOutput]:
    """Run a log that is given in steps; return each step's output, and the end's as the last.

    All partitions that occur are there from the start.
    """
    with tempfile.TemporaryDirectory(prefix="windrow-") as folder:
        cut = _write(steps, at_end, Path(folder))
        source = open_source(LogSource(folder))
        found = [StepOutput.empty(pipeline) for _ in range(len(cut))]
        if not cut.upto[-1]:
            return found
        job = Job(pipeline, source, Plan(dict.fromkeys(cut.upto[-1], 0), cut))
        try:
            for number, rows in job.results(spark_session(log=Path(folder) / "spark.log"), Carrier()):
                found[number] = StepOutput.concat(part.rows for part in outputs(pipeline, rows))
        except SPARK_ERRORS as exc:
            raise translate(exc, "the batch", "") from exc
    return found


def _write(steps: Sequence[PlayStep], at_end: Literal["fire", "hold"], folder: Path) -> Slices:
    """Write the log, and return where the steps end in it, and what they are told."""
    logs: dict[int, list[bytes]] = {
        partition: [] for step in steps if not isinstance(step, Tick) for partition, _ in step
    }
    upto, told = [], {}
    for number, step in enumerate(steps):
        if isinstance(step, Tick):
            told[number] = (Packet(key_group=-1, kind="tick", watermark=step.micros),)
        else:
            for partition, value in step:
                logs[partition].append(value + b"\n")
        upto.append({partition: len(values) for partition, values in logs.items()})
    if at_end == "fire":
        told[len(steps)] = (END,)
    upto.append({partition: len(values) for partition, values in logs.items()})
    for partition, values in logs.items():
        (folder / f"partition-{partition}.jsonl").write_bytes(b"".join(values))
    return Slices(tuple(upto), told)
