"""Plays the example: starts a broker, the purchases and the pipeline, and shows alerts as they come.

``python examples/fraud/play.py`` in the project's folder, until Ctrl-C. What it writes is in the folder ``fraud-demo``,
which it makes anew.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from windrow.testing.servers.kafka import Kafka

HERE = Path(__file__).parent
FOLDER = Path("fraud-demo")
PARTITIONS = 2
START_SECONDS = 60.0
FLUSH_SECONDS = 10.0


def main() -> None:
    """Play."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=500, help="purchases a second (default: 500)")
    parser.add_argument("--table", action="store_true", help="keep the alerts that stand in a table, too")
    parser.add_argument("--block", metavar="MERCHANT", help="block a merchant in the example that is running")
    given = parser.parse_args()
    if given.block:
        file = FOLDER / "pipeline.yaml"
        servers = re.search(r'servers: "([^"]+)"', file.read_text(encoding="utf-8")) if file.exists() else None
        if servers is None:
            sys.exit(f"there is no {file}: start the example first, in this folder and another terminal")
        block(servers[1], [given.block])
        return
    for one in (signal.SIGINT, signal.SIGTERM):
        # also where the shell has this program ignore them
        signal.signal(one, signal.default_int_handler)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    kafka = Kafka(FOLDER / "kafka")
    with ExitStack() as running:
        print("starting a broker, purchases, and the pipeline ...", flush=True)
        kafka.start()
        running.callback(kafka.kill)
        for topic in ("transactions", "alerts"):
            kafka.create_topic(topic, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        running.enter_context(purchases(kafka.servers, given.rate))
        kafka.create_topic("blocked", 1, {"cleanup.policy": "compact"})
        block(kafka.servers, (FOLDER / "blocked.csv").read_text(encoding="utf-8").split()[1:])
        running.enter_context(windrow("run", written("pipeline.yaml", kafka.servers)))
        if given.table:
            checkpoint = ("--checkpoint", str(FOLDER / "checkpoint"))
            running.enter_context(windrow("run", written("table.yaml", kafka.servers), *checkpoint))
        latencies: list[float] = []
        try:
            for latency, line in alerts(kafka.servers):
                latencies += [] if latency is None else [latency]
                print(line, flush=True)
        except KeyboardInterrupt:
            pass
        summary(latencies)


def summary(latencies: list[float]) -> None:
    """Print how long the alerts took."""
    if not latencies:
        sys.exit(f"no alert came in time; see {FOLDER}/pipeline.yaml.txt")
    ordered = sorted(latencies)
    middle, most = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    print(f"\n{len(ordered)} alerts; from the log to here in {middle:.0f} ms (median), {most:.0f} ms (99 %)")
    print(f"The labels of what is fraud are in {FOLDER}/labels.jsonl.")


def written(name: str, servers: str) -> str:
    """Write a pipeline of this folder for a broker; return the file."""
    text = (HERE / name).read_text(encoding="utf-8")
    (FOLDER / name).write_text(text.replace("localhost:9092", servers), encoding="utf-8")
    return str(FOLDER / name)


def block(servers: str, merchants: list[str]) -> None:
    """Add merchants or countries to the list; a null value would remove one."""
    producer = Producer({"bootstrap.servers": servers})
    for merchant in merchants:
        producer.produce("blocked", key=merchant, value="{}")
    if producer.flush(FLUSH_SECONDS):
        sys.exit(f"no broker answers at {servers}: is the example running?")


@contextmanager
def purchases(servers: str, rate: int) -> Iterator[None]:
    """Generate purchases; begin when there is a list of blocked merchants."""
    topic = f"kafka://{servers}/transactions"
    options = ("--rate", str(rate), "--cards", str(100 * rate), "--partitions", str(PARTITIONS))
    with windrow("generate", topic, "--kind", "fraud", *options, "--fraud-share", "0.002", "--labels", str(FOLDER)):
        deadline = time.monotonic() + START_SECONDS
        while not (FOLDER / "blocked.csv").exists():
            if time.monotonic() > deadline:
                sys.exit(f"no purchases came; see {FOLDER}/generate.txt")
            time.sleep(0.1)
        yield


@contextmanager
def windrow(*words: str) -> Iterator[None]:
    """Run a command of windrow beside this program, with its output in a file."""
    command = [sys.executable, "-m", "windrow", *words]
    name = Path(words[1]).name if words[0] == "run" else words[0]
    with (FOLDER / f"{name}.txt").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def alerts(servers: str) -> Iterator[tuple[float | None, str]]:
    """Yield what happens to alerts as a line, and the milliseconds since its purchase was logged.

    Purchases that waited for the pipeline to start have no latency.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "play",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition("alerts", partition, 0) for partition in range(PARTITIONS)])
    started: int | None = None
    while True:
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        stamps = dict(message.headers() or [])
        logged, read = int(stamps["logged"] or 0), int(stamps["read"] or 0)
        started = started or read
        latency = None if logged < started else time.time() * 1000 - logged / 1000
        age = " waiting" if latency is None else f"{latency:5.0f} ms"
        row = json.loads(message.value() or b"{}")
        what = {"insert": row["severity"], "delete": "cleared"}.get(row["op"], "updated")
        yield latency, f"{age}  {what:8}  {row['rule']:17}  {row['card']}  {row['text']}"


if __name__ == "__main__":
    main()
