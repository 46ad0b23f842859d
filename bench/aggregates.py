"""What each aggregate costs a step, without Spark: ``PYTHONPATH=. python bench/aggregates.py``.

Runs a day of purchases through the clock stage and the operator, with one aggregate beside a count, and prints the CPU
seconds of both for a million records. With many users a window and key has a record or two; with few it has hundreds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import pyarrow as pa
from bench.pipelines import main_job

from windrow.authoring.pipeline_file import parse_pipeline
from windrow.engine.level import open_levels
from windrow.engine.messages import Message
from windrow.engine.operators.ingest import Ingest
from windrow.engine.state.store import MemoryState
from windrow.model import Graph
from windrow.tools.generate import LogSpec, generate

AGGREGATES = (
    "count()",
    "sum(amount)",
    "avg(amount)",
    "min(amount)",
    "max(user_id)",
    "sum(amount * 2)",
    "sum(amount) where amount > 5",
    "count_distinct(amount)",
    "approx_count_distinct(amount)",
    "quantile(amount, 0.99)",
    "approx_quantile(amount, 0.99)",
    "top_k(amount, 3)",
    "first(amount)",
    "last_in_log(amount)",
    "collect_list(amount, 10)",
    "collect_set(amount, 10)",
    "variance(amount)",
    "bool_and(amount > 1)",
    "events * 2",
)


def main() -> None:
    """Print a line an aggregate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--step", type=int, default=250_000)
    parser.add_argument("--users", type=int, nargs="+", default=[10_000, 20])
    arguments = parser.parse_args()
    for users in arguments.users:
        log = pa.Table.from_batches(generate(LogSpec(events=arguments.events, users=users)))
        print(f"{users:,} users: CPU seconds for a million records in the clock stage and in the operator; changes")
        for text in AGGREGATES:
            stage, operator, changes = _cost(_pipeline(text), log, arguments.step)
            million = 1_000_000 / log.num_rows
            print(f"  {text:32} {stage * million:6.2f} {operator * million:6.2f} {changes:10,}")


def _pipeline(aggregate: str) -> Graph:
    return parse_pipeline(main_job(aggregate=f'events: count(), value: "{aggregate}"'))


def _cost(pipeline: Graph, log: pa.Table, size: int) -> tuple[float, float, int]:
    stage, (level,) = Ingest(pipeline), open_levels(pipeline, range(4))
    states = [MemoryState() for _ in range(pipeline.key_groups)]
    in_stage, in_operator, changes = 0.0, 0.0, 0
    for raw in _steps(log, size):
        groups: list[list[Message]] = [[] for _ in states]
        began = time.process_time()
        for partition in range(4):
            part = raw.filter(pa.compute.equal(raw.column("partition"), partition)).combine_chunks()
            for packet in stage.run(part.to_batches(max_chunksize=100_000)):
                groups[packet.key_group].append(packet.message)
        in_stage += time.process_time() - began
        began = time.process_time()
        for group, state in enumerate(states):
            changes += level.step(group, groups[group], state).rows.changes.num_rows
        in_operator += time.process_time() - began
    return in_stage, in_operator, changes


def _steps(log: pa.Table, size: int) -> Iterator[pa.Table]:
    for start in range(0, log.num_rows, size):
        yield log.slice(start, size)


if __name__ == "__main__":
    main()
