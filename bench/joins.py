"""What joins cost: ``python bench/joins.py compare`` and ``python bench/joins.py growth``.

`compare` runs cases on each engine in turn, from the same topics (or, without Flink, the same embedded logs):

- `interval`, `interval-left`: orders with their payments of the next 15 minutes, beside the stream-stream join of
  PySpark with its state in RocksDB, and the interval join of Flink SQL;
- `lookup`: sales with the rate that held at their event time, beside the temporal join of Flink SQL;
- `static`: sales with the rate in the table, beside PySpark's join of a stream with a static table, which has no state;
- `tables`: a join of two tables that change, beside the regular join of Flink SQL over two changelogs.

Flink's state is on the heap. Each engine runs in a process of its own; it is timed from when its first task runs (of
Flink, from when the job was submitted) until all rows are counted. All must find as many rows, and the same sum over
them; else it says so, and returns 1. `--out` writes what was found, for `bench/compare.py --report`.

`growth` joins a long log with windrow alone, and prints the seconds of its steps and the memory of its processes along
the way, while both sides keep as many rows: 25 minutes of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from bench.compare import machine, today, versions
from bench.nexmark import broker
from bench.peers import report
from bench.peers.environment import NotInstalledError, fetch_jars, python_of
from bench.peers.join_job import LOGS, JoinJob
from bench.peers.measure import ROOT
from bench.peers.results import JoinRun, Results
from bench.peers.watch import FailedError, Figures, watch
from bench.peers.windrow.joins import INTERVAL, Counted, graph_of
from bench.processes import Sampler
from confluent_kafka import Producer

from windrow.connectors.sink import SinkGroup
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.session import spark_session
from windrow.runtime.stream.run import StreamRun

if TYPE_CHECKING:
    from windrow.telemetry.reports import StepReport
    from windrow.testing.servers.kafka import Kafka

MINUTE = 60_000
START = 1_767_225_600_000
PARTITIONS = 2
DISORDER = MINUTE // 2
"""How far records of a partition are out of order at most: less than any engine waits, so that none is late."""
PAID_SHARE = 0.95
CHANGES_A_ROW = 4
"""Of a table in `tables`."""

ENGINES = {"windrow": "windrow", "spark": "pyspark", "flink": "flink"}
"""Where in bench/peers their scripts are."""
HAVE = {
    "interval": ("windrow", "spark", "flink"),
    "interval-left": ("windrow", "spark", "flink"),
    "lookup": ("windrow", "flink"),
    "static": ("windrow", "spark"),
    "tables": ("windrow", "flink"),
}
"""The engines that have a case."""

Row = tuple[int, str]
"""What says its partition, and the record."""


def write_log(folder: Path, rows: Iterable[Row], end: str) -> None:
    """Write rows into partitions, and at the end of each a record so late that no row is still waited for."""
    folder.mkdir()
    with ExitStack() as held:
        files = [held.enter_context((folder / f"partition-{one}.jsonl").open("w")) for one in range(PARTITIONS)]
        for number, row in rows:
            files[number % PARTITIONS].write(f"{row}\n")
        for number, file in enumerate(files):
            file.write(end.replace("#", str(number)) + "\n")


def write_paid(folder: Path, records: int, per_minute: int) -> None:
    """Write so many orders and as many payments, most of them within 15 minutes of their order."""
    chance = Random(7)
    payments: list[tuple[int, int]] = []

    def orders() -> Iterator[Row]:
        for number in range(records):
            at = START + number * MINUTE // per_minute + chance.randrange(DISORDER)
            of = number if chance.random() < PAID_SHARE else -number
            payments.append((at + int(min(chance.expovariate(0.25), 14) * MINUTE), of))
            user, amount = number % 10_000, number % 1000
            yield number, f'{{"order_id":"o{number}","user":"u{user}","t":{at},"amount":{amount}}}'

    def paid() -> Iterator[Row]:
        for place, (at, number) in enumerate(sorted(payments)):
            yield place, f'{{"order_id":"o{number}","t":{at},"paid":{abs(number) % 1000}}}'

    # the last ones are pairs, as not every engine writes an order without a payment at the end of its log
    end = f'"t":{START + records * MINUTE // per_minute + 120 * MINUTE}'
    write_log(folder / "orders", orders(), f'{{"order_id":"end#","user":"end",{end},"amount":1}}')
    write_log(folder / "payments", paid(), f'{{"order_id":"end#",{end},"paid":1}}')


def write_sales(folder: Path, records: int, per_minute: int, keys: int, versions: int) -> None:
    """Write so many sales, and so many versions of rates; the first of each rate is there before all sales."""
    chance = Random(7)
    span = records * MINUTE // per_minute

    def rates() -> Iterator[Row]:
        for number in range(versions):
            at = (
                START - 60 * MINUTE if number < keys else START + number * span // versions + chance.randrange(DISORDER)
            )
            yield number % keys, f'{{"currency":"c{number % keys}","t":{at},"rate":{1 + number}}}'

    def sales() -> Iterator[Row]:
        for number in range(-PARTITIONS, records):
            # as of the order, the first record of a partition comes before all rates
            currency = "none" if number < 0 else f"c{chance.randrange(keys)}"
            at = START + max(number, 0) * MINUTE // per_minute + chance.randrange(DISORDER)
            yield number, f'{{"currency":"{currency}","sale_id":"s{number}","t":{at},"amount":{abs(number) % 1000}}}'

    end = f'"t":{START + span + 120 * MINUTE}'
    write_log(folder / "rates", rates(), f'{{"currency":"end#",{end},"rate":1}}')
    write_log(folder / "sales", sales(), f'{{"currency":"none","sale_id":"end#",{end},"amount":1}}')


def write_changes(folder: Path, records: int, per_minute: int) -> None:
    """Write so many changes of prices and as many of stocks, of a quarter as many rows."""
    chance = Random(7)
    keys = max(records // CHANGES_A_ROW, 1)

    def rows(column: str) -> Iterator[Row]:
        for number in range(records):
            key, at = chance.randrange(keys), START + number * MINUTE // per_minute + chance.randrange(DISORDER)
            yield key, f'{{"sku":"k{key}","t":{at},"{column}":{chance.randrange(1000)}}}'

    end = f'"t":{START + records * MINUTE // per_minute + 120 * MINUTE}'
    for log, column in (("prices", "price"), ("stocks", "stock")):
        write_log(folder / log, rows(column), f'{{"sku":"end-{column}#",{end},"{column}":1}}')


def write_logs(case: str, folder: Path, given: argparse.Namespace) -> int:
    """Write the logs of a case, an hour of event time, and return how many records they have."""
    records: int = given.records
    per_minute = max(records // 60, 1)
    match case:
        case "interval" | "interval-left":
            write_paid(folder, records, per_minute)
        case "tables":
            write_changes(folder, records, per_minute)
        case _:
            # the table of `static` does not change
            versions: int = given.keys if case == "static" else max(given.versions, given.keys)
            write_sales(folder, records, per_minute, given.keys, versions)
            return records + versions
    return 2 * records


def fill(kafka: Kafka, log: Path) -> None:
    """Fill a topic with a log, partition by partition; the key of a record is its first field."""
    # event times are in the past: the topic must not let them go
    kafka.create_topic(log.name, PARTITIONS, {"retention.ms": "-1"})
    producer = Producer(
        {"bootstrap.servers": kafka.servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 3}
    )
    parts = [part.open("rb") for part in sorted(log.iterdir())]
    for number, file in enumerate(parts):
        with file:
            for line in file:
                record = line.rstrip()
                while True:
                    try:
                        producer.produce(log.name, record, record.split(b'"', 4)[3], number)
                        break
                    except BufferError:
                        producer.poll(0.1)
    if producer.flush(60):
        message = f"the broker did not take all records of {log.name}"
        raise TimeoutError(message)


def compare(given: argparse.Namespace) -> int:
    """Print what each engine took and found, in turns; return 1 if one failed or found other rows."""
    results = Results(today(), machine(), versions(), {name: str(value) for name, value in vars(given).items()})
    for case in given.case:
        for run in measure(case, given):
            results.joins.append(run)
            if given.out is not None:
                results.save(given.out)
    unequal = list(report.unequal_joins(results))
    print("", *report.joins(results), *unequal, sep="\n")
    return 1 if unequal or any(run.error for run in results.joins) else 0


def measure(case: str, given: argparse.Namespace) -> Iterator[JoinRun]:
    """Run a case on each engine that has it, in turns; print and yield each run."""
    engines = [engine for engine in given.engines if engine in HAVE[case]]
    for engine in given.engines:
        if engine not in engines:
            print(f"{case}: not compared with {engine}")
    with logs_of(case, given) as (job, records):
        for number in range(1, given.rounds + 1):
            for engine in engines if number % 2 else reversed(engines):
                told, folder = f"round {number}, {case}, {engine}:", job.folder / f"{engine}-{number}"
                folder.mkdir()
                ran = JoinRun(number, case, engine, records)
                try:
                    figures, (rows, checksum) = run(engine, replace(job, folder=folder), given.limit)
                except (FailedError, NotInstalledError) as exc:
                    print(f"{told} failed: {exc}", flush=True)
                    yield replace(ran, error=str(exc))
                    continue
                ran = replace(ran, **vars(figures), rows=rows, checksum=checksum)
                print(
                    f"{told} {ran.seconds:.1f} s, {ran.rate:,.0f} records/s, {rows:,} rows, checksum {checksum:,}, "
                    f"{ran.cpu:.1f} CPU s, {ran.memory:,.0f} MiB",
                    flush=True,
                )
                yield ran


@contextmanager
def logs_of(case: str, given: argparse.Namespace) -> Iterator[tuple[JoinJob, int]]:
    """Write the logs of a case, into topics if so asked; give a job over them, and how many records they have."""
    with tempfile.TemporaryDirectory(prefix="windrow-joins-") as made, ExitStack() as held:
        folder, servers = Path(made), ""
        print(f"{case}: writing the logs", flush=True)
        records = write_logs(case, folder, given)
        if given.source == "kafka":
            kafka = held.enter_context(broker())
            servers = kafka.servers
            for name in LOGS[case]:
                fill(kafka, folder / name)
        yield JoinJob(case, servers, folder, folder, given.step), records


def run(engine: str, job: JoinJob, limit: float) -> tuple[Figures, tuple[int, int]]:
    """Run a case on an engine; return its figures, and the rows and checksum. Raise FailedError, NotInstalledError."""
    place = ROOT / "bench" / "peers" / ENGINES[engine]
    fetch_jars(place)
    words = [str(python_of(place)), str(place / "joins.py"), *job.command]
    path = os.pathsep.join([str(ROOT), *([os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else [])])
    figures = watch(words, {**os.environ, "PYTHONPATH": path, "TZ": "UTC"}, job.folder / "log", limit)
    return figures, job.found()


def growth(records: int, per_minute: int, max_records: int) -> None:
    """Print the seconds of steps and the memory, in tenths of the run."""
    with tempfile.TemporaryDirectory(prefix="windrow-joins-") as made:
        folder = Path(made)
        write_paid(folder, records // 2, per_minute)
        places = {name: f"{{log: {{path: {folder / name}}}}}" for name in LOGS["interval-left"]}
        graph = graph_of(INTERVAL.format(before="15m", how="left"), places)
        spark_session(log=folder / "spark.log")
        took: list[tuple[float, float]] = []
        last = [time.monotonic()]

        def on_step(_: StepReport) -> None:
            now = time.monotonic()
            took.append((now - last[0], sampler.samples[-1].total if sampler.samples else 0.0))
            last[0] = now

        settings = RunSettings(folder / "checkpoint", until_end=True, max_records=max_records)
        with Sampler(lambda: os.getsid(0)) as sampler:
            StreamRun(graph, SinkGroup((["to_joined"], Counted("amount", "paid"))), settings).run(on_step)
    for tenth in range(10):
        part = took[len(took) * tenth // 10 : len(took) * (tenth + 1) // 10]
        seconds, memory = statistics.median(one for one, _ in part), max(one for _, one in part)
        print(f"{tenth * 10} %: a step {seconds:.2f} s (median of {len(part)}), {memory:,.0f} MiB in all")


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    several = commands.add_parser("compare")
    several.add_argument("--case", nargs="+", choices=LOGS, default=["interval"])
    several.add_argument("--source", choices=("kafka", "log"), default="kafka")
    several.add_argument("--engines", type=_engines, default=list(ENGINES), help="windrow,spark,flink")
    several.add_argument("--records", type=int, default=2_000_000, help="a side; of sales, in lookups")
    several.add_argument("--keys", type=int, default=200, help="of the rates")
    several.add_argument("--versions", type=int, default=20_000, help="of the rates, in all (`static` has one of each)")
    several.add_argument("--rounds", type=int, default=2)
    several.add_argument("--step", type=int, default=500_000, help="records of all logs a micro-batch, at the most")
    several.add_argument("--limit", type=float, default=1800, help="seconds that a run may take")
    several.add_argument("--out", type=Path, help="a file in JSON for what was found (bench/compare.py --report)")
    long = commands.add_parser("growth")
    long.add_argument("--records", type=int, default=10_000_000, help="records of both sides")
    long.add_argument("--per-minute", type=int, default=40_000, help="records a side and minute of event time")
    long.add_argument("--max-records", type=int, default=100_000, help="records of both sides and step")
    given = parser.parse_args()
    if given.command == "growth":
        growth(given.records, given.per_minute, given.max_records)
        return 0
    if given.source == "log" and "flink" in given.engines:
        parser.error("Flink reads topics: --source log is for --engines windrow,spark")
    return compare(given)


def _engines(text: str) -> list[str]:
    engines = text.split(",")
    if unknown := set(engines) - ENGINES.keys():
        message = f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}"
        raise argparse.ArgumentTypeError(message)
    return engines


if __name__ == "__main__":
    sys.exit(main())
