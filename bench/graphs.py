"""What graphs cost: ``python bench/graphs.py live`` and ``python bench/graphs.py deduplicate``.

`live` takes live steps of a chain of windows with one, two and three levels, and of three windows in one level; the
figure is Spark's own, from the trigger to the commit of the step. `deduplicate` reads a log with copies, and counts and
adds up what is left: as a stream of windrow, and with PySpark's `dropDuplicatesWithinWatermark` on RocksDB, each in a
process of its own with Spark started before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from bench.live import measure

from windrow.authoring.pipeline_file import read_document
from windrow.connectors.memory import CollectSink
from windrow.connectors.sink import SinkGroup
from windrow.model import Graph
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.session import spark_session
from windrow.runtime.stream.run import StreamRun
from windrow.tools.generate import LogSpec, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from windrow.engine.changelog import StepOutput

SOURCE = """\
name: graph
sources:
  spend:
    source: {source}
    decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
    time: {{field: event_time, delay: {delay}, future: 1h}}
    lateness: {lateness}
streams:
"""
WINDOW = """\
  {name}:
    from: {of}
    key: user_id
    window: {{tumbling: {size}}}
    aggregate: {{total: {total}, rows: count()}}
"""
SINK = "  to_{name}: {{from: {name}, sink: {{sqlite: {{path: {path}, table: {name}}}}}}}\n"
CHAIN = (("seconds", "spend", "10s", "sum(amount)"), ("minutes", "seconds", "1m", "sum(total)"))
SHAPES = {
    "one level": CHAIN[:1],
    "two levels": CHAIN,
    "three levels": (*CHAIN, ("fives", "minutes", "5m", "sum(total)")),
    "three in one level": tuple((f"seconds_{n}", "spend", f"{n}0s", "sum(amount)") for n in (1, 2, 3)),
}


def shape(name: str, servers: str, path: Path) -> str:
    """Return a graph over a topic, into a file."""
    source = f'{{kafka: {{servers: "{servers}", topic: spend}}}}'
    text = SOURCE.format(source=source, delay="10s", lateness="1m")
    text += "".join(WINDOW.format(name=one, of=of, size=size, total=total) for one, of, size, total in SHAPES[name])
    return text + "sinks:\n" + "".join(SINK.format(name=one, path=path) for one, *_ in SHAPES[name])


def live(rate: int, steps: int, rounds: int) -> None:
    """Print the median of the steps of each shape, round by round."""
    for number in range(rounds):
        for name in SHAPES if number % 2 == 0 else reversed(SHAPES):
            with tempfile.TemporaryDirectory(prefix="windrow-graphs-") as folder:
                millis = measure(Path(folder), rate, steps, partial(shape, name))
            print(f"{name}: median {statistics.median(millis):.0f} ms ({len(millis)} steps)", flush=True)


FIELDS = ("user_id", "event_time", "amount")


class Counted(CollectSink):
    """Counts and adds up what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.found = [0, 0]

    def commit(self, epoch: int, *outputs: StepOutput) -> None:  # noqa: ARG002 - the protocol's signature
        """Count a step."""
        (output,) = outputs
        self.found[0] += output.changes.num_rows
        self.found[1] += int((pc.sum(output.changes.column("amount")).as_py() or 0) * 100)


def by_windrow(log: Path, max_records: int) -> tuple[float, list[int]]:
    """Return the seconds, and the number of records that are left and their sum in cents."""
    # so that nothing is too late for either
    text = SOURCE.format(source=f"{{log: {{path: {log}}}}}", delay="1m", lateness="2h")
    text += f"  unique: {{from: spend, deduplicate: {{by: [{', '.join(FIELDS)}], within: 1h}}}}\n"
    graph = read_document(text + "sinks:\n" + SINK.format(name="unique", path="unused.db"), "graph.yaml").pipeline
    if not isinstance(graph, Graph):
        raise TypeError(graph)
    sink, folder = Counted(), log.parent / "checkpoint"
    spark_session(log=log.parent / "spark.log")
    began = time.monotonic()
    settings = RunSettings(folder, until_end=True, max_records=max_records)
    StreamRun(graph, SinkGroup((["to_unique"], sink)), settings).run(lambda _: None)
    return time.monotonic() - began, sink.found


