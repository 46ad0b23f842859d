"""Plays a log that is given as steps, as the memory host does."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from windrow.core.changelog import StepOutput
from windrow.core.tick import PlayStep, Tick
from windrow.hosts.stream.run import Settings, StreamRun
from windrow.model import AnyPipeline, LogSource, with_at_end
from windrow.sinks.collect import CollectSink


def play(pipeline: AnyPipeline, steps: Sequence[PlayStep], at_end: Literal["fire", "hold"]) -> list[StepOutput]:
    """Run a log that is given in steps; return each step's output, and the end's as the last.

    All partitions that occur are there from the start. The log is written to a folder and cut where the steps end;
    ticks are in a partition of their own.
    """
    with tempfile.TemporaryDirectory(prefix="windrow-") as folder:
        log = Path(folder) / pipeline.source.label
        log.mkdir()
        return _play(pipeline, steps, at_end, log)


def _play(
    pipeline: AnyPipeline, steps: Sequence[PlayStep], at_end: Literal["fire", "hold"], log: Path
) -> list[StepOutput]:
    fed = [step for step in steps if not isinstance(step, Tick)]
    counts = dict.fromkeys(sorted({partition for step in fed for partition, _ in step}), 0)
    ticks = max(counts, default=-1) + 1
    written = [[(ticks, b"%d" % step.micros)] if isinstance(step, Tick) else step for step in steps]
    if len(fed) < len(steps):
        counts[ticks] = 0
    cuts = []
    for step in written:
        for partition, _ in step:
            counts[partition] += 1
        cuts.append(dict(counts))
    for partition in counts:
        lines = (value + b"\n" for step in written for number, value in step if number == partition)
        (log / f"partition-{partition}.jsonl").write_bytes(b"".join(lines))
    given = replace(with_at_end(pipeline, at_end), source=LogSource(str(log)))
    sink = CollectSink()
    settings = Settings(log.parent / "checkpoint", until_end=True, cuts=cuts, ticks=ticks)
    StreamRun(given, sink, settings).run(lambda _: None)
    return _by_step(given, written, sink)


def _by_step(
    pipeline: AnyPipeline, steps: Sequence[Sequence[tuple[int, bytes]]], sink: CollectSink
) -> list[StepOutput]:
    """Give each step its epoch's output; a step without records is no epoch."""
    epochs = iter(sorted(sink.steps))
    outputs = [sink.steps[next(epochs)] if step else StepOutput.empty(pipeline) for step in steps]
    last = next(epochs, None)
    return [*outputs, StepOutput.empty(pipeline) if last is None else sink.steps[last]]
