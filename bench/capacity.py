"""What `windrow capacity` predicts beside what runs take: ``python bench/capacity.py``.

Each point is a pipeline over a topic, in a process of its own: it runs to the end of the topic once to warm up, and
once more from an empty checkpoint. The load is measured on the topic, as ``windrow capacity --log`` does, and what the
laws say of it is compared with the run: processor seconds a million events (between the first and the last step, so
without the start of the query), rows and bytes of state at the end, bytes of the checkpoint a step and in all, rows of
changes, bytes of tables, and memory. Asked is an error of at most 25 %.

Latency is that of live runs into PostgreSQL, which ``bench/latency.py`` measures: from the closing of a window to its
row, of half of the windows and of 99 %.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from bench.closings import percentile
from bench.discard import DiscardSink
from bench.latency import Case, Seen, arguments
from bench.latency import measure as measure_latency
from bench.latency import text_of as text_of_case
from bench.pipelines import from_kafka, into_postgres, into_sqlite, main_job
from bench.processes import MIB, Sampler, cpu

from windrow.authoring.pipeline_file import read_document
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.sink import SinkGroup
from windrow.engine.columns import unpack
from windrow.model import Graph, KafkaSource
from windrow.runtime.run import RunSettings
from windrow.runtime.settings import SparkOptions
from windrow.runtime.spark.session import spark_session
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.runtime.stream.run import StreamRun
from windrow.runtime.stream.take_savepoint import read_states
from windrow.telemetry.reports import StepReport
from windrow.testing.servers.kafka import Kafka
from windrow.tools.capacity.demand import Demand
from windrow.tools.capacity.load import Behind, Keys, Load, read_sample
from windrow.tools.generate import LogSpec, NexmarkSpec, write_kafka
from windrow.tools.generate.events import generate
from windrow.tools.generate.kafka import TopicWriter

if TYPE_CHECKING:
    from windrow.testing.servers.postgres import Postgres

ROOT = Path(__file__).parents[1]
WITHIN = 0.25
PARTITIONS = 4
_HOUR = 3_600_000_000
_SECOND = 1_000_000
_PAD = 400


@dataclass(frozen=True)
class Point:
    """A configuration: its topic, the pipeline without source and sink, and how it is run."""

    topic: str
    window: str = "{tumbling: 5m}"
    lateness: str = "1h"
    delay: str = "10m"
    step: int = 100_000
    cores: int = 2
    sink: str = ""
    key_groups: int = 8
    graph: str = ""


JOIN = """\
name: join
sources:
  auctions:
    source: {auctions}
    decode: {{id: long, seller: long, category: long, dateTime: timestamp}}
    time: {{field: dateTime, delay: 10s, future: 1h}}
    lateness: 10s
  bids:
    source: {bids}
    decode: {{auction: long, bidder: long, price: long, dateTime: timestamp}}
    time: {{field: dateTime, delay: 10s, future: 1h}}
    lateness: 10s