def by_spark(log: Path, max_records: int) -> tuple[float, list[int]]:
    """Return the same of plain PySpark, which reads the log in files of about as many records as a step has."""
    from pyspark.sql import DataFrame  # noqa: PLC0415 - each process loads what it works with
    from pyspark.sql import functions as f  # noqa: PLC0415

    spark = plain_session()
    folder = chunks(log, max_records, log.parent)
    records = spark.readStream.schema("user_id string, event_time long, amount decimal(12,2)")
    events = records.option("maxFilesPerTrigger", 1).json(str(folder))
    events = events.withColumn("time", f.timestamp_millis("event_time"))
    left = events.withWatermark("time", "1 hour").dropDuplicatesWithinWatermark(list(FIELDS))
    found = [0, 0]

    def count(step: DataFrame, _: int) -> None:
        rows, total = step.agg(f.count("*"), f.sum("amount")).collect()[0]
        found[0] += rows
        found[1] += int((total or 0) * 100)

    began = time.monotonic()
    writer = left.writeStream.foreachBatch(count).option("checkpointLocation", str(log.parent / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return time.monotonic() - began, found


def plain_session() -> SparkSession:
    """Return a session of plain PySpark with its state in RocksDB."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    state = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    builder = SparkSession.builder.master("local[*]").config("spark.sql.shuffle.partitions", "2")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": state,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def chunks(log: Path, max_records: int, place: Path) -> Path:
    """Cut the log into files of so many records, from all partitions abreast, in a folder of that place."""
    folder = place / f"{log.name}-chunks"
    folder.mkdir()
    parts = sorted(log.iterdir())
    files = [part.open("rb") for part in parts]
    number = 0
    while lines := [list(islice(file, max_records // len(parts))) for file in files]:
        if not any(lines):
            break
        (folder / f"{number:04}.json").write_bytes(b"".join(line for part in lines for line in part))
        number += 1
    for file in files:
        file.close()
    return folder


ENGINES = {"windrow": by_windrow, "spark": by_spark}


def deduplicate(records: int, rounds: int, max_records: int) -> None:
    """Print the seconds of each engine, in turns."""
    for number in range(rounds):
        for engine in ENGINES if number % 2 == 0 else reversed(ENGINES):
            with tempfile.TemporaryDirectory(prefix="windrow-graphs-") as folder:
                log = Path(folder) / "spend"
                spec = LogSpec(events=records, malformed_share=0.0, duplicate_share=0.01)
                made = write_log(spec, log)
                words = [sys.executable, __file__, "engine", engine, str(log), str(max_records)]
                ran = subprocess.run(words, check=True, capture_output=True, text=True)
            seconds, (left, cents) = json.loads(ran.stdout.splitlines()[-1])
            print(
                f"{engine}: {seconds:.1f} s for {made.records:,} records, {made.records / seconds:,.0f}/s; "
                f"{left:,} left, {cents / 100:,.2f} in all",
                flush=True,
            )


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    steps = commands.add_parser("live")
    steps.add_argument("--rate", type=int, default=300, help="events a second")
    steps.add_argument("--steps", type=int, default=40)
    steps.add_argument("--rounds", type=int, default=2)
    copies = commands.add_parser("deduplicate")
    copies.add_argument("--records", type=int, default=2_000_000)
    copies.add_argument("--rounds", type=int, default=2)
    copies.add_argument("--max-records", type=int, default=500_000)
    engine = commands.add_parser("engine")
    engine.add_argument("engine", choices=ENGINES)
    engine.add_argument("log", type=Path)
    engine.add_argument("max_records", type=int)
    given = parser.parse_args()
    match given.command:
        case "live":
            live(given.rate, given.steps, given.rounds)
        case "deduplicate":
            deduplicate(given.records, given.rounds, given.max_records)
        case _:
            print(json.dumps(ENGINES[given.engine](given.log.absolute(), given.max_records)))


if __name__ == "__main__":
    main()
