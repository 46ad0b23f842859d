"""Whether a backlog is worked off in flat memory, however slow the sink: ``python bench/backlog.py``.

A live run with the defaults of ``windrow run`` meets 5,000,000 events that are there already: from Kafka to a sink
that drops what it is given at so many changes a second, and from an embedded log to PostgreSQL (``--cases`` names
others). Memory is sampled each second. It fails, with exit code 1, if the memory of all processes together is not flat
(``bench/processes.py`` says what that is), or if the run does not catch up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from bench.discard import DiscardSink
from bench.pipelines import main_job
from bench.processes import Sampler, flatness

from windrow.authoring.pipeline_file import parse_pipeline
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.sink import Sink, SinkGroup
from windrow.engine.changelog import StepOutput
from windrow.model import KafkaSource, LogSource, PostgresSink, Source, SourceNode
from windrow.runtime.run import RunSettings
from windrow.runtime.stream.run import LIVE_MAX_RECORDS, StreamRun
from windrow.telemetry.reports import StepReport
from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres
from windrow.tools.generate import LogSpec, write_kafka, write_log

TOPIC = "spend"
HOUR = 3_600_000_000
STEP_TIME = 10_000_000
"""As ``windrow run`` has it."""


class ThrottledSink(DiscardSink):
    """Drops changes, so many a second."""

    needs_rows = True

    def __init__(self, rate: float) -> None:
        super().__init__()
        self._rate = rate

    def commit(self, epoch: int, *outputs: StepOutput) -> None:
        """Count a step, and take the time that its changes take."""
        super().commit(epoch, *outputs)
        time.sleep(outputs[0].changes.num_rows / self._rate)


def run(case: str, address: str, url: str, rate: float, folder: Path) -> None:
    """Run live until there is nothing left to read; print each step as a line of JSON."""
    source: Source = KafkaSource(address, TOPIC) if case.startswith("kafka") else LogSource(address)
    pipeline = parse_pipeline(main_job())
    pipeline = pipeline.map_nodes(lambda node: replace(node, source=source) if isinstance(node, SourceNode) else node)
    if case.endswith("postgres"):
        pipeline = pipeline.into(PostgresSink(url, "user_spend_5m"))
    sink: Sink | SinkGroup = open_sinks(pipeline) if case.endswith("postgres") else ThrottledSink(rate)
    settings = RunSettings(folder / "checkpoint", max_records=LIVE_MAX_RECORDS, step_time=STEP_TIME)
    running = StreamRun(pipeline, sink, settings)

    def on_step(report: StepReport) -> None:
        told = {"events": report.events, "took": report.took, "seconds": report.seconds, "behind": report.behind}
        print(json.dumps(told), flush=True)
        if report.behind == 0:
            running.stop()

    running.run(on_step)
    sink.close()


def measure(case: str, arguments: argparse.Namespace, address: str, url: str, folder: Path) -> bool:
    """Run a case in a session of its own, and print what it took; return whether it is well."""
    command = [sys.executable, __file__, "--child", case, address, url, str(arguments.rate), str(folder)]
    steps: list[dict[str, float]] = []
    began = time.monotonic()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process,
        Sampler(lambda: process.pid) as sampler,
    ):
        steps.extend({"at": time.monotonic() - began, **json.loads(line)} for line in process.stdout or ())
    flat, text = flatness(sampler.samples)
    print(f"\n{case}: {sum(step['events'] for step in steps):,} events in {time.monotonic() - began:.0f} s")
    print("  at s    events  step s      behind")
    for step in steps[:: max(1, len(steps) // 25)]:
        behind = "-" if step["behind"] is None else f"{step['behind']:,}"
        print(f"{step['at']:6.0f} {step['events']:9,} {step['took']:7.1f} {behind:>11}")
    print(text)
    caught_up = bool(steps) and steps[-1]["behind"] == 0
    print(f"it {'caught up' if caught_up else 'DID NOT CATCH UP'}", flush=True)
    if arguments.out is not None:
        with Path(arguments.out).open("a") as file:
            file.write(json.dumps({"case": case, "steps": steps, "memory": list(map(asdict, sampler.samples))}) + "\n")
    return flat and caught_up and process.returncode == 0


@contextmanager
def broker(spec: LogSpec, folder: Path, cases: list[str]) -> Iterator[str]:
    """Fill a topic if a case needs it; give the broker's address."""
    if not any(case.startswith("kafka") for case in cases):
        yield ""
        return
    kafka = Kafka(folder / "kafka")
    kafka.start()
    try:
        # event times are in the past: the topic must not let them go
        kafka.create_topic(TOPIC, spec.partitions, {"retention.ms": "-1"})
        write_kafka(spec, kafka.servers, TOPIC)
        yield kafka.servers
    finally:
        kafka.stop()


def main() -> int:
    """Measure each case; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--hours", type=float, default=120, help="how much event time the events span")
    parser.add_argument("--rate", type=float, default=15_000, help="changes a second that the throttled sink takes")
    parser.add_argument("--cases", nargs="+", default=["kafka-throttled", "log-postgres"], help="SOURCE-SINK")
    parser.add_argument("--out", help="a file that a line of JSON is added to for each case")
    arguments = parser.parse_args()
    spec = LogSpec(events=arguments.events, duration=round(arguments.hours * HOUR), malformed_share=0.001)
    well = True
    with tempfile.TemporaryDirectory(prefix="windrow-backlog-") as name:
        folder = Path(name)
        with broker(spec, folder, arguments.cases) as servers:
            for case in arguments.cases:
                source, sink = case.split("-")
                if source == "log" and not (folder / TOPIC).exists():
                    write_log(spec, str(folder / TOPIC))
                address = servers if source == "kafka" else str(folder / TOPIC)
                place = folder / case
                place.mkdir()
                if sink == "postgres":
                    server = Postgres()
                    server.start()
                    try:
                        well = measure(case, arguments, address, server.create_database("spend"), place) and well
                    finally:
                        server.remove()
                else:
                    well = measure(case, arguments, address, "", place) and well
    return 0 if well else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        run(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]), Path(sys.argv[6]))
        sys.exit()
    sys.exit(main())