streams:
"""
WRITTEN = "sinks:\n  to_rows: {{from: made, sink: {{sqlite: {{path: unused.db, table: made}}}}}}\n"
GRAPHS = {
    "join": "  made: {{from: auctions, join: {{with: bids, by: {{id: auction}}, after: 1m}}}}\n",
    "deduplicate": "  made: {{from: bids, deduplicate: {{by: [auction, bidder], within: 1m}}}}\n",
    "lookup": "  sold: {{from: auctions, table: {{key: id}}}}\n"
    "  made: {{from: bids, lookup: {{table: sold, by: {{auction: id}}, how: left}}}}\n",
}
SPARSE, DENSE, KEYS, WIDE, AUCTION = "sparse", "dense", "keys", "wide", "auction"
SHORT = ("{tumbling: 10s}", "13s", "2s")
POINTS = {
    "tumbling": Point(SPARSE),
    "one core": Point(SPARSE, cores=1),
    "small steps": Point(SPARSE, step=25_000),
    "64 key groups": Point(SPARSE, key_groups=64),
    "no lateness": Point(SPARSE, lateness="0s"),
    "lateness of a day": Point(SPARSE, lateness="1d"),
    "hopping, 12 slices": Point(SPARSE, "{hopping: {size: 1h, slide: 5m}}"),
    "sessions": Point(SPARSE, "{session: 30m}"),
    "records of 480 bytes": Point(WIDE, step=50_000),
    "10,000 busy keys": Point(DENSE, *SHORT),
    "1,000,000 busy keys": Point(KEYS, *SHORT),
    "busy hopping": Point(DENSE, "{hopping: {size: 10s, slide: 1s}}", "13s", "2s"),
    "busy sessions": Point(DENSE, "{session: 3s}", "13s", "2s"),
    "SQLite": Point(SPARSE, sink="sqlite"),
    "PostgreSQL": Point(SPARSE, sink="postgres"),
    "join": Point(AUCTION, step=98_000, graph="join"),
    "lookup in a table": Point(AUCTION, step=98_000, graph="lookup"),
    "join, small steps": Point(AUCTION, step=24_500, graph="join"),
    "lookup, small steps": Point(AUCTION, step=24_500, graph="lookup"),
}
HELD_OUT = {
    "10 minutes, steps of 60,000": Point(SPARSE, "{tumbling: 10m}", step=60_000),
    "16 key groups, one core": Point(SPARSE, cores=1, key_groups=16),
    "hopping, 4 slices": Point(SPARSE, "{hopping: {size: 20m, slide: 5m}}", lateness="30m"),
    "sessions of 10 minutes": Point(SPARSE, "{session: 10m}", delay="5m"),
    "join, steps of 49,000": Point(AUCTION, step=49_000, graph="join"),
    "lookup, steps of 49,000": Point(AUCTION, step=49_000, graph="lookup"),
    "deduplicate": Point(AUCTION, step=49_000, graph="deduplicate"),
}
"""Points to which no constant of the laws was fitted."""
PACED = {"1,000 events/s": Case(1_000), "20,000 events/s": Case(20_000)}
"""Live runs of which the latency is compared, as `bench/latency.py` measures it; no constant was fitted to them."""


@dataclass(frozen=True)
class Ran:
    """What a run took: seconds of the clock and of the processors, and events, between the first and the last step.

    Rows and bytes of blobs of the state at its end; bytes that its checkpoint wrote a step for the state, and that it
    has on disk; `inserts` and `updates` of all steps; bytes of the database; MiB of memory at most.
    """

    seconds: float
    cpu: float
    events: int
    steps: int
    total: int
    rows: int
    blobs: int
    step_bytes: float
    checkpoint: int
    changes: int
    tables: int
    memory: float
    kinds: dict[str, int] = field(default_factory=dict)


def text_of(point: Point, servers: str, folder: Path, url: str) -> str:
    """Return the pipeline of a point, which keeps its tables in a file in the folder, or in tables by its name."""
    if point.graph:
        sources = {name: from_kafka(servers, f"{point.topic}-{name}") for name in ("auctions", "bids")}
        return (JOIN + GRAPHS[point.graph] + WRITTEN).format(**sources)
    sink = (
        into_postgres(url, f"spend_{folder.name}")
        if point.sink == "postgres"
        else into_sqlite(folder / "spend.db", "spend")
    )
    return main_job(
        from_kafka(servers, point.topic),
        sink,
        time=f"delay: {point.delay}, future: 1h",
        window=point.window,
        emit=f"lateness: {point.lateness}, late: each, mode: retract, at_end: hold",
        key_groups=point.key_groups,
    )


def run(point: Point, servers: str, folder: Path, url: str) -> Ran:
    """Run a point in this process, which leads a session of its own, and measure the second run."""
    options = SparkOptions(f"local[{point.cores}]")
    spark = spark_session(options, log=folder / "spark.log")
    leader, marks, reports = os.getpid(), list[tuple[float, float, int]](), list[StepReport]()

    def on_step(report: StepReport) -> None:
        reports.append(report)
        marks.append((time.monotonic(), cpu(leader), report.events))

    for number in range(2):
        own = folder / str(number)
        own.mkdir()
        marks.clear()
        reports.clear()
        pipeline = read_document(text_of(point, servers, own, url), "point.yaml").pipeline
        names = [sink.name for sink in pipeline.sinks]
        sinks = open_sinks(pipeline) if point.sink else SinkGroup((names, DiscardSink()))
        settings = RunSettings(own / "checkpoint", until_end=True, max_records=point.step, spark=options)
        with Sampler(lambda: leader, 0.1) as sampler:
            StreamRun(pipeline, sinks, settings).run(on_step)
    (began, used, _), (ended, last, _) = marks[0], marks[-1]
    checkpoint = Checkpoint.read(own / "checkpoint")
    if checkpoint is None or checkpoint.batch is None:
        msg = f"no step was committed in {own}"
        raise RuntimeError(msg)
    kinds, blobs = dict[str, int](), 0
    for level in range(len(pipeline.levels)):
        for _, state in read_states(spark, checkpoint.spark, checkpoint.batch, pipeline.key_groups, level):
            for (kind, _), blob in state.items():
                kinds[kind] = kinds.get(kind, 0) + unpack(blob).num_rows
                blobs += len(blob)
    files = {path: path.stat().st_size for path in (own / "checkpoint").rglob("*") if path.is_file()}
    logs = [size for path, size in files.items() if path.suffix == ".changelog"]
    spark.stop()
    return Ran(
        seconds=ended - began,
        cpu=last - used,
        events=sum(events for _, _, events in marks[1:]),
        steps=len(marks),
        total=sum(events for _, _, events in marks),
        rows=sum(kinds.values()),
        blobs=blobs,
        step_bytes=sum(logs) / len(marks),
        checkpoint=sum(files.values()),
        changes=sum(one.inserts + one.revisions for one in reports),
        tables=_table_bytes(point, own, url),
        memory=max(sample.total for sample in sampler.samples),
        kinds=kinds,
    )


def _table_bytes(point: Point, folder: Path, url: str) -> int:
    """Return the bytes of the table and its changelog."""
    if point.sink == "sqlite":
        import sqlite3  # noqa: PLC0415 - of one point

        with sqlite3.connect(folder / "spend.db") as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return (folder / "spend.db").stat().st_size
    if point.sink == "postgres":
        import psycopg  # noqa: PLC0415 - of one point

        with psycopg.connect(url) as connection:
            table = f"spend_{folder.name}"
            sizes = "SELECT pg_total_relation_size(%s) + pg_total_relation_size(%s)"
            found = connection.execute(sizes, (table, f"{table}_changes")).fetchone()
            return 0 if found is None else int(found[0])
    return 0


def predicted(point: Point, graph: Graph, steps: int) -> dict[str, float]:
    """Return what the laws say of a run of so many steps."""
    load = read_sample(graph, 10_000_000)
    if point.graph == "join":  # each bid is on an auction, and most come in its first minute
        load = replace(load, partners={"made": load.rates["bids"] / load.rates["auctions"]})
    logs = {source.name: PARTITIONS for source in graph.sources}
    demand = Demand.of(graph, load, point.step / load.rate, logs, point.cores)
    parts = {name: one for name, one in demand.parts.items() if name != "sink" or point.sink}
    span = (load.sample.records if load.sample else 0) / load.rate
    written = sum(demand.sink_bytes.values())
    one_jvm = demand.driver + demand.executors - demand.machine.jvm
    return {
        "CPU s a million": 1e6 * (sum(parts.values()) / load.rate + demand.of_step / point.step),
        "rows of state": demand.rows,
        "MB of state": demand.state / 1e6,
        "KB a step": demand.step_bytes / 1e3,
        "MB of checkpoint": demand.checkpoint(steps) / 1e6,
        "changes": sum(one.inserts + one.updates for _, one in demand.sinks) * span,
        "MB of tables": written * span / 1e6 if point.sink else 0.0,
        "MiB of memory": one_jvm / MIB,
    }


def measured(ran: Ran) -> dict[str, float]:
    """Return the same of a run."""
    return {
        "CPU s a million": 1e6 * ran.cpu / ran.events,
        "rows of state": ran.rows,
        "MB of state": ran.blobs / 1e6,
        "KB a step": ran.step_bytes / 1e3,
        "MB of checkpoint": ran.checkpoint / 1e6,
        "changes": ran.changes,
        "MB of tables": ran.tables / 1e6,
        "MiB of memory": ran.memory,
    }


def measured_live(name: str, kafka: Kafka, postgres: Postgres) -> tuple[dict[str, float], dict[str, float], Seen]:
    """Return what the laws say of the latency of a live run from the closing of a window, and what was measured."""
    case, given = PACED[name], arguments().parse_args([])
    seen = measure_latency(case, kafka, postgres, list(PACED).index(name), given)
    graph = read_document(text_of_case(case, kafka.servers, "spend", postgres.url, given), "case.yaml").pipeline
    load = Load({"source": case.rate}, {"source": 80.0}, {"": Keys.even(given.users)}, Behind.stated({}))
    names = ("s of latency, half", "s of latency, most")
    laws = Demand.of(graph, load, 1.0, {"source": PARTITIONS}, os.cpu_count() or 1).latency
    found = (percentile(seen.handed, part) for part in (50, 99))
    return dict(zip(names, laws, strict=True)), dict(zip(names, found, strict=True)), seen


@contextmanager
def topics(events: int, names: set[str]) -> Iterator[Kafka]:
    """Start a broker with the topics that are asked for."""
    long, short = 10 * 24 * _HOUR, 500 * _SECOND
    sparse = LogSpec(events=events, duration=long, partitions=PARTITIONS, malformed_share=0)
    specs: dict[str, LogSpec | NexmarkSpec] = {
        SPARSE: sparse,
        DENSE: LogSpec(events=events, duration=short, partitions=PARTITIONS, disorder=_SECOND, malformed_share=0),
        KEYS: LogSpec(
            events=events, duration=short, users=1_000_000, partitions=PARTITIONS, disorder=_SECOND, malformed_share=0
        ),
        AUCTION: NexmarkSpec(events=events, duration=short, partitions=PARTITIONS, disorder=_SECOND),
    }
    with tempfile.TemporaryDirectory(prefix="windrow-kafka-") as folder:
        kafka = Kafka(Path(folder))
        kafka.start()
        try:
            for name in sorted(names):
                spec = specs.get(name, sparse)
                for log in spec.logs:
                    # event times are in the past: the topic must not let them go
                    kafka.create_topic(f"{name}-{log}" if log else name, PARTITIONS, {"retention.ms": "-1"})
                if name == WIDE:
                    write_wide(sparse, kafka.servers)
                else:
                    write_kafka(spec, kafka.servers, name)
            yield kafka
        finally:
            kafka.stop()


def write_wide(spec: LogSpec, servers: str) -> None:
    """Write records with a further field of `_PAD` bytes, half as many."""
    producer = TopicWriter(KafkaSource(servers, WIDE))
    end = pa.scalar(b',"note":"%s"}' % (b"x" * _PAD), pa.binary())
    for batch in generate(spec):
        part = batch.slice(0, batch.num_rows // 2)
        part = batch.filter(pc.equal(pc.bit_wise_and(batch.column("offset"), 1), 0)) if part.num_rows else part
        values = pc.binary_slice(part.column("value"), 0, -1)
        joined = pc.binary_join_element_wise(values, end, pa.scalar(b"", pa.binary()))
        producer.send(WIDE, part.set_column(part.schema.get_field_index("value"), "value", joined))
    producer.flush()


def measure(name: str, servers: str, url: str) -> Ran:
    """Measure a point in a process of its own; raise CalledProcessError if it failed."""
    with tempfile.TemporaryDirectory(prefix="windrow-capacity-") as folder:
        command = [sys.executable, __file__, "--point", name, "--servers", servers, "--folder", folder, "--url", url]
        setpriv = shutil.which("setpriv")
        command = [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, start_new_session=True)
    return Ran(**json.loads(ran.stdout.splitlines()[-1]))


def compare(given: argparse.Namespace) -> int:
    """Measure the points that are asked for, and print the errors; return 1 if one is more than a quarter off."""
    chosen = {name: one for name, one in (POINTS | HELD_OUT).items() if name in given.points}
    paced = [name for name in PACED if name in given.points]
    postgres = None
    if paced or any(point.sink == "postgres" for point in chosen.values()):
        from windrow.testing.servers.postgres import Postgres  # noqa: PLC0415 - its wheel is large

        postgres = Postgres()
        postgres.start()
    url, results, off = "" if postgres is None else postgres.url, [], Counter[str]()

    def compared(name: str, laws: dict[str, float], found: dict[str, float], **ran: Any) -> None:  # noqa: ANN401 - JSON
        for figure, law in laws.items():
            if not found[figure]:
                continue
            error = law / found[figure] - 1
            off["of other points" if name in POINTS else "of held-out points"] += abs(error) > WITHIN
            mark = "" if abs(error) <= WITHIN else "  OFF"
            print(f"  {figure:18} {law:12,.2f} by law {found[figure]:12,.2f} measured {error:+6.0%}{mark}", flush=True)
        results.append({"point": name, "laws": laws, "measured": found, **ran})
        given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    try:
        with topics(given.events, {point.topic for point in chosen.values()}) as kafka:
            for name, point in chosen.items():
                try:
                    ran = measure(name, kafka.servers, url)
                except subprocess.CalledProcessError as exc:
                    off["failed points"] += 1
                    print(f"{name}: failed (exit code {exc.returncode})", flush=True)
                    continue
                pipeline = read_document(text_of(point, kafka.servers, Path("0"), url), "point.yaml").pipeline
                print(f"{name} ({ran.steps} steps, {ran.events / ran.seconds:,.0f} events/s)", flush=True)
                compared(name, predicted(point, pipeline, ran.steps), measured(ran), ran=asdict(ran))
            for name in paced:
                if postgres is None:
                    raise TypeError(postgres)
                laws, found, seen = measured_live(name, kafka, postgres)
                print(f"{name} ({len(seen.handed)} windows)", flush=True)
                compared(name, laws, found, latencies=seen.handed)
    finally:
        if postgres is not None:
            postgres.remove()
    print(f"more than {WITHIN:.0%} off: " + ", ".join(f"{number} {what}" for what, number in off.items()))
    return int(off.total() > 0)


def main() -> int:
    """Measure, or be one point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--points", nargs="+", choices=POINTS | HELD_OUT | PACED, default=[*POINTS, *HELD_OUT, *PACED], metavar="POINT"
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / f"capacity-{today}.json")
    for name in ("point", "servers", "folder", "url"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.point is None:
        return compare(given)
    print(json.dumps(asdict(run((POINTS | HELD_OUT)[given.point], given.servers, Path(given.folder), given.url))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
