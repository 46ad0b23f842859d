"""How fast the sinks take a step: changes a second into the result table and the changelog together.

    python bench/sinks.py [--changes 200000] [--steps 5] [--small 300] [--only sqlite delta] [--postgres URL]

Each of the steps inserts that many (window, key) pairs, as the demo's day does; then come as many small steps as a live
pipeline makes, and one that revises every row of the first. PostgreSQL is measured when a url is given.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline, graph_of_short

from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.duckdb.connector import DuckDBSink
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.parquet.connector import ParquetSink
from windrow.connectors.sink import Run
from windrow.engine import schema
from windrow.engine.changelog import StepOutput
from windrow.model import (
    Aggregate,
    Count,
    DecimalType,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    LogSource,
    PostgresSink,
    Sink,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
)

USERS = 10_000
WINDOW = 300_000_000
START = 1_767_225_600_000_000
SMALL_STEPS = 20
FILES = ["sqlite", "duckdb", "delta", "parquet"]


def pipeline(sink: Sink) -> Pipeline:
    """Return the demo's pipeline into that sink."""
    return Pipeline(
        name="sinks-bench",
        source=LogSource("data"),
        decode=Decode(
            (
                Field("user_id", StringType()),
                Field("event_time", TimestampType("millis")),
                Field("amount", DecimalType(12, 2)),
            )
        ),
        time=EventTime("event_time", Delay(600_000_000)),
        key=("user_id",),
        window=Tumbling(WINDOW),
        aggregates=(Aggregate("total", Sum("amount")), Aggregate("events", Count())),
        emit=Emit(lateness=3_600_000_000),
        sink=sink,
    )


def output(model: Pipeline, first_window: int, rows: int, seed: int) -> StepOutput:
    """Return a step that inserts rows of different (window, user), in a random order of users."""
    random = np.random.default_rng(seed)
    windows, users = np.divmod(np.arange(rows), USERS)
    order = random.permutation(rows)
    start = START + (first_window + windows[order]) * WINDOW
    names = pa.array([f"user-{user:05d}" for user in range(USERS)])
    changes = [
        pa.repeat("insert", rows),
        pa.repeat("on_time", rows),
        pa.repeat(pa.scalar(0, pa.int32()), rows),
        pa.array(start).cast(schema.MICROS),
        pa.array(start + WINDOW).cast(schema.MICROS),
        names.take(pa.array(users[order])),
        pa.array(random.integers(100, 100_000, rows)).cast(pa.decimal128(38, 0)),
        pa.array(random.integers(1, 9, rows)),
    ]
    form = schema.changes(sink_spec_of(model).rows)
    scaled = pa.Array.from_buffers(form.field("total").type, rows, changes[6].buffers())
    empty = StepOutput.empty(sink_spec_of(model).rows)
    table = pa.table([*changes[:6], scaled, changes[7]], schema=form)
    return StepOutput(table, empty.late, empty.dead, empty.clocks)


def measure(name: str, model: Pipeline, *, changes: int, steps: int, small: int) -> None:
    """Commit the steps and print what they took."""
    large = [output(model, k * (changes // USERS + 1), changes, k) for k in range(steps)]
    live = [output(model, 1_000_000 + k, small, k) for k in range(SMALL_STEPS)]
    op = large[0].changes.schema.get_field_index("op")
    revised = large[0].changes.set_column(op, large[0].changes.schema.field(op), pa.array(["update_after"] * changes))
    sink = open_sinks(graph_of_short(model))
    sink.clear()
    sink.open(Run(model.name, "bench"))
    seconds = []
    cpu = []
    for epoch, step in enumerate([*large, *live, replace(large[0], changes=revised)]):
        begin, began = time.perf_counter(), time.process_time()
        sink.commit(epoch, {"": step})
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - began)
    sink.close()
    sink.clear()
    median = statistics.median(seconds[:steps])
    print(
        f"{name}: {changes:,} changes in {median:.2f} s (median of {steps}), {changes / median:,.0f} changes/s, "
        f"{statistics.median(cpu[:steps]) / changes * 1e6:.2f} us of processor time each"
    )
    slow = max(seconds[steps:-1]) * 1000
    print(f"{name}: {small:,} changes in {statistics.median(seconds[steps:-1]) * 1000:.0f} ms, at most {slow:.0f} ms")
    print(f"{name}: {changes:,} revisions in {seconds[-1]:.2f} s, {changes / seconds[-1]:,.0f} changes/s")


def main() -> None:
    """Measure the sinks in a temporary folder, and PostgreSQL where the url leads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--small", type=int, default=300)
    parser.add_argument("--only", nargs="+", choices=FILES, default=FILES)
    parser.add_argument("--postgres", metavar="URL")
    given = parser.parse_args()
    size = {"changes": given.changes, "steps": given.steps, "small": given.small}
    with tempfile.TemporaryDirectory() as folder:
        sinks: dict[str, Sink] = {
            "sqlite": SqliteSink(str(Path(folder, "bench.db")), "bench_results"),
            "duckdb": DuckDBSink(str(Path(folder, "bench.duckdb")), "bench_results"),
            "delta": DeltaSink(str(Path(folder, "delta")), "bench_results"),
            "parquet": ParquetSink(str(Path(folder, "parquet")), "bench_results"),
        }
        for name in given.only:
            measure(name, pipeline(sinks[name]), **size)
    if given.postgres:
        measure("postgres", pipeline(PostgresSink(given.postgres, "bench_results")), **size)


if __name__ == "__main__":
    main()
