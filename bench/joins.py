"""What joins cost: ``python bench/joins.py compare`` and ``python bench/joins.py growth``.

`compare` joins orders with their payments of the next 15 minutes, in steps of the same records: as a stream of windrow,
and with plain PySpark's stream-stream join on RocksDB, each in a process of its own with Spark started before. The rows
are counted, and what was paid is added up. `growth` joins a long log with windrow alone, and prints the seconds of its
steps and the memory of its processes along the way, while both sides keep as many rows: 25 minutes of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from bench.graphs import chunks, plain_session
from bench.processes import Sampler

from windrow.api.pipeline_file import read_document
from windrow.hosts.spark import spark_session
from windrow.hosts.stream.run import StreamRun, StreamSettings
from windrow.model import Graph
from windrow.sinks.base import SinkGroup
from windrow.sinks.memory import CollectSink

if TYPE_CHECKING:
    from windrow.core.changelog import StepOutput
    from windrow.hosts.reports import StepReport

MINUTE = 60_000_000
START = 1_767_225_600_000_000
GRAPH = """\
name: paid
sources:
  orders:
    source: {{log: {{path: {folder}/orders}}}}
    decode: {{order_id: string, user: string, t: timestamp_micros, amount: long}}
    time: {{field: t, delay: 1m, future: 1h}}
    lateness: 10m
  payments:
    source: {{log: {{path: {folder}/payments}}}}
    decode: {{order_id: string, t: timestamp_micros, paid: long}}
    time: {{field: t, delay: 1m, future: 1h}}
    lateness: 10m
streams:
  paid:
    from: orders
    join: {{with: payments, by: order_id, before: {before}, after: 15m, how: {how}}}
sinks:
  to_paid: {{from: paid, sink: {{sqlite: {{path: unused.db, table: paid}}}}}}
