#!/usr/bin/env python3
"""Prints the tables of docs/watermark-policy.md: what a delay and a lateness cost, on the generator's day.

It runs the pipeline of examples/user_spend.yaml in this process, in steps in the order of arrival. Takes minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from tests.short_forms import Pipeline

import windrow as wr
from windrow.engine.columns import unpack
from windrow.engine.level import open_levels
from windrow.engine.messages import EndOfInput, Packet
from windrow.engine.operators.ingest import Ingest
from windrow.engine.schema import RAW
from windrow.engine.state.store import MemoryState
from windrow.model import Delay, format_duration, parse_duration
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import StepReport, Totals
from windrow.tools.generate import LogSpec, generate

EXAMPLE = Path(__file__).parent.parent / "examples" / "user_spend.yaml"
SPEC = LogSpec()
STEP = 10_000
"""Records a step: about a quarter of an hour of the day."""
DELAYS = ("0s", "10s", "1m", "10m", "1h")
LATENESSES = ("0s", "10m", "1h", "2h")


class MeasuredState(MemoryState):
    """A key group's state that tells how large it is."""

    def measure(self) -> tuple[int, int]:
        """Return the windows and keys that it holds, and its bytes."""
        rows: int = sum(unpack(blob).num_rows for (kind, _), blob in self.items() if kind == "panes")
        return rows, self.size


@dataclass
class Cost:
    """What a day took: totals, and how much state there was after each step, as (windows and keys, bytes)."""

    totals: Totals = field(default_factory=Totals)
    states: list[tuple[int, int]] = field(default_factory=list)

    def state(self) -> tuple[float, float]:
        """Return the mean of the second half of the day, when there is as much state as there will be."""
        half = self.states[len(self.states) // 2 :]
        return sum(rows for rows, _ in half) / len(half), sum(size for _, size in half) / len(half)


def steps() -> Iterator[pa.Table]:
    """Cut the day into steps in the order of arrival."""
    held = RAW.empty_table()
    for batch in generate(SPEC):
        held = pa.concat_tables([held, pa.Table.from_batches([batch], schema=RAW)])
        while held.num_rows >= STEP:
            yield held.slice(0, STEP).sort_by([("partition", "ascending"), ("offset", "ascending")])
            held = held.slice(STEP)


def run(pipeline: Pipeline) -> Cost:
    """Run a pipeline over the day."""
    probe = step_probe(pipeline)
    stage = Ingest(pipeline, probe=probe)
    (level,) = open_levels(pipeline, range(SPEC.partitions), probe=probe)
    states = [MeasuredState() for _ in range(pipeline.key_groups)]
    cost = Cost()

    def step(packets: Sequence[Packet]) -> None:
        given = [[one.message for one in packets if one.key_group == group] for group in range(len(states))]
        groups = [level.step(group, given[group], state) for group, state in enumerate(states)]
        cost.totals.add(StepReport.of(cost.totals.steps, groups, 0.0))

    for raw in steps():
        step(list(stage.run(raw.to_batches())))
        sizes = [state.measure() for state in states]
        cost.states.append((sum(rows for rows, _ in sizes), sum(size for _, size in sizes)))
    step([Packet(group, EndOfInput()) for group in range(pipeline.key_groups)])
    return cost


def row(pipeline: Pipeline, delay: str, lateness: str) -> str:
    """Run the pipeline with that policy and return a row of a table."""
    policy = replace(
        pipeline,
        time=replace(pipeline.time, watermark=Delay(parse_duration(delay))),
        emit=replace(pipeline.emit, lateness=parse_duration(lateness)),
    )
    cost = run(policy)
    totals = cost.totals
    good = totals.events - totals.dead
    held, size = cost.state()
    return (
        f"| {delay} | {lateness} | {good - totals.late - totals.expired:,} | {totals.late:,} | {totals.expired:,} "
        f"| {totals.revisions:,} | {held:,.0f} | {size / 1e6:.1f} MB |"
    )


def main() -> None:
    """Print both tables."""
    pipeline = wr.load(EXAMPLE).graph
    if not isinstance(pipeline, Pipeline):
        sys.exit(f"{EXAMPLE} is no pipeline of one window")
    policies = [(delay, "1h") for delay in DELAYS] + [("10m", lateness) for lateness in LATENESSES if lateness != "1h"]
    window = format_duration(pipeline.window.size)
    write = sys.stdout.write
    write(f"{SPEC.events:,} events, windows of {window}, steps of {STEP:,} records\n\n")
    write("| delay | lateness | on time | late | expired | revisions | windows and keys held | state |\n")
    write("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
    for delay, lateness in policies:
        write(row(pipeline, delay, lateness) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