"""
PAID_SHARE = 0.95


def write_logs(folder: Path, records: int, per_minute: int, partitions: int = 2) -> None:
    """Write so many orders and as many payments, most of them within 15 minutes of their order."""
    chance = Random(7)
    payments = []
    for name in ("orders", "payments"):
        (folder / name).mkdir()
    files = [(folder / "orders" / f"partition-{one}.jsonl").open("w") for one in range(partitions)]
    for number in range(records):
        at = START + number * MINUTE // per_minute + chance.randrange(MINUTE // 2)
        row = f'{{"order_id":"o{number}","user":"u{number % 10_000}","t":{at},"amount":{number % 1000}}}\n'
        files[number % partitions].write(row)
        of = number if chance.random() < PAID_SHARE else -number
        payments.append((at + int(min(chance.expovariate(0.25), 14) * MINUTE), of))
    payments.sort()
    rows = (f'{{"order_id":"o{number}","t":{at},"paid":{abs(number) % 1000}}}\n' for at, number in payments)
    files += [(folder / "payments" / f"partition-{one}.jsonl").open("w") for one in range(partitions)]
    for place, row in enumerate(rows):
        files[partitions + place % partitions].write(row)
    for file in files:
        file.close()


class Counted(CollectSink):
    """Counts the rows that are left, those without a payment, and adds up what was paid."""

    def __init__(self) -> None:
        super().__init__()
        self.found = [0, 0, 0]

    def commit(self, epoch: int, *outputs: StepOutput) -> None:  # noqa: ARG002 - the protocol's signature
        """Count a step."""
        (output,) = outputs
        for op, sign in (("insert", 1), ("delete", -1)):
            paid = output.changes.filter(pc.equal(output.changes.column("op"), op)).column("paid")
            self.found[0] += sign * len(paid)
            self.found[1] += sign * paid.null_count
            self.found[2] += sign * (pc.sum(paid).as_py() or 0)


def by_windrow(folder: Path, how: str, max_records: int) -> list[float]:
    """Return the seconds, and the number of rows, of those without a payment, and the sum of payments."""
    graph = read_document(GRAPH.format(folder=folder, how=how, before="0s"), "graph.yaml").pipeline
    if not isinstance(graph, Graph):
        raise TypeError(graph)
    sink = Counted()
    spark_session(log=folder / "spark.log")
    began = time.monotonic()
    settings = StreamSettings(folder / "checkpoint", until_end=True, max_records=2 * max_records)
    StreamRun(graph, SinkGroup((["to_paid"], sink)), settings).run(lambda _: None)
    return [time.monotonic() - began, *sink.found]


def by_spark(folder: Path, how: str, max_records: int) -> list[float]:
    """Return the same of plain PySpark, which reads the logs in files of as many records as a step has."""
    from pyspark.sql import DataFrame  # noqa: PLC0415 - each process loads what it works with
    from pyspark.sql import functions as f  # noqa: PLC0415

    spark = plain_session()

    def read(name: str, schema: str) -> DataFrame:
        files = str(chunks(folder / name, max_records))
        records = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(files)
        return records.withColumn("time", f.timestamp_micros("t")).withWatermark("time", "11 minutes").alias(name)

    orders = read("orders", "order_id string, user string, t long, amount long")
    payments = read("payments", "order_id string, t long, paid long")
    near = "payments.time BETWEEN orders.time AND orders.time + INTERVAL 15 MINUTES"
    on = f.expr(f"orders.order_id = payments.order_id AND {near}")
    columns = ("orders.order_id", "user", "amount", "paid", "orders.t", "payments.t")
    joined = orders.join(payments, on, {"inner": "inner", "left": "leftOuter"}[how]).select(*columns)
    found = [0, 0, 0]

    def count(step: DataFrame, _: int) -> None:
        rows, paid, total = step.agg(f.count("*"), f.count("paid"), f.sum("paid")).collect()[0]
        for place, value in enumerate((rows, rows - paid, total or 0)):
            found[place] += value

    began = time.monotonic()
    writer = joined.writeStream.foreachBatch(count).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return [time.monotonic() - began, *found]


ENGINES = {"windrow": by_windrow, "spark": by_spark}


def compare(records: int, how: str, rounds: int, max_records: int) -> None:
    """Print the seconds of each engine, in turns."""
    for number in range(rounds):
        for engine in ENGINES if number % 2 == 0 else reversed(ENGINES):
            with tempfile.TemporaryDirectory(prefix="windrow-joins-") as made:
                folder = Path(made)
                write_logs(folder, records, per_minute=records // 60)
                words = [sys.executable, __file__, "engine", engine, made, how, str(max_records)]
                ran = subprocess.run(words, check=True, capture_output=True, text=True)
            seconds, rows, alone, paid = json.loads(ran.stdout.splitlines()[-1])
            print(
                f"{engine}: {seconds:.1f} s for 2 x {records:,} records, {2 * records / seconds:,.0f}/s; "
                f"{rows:,} rows, {alone:,} without a payment, {paid:,} paid",
                flush=True,
            )


def growth(records: int, per_minute: int, max_records: int) -> None:
    """Print the seconds of steps and the memory, in tenths of the run."""
    with tempfile.TemporaryDirectory(prefix="windrow-joins-") as made:
        folder = Path(made)
        write_logs(folder, records // 2, per_minute)
        graph = read_document(GRAPH.format(folder=folder, how="left", before="15m"), "graph.yaml").pipeline
        if not isinstance(graph, Graph):
            raise TypeError(graph)
        spark_session(log=folder / "spark.log")
        took: list[tuple[float, float]] = []
        last = [time.monotonic()]

        def on_step(_: StepReport) -> None:
            now = time.monotonic()
            took.append((now - last[0], sampler.samples[-1].total if sampler.samples else 0.0))
            last[0] = now

        settings = StreamSettings(folder / "checkpoint", until_end=True, max_records=max_records)
        with Sampler(lambda: os.getsid(0)) as sampler:
            StreamRun(graph, SinkGroup((["to_paid"], Counted())), settings).run(on_step)
    for tenth in range(10):
        part = took[len(took) * tenth // 10 : len(took) * (tenth + 1) // 10]
        seconds, memory = statistics.median(one for one, _ in part), max(one for _, one in part)
        print(f"{tenth * 10} %: a step {seconds:.2f} s (median of {len(part)}), {memory:,.0f} MiB in all")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    both = commands.add_parser("compare")
    both.add_argument("--records", type=int, default=1_000_000, help="records a side")
    both.add_argument("--how", choices=("inner", "left"), default="inner")
    both.add_argument("--rounds", type=int, default=2)
    both.add_argument("--max-records", type=int, default=250_000, help="records a side and step")
    long = commands.add_parser("growth")
    long.add_argument("--records", type=int, default=10_000_000, help="records of both sides")
    long.add_argument("--per-minute", type=int, default=40_000, help="records a side and minute of event time")
    long.add_argument("--max-records", type=int, default=100_000, help="records of both sides and step")
    engine = commands.add_parser("engine")
    engine.add_argument("engine", choices=ENGINES)
    engine.add_argument("folder", type=Path)
    engine.add_argument("how")
    engine.add_argument("max_records", type=int)
    given = parser.parse_args()
    match given.command:
        case "compare":
            compare(given.records, given.how, given.rounds, given.max_records)
        case "growth":
            growth(given.records, given.per_minute, given.max_records)
        case _:
            print(json.dumps(ENGINES[given.engine](given.folder, given.how, given.max_records)))


if __name__ == "__main__":
    main()
