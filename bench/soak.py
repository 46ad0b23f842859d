"""A live run under faults, held to the oracle at its end: ``python bench/soak.py``, for half an hour.

5,000 events a second go to a Kafka topic, and ``windrow run`` takes them to PostgreSQL. Each minute brings a fault, in
turn: the run is killed with all its processes and started again, the broker is restarted, PostgreSQL is restarted, the
run's connections to it are ended. Then the input ends, the run is asked to stop, another one fires what is open, and
each row is compared: the table, its changelog, the late output and the dead letters, with what the definition in plain
Python says of the topic (one partition after the other, as a user's events are all in one). Memory, state, step times
and lag are printed for each minute, and added to ``--out``.

Exit code 0, and WELL in the last line: every row is right, no run ended by itself, and memory is flat (which is judged
in a soak of twelve minutes or more: in a shorter one Spark's JVM still warms up).
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import psycopg
from bench.pipelines import from_kafka, into_postgres, main_job
from bench.processes import Sampler, flatness
from bench.verdict import verdict
from tests.faults.windrow_process import COMMAND, WindrowProcess

from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres

TOPIC = "spend"
RUN = ("run", "pipeline.yaml", "--checkpoint", "checkpoint")
_BEHIND = re.compile(r"([\d,]+) behind")
_MIB = 1 << 20
_CATCH_UP = 600.0
_FIRE = 1800.0
_JUDGED = 12.0
"""Minutes from which on memory is judged."""


def pipeline(servers: str, topic: str, url: str) -> str:
    """Return the text of what runs."""
    return main_job(
        from_kafka(servers, topic),
        into_postgres(url, "user_spend"),
        time="delay: 10s, future: 1h",
        window="{tumbling: 10s}",
        emit="lateness: 1m",
    )


@dataclass
class Soak:
    """What runs, and what was seen of it."""

    folder: Path
    kafka: Kafka
    postgres: Postgres
    url: str
    process: WindrowProcess | None = None
    gave_up: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Start `windrow run`."""
        self.process = WindrowProcess(RUN, self.folder)

    @property
    def running(self) -> WindrowProcess:
        """The process, which is started again if it ended by itself; that is counted."""
        if self.process is None or self.process.ended:
            if self.process is not None:
                self.gave_up.append(self.process.errors[-500:])
            self.start()
        if self.process is None:
            msg = "nothing runs"
            raise RuntimeError(msg)
        return self.process

    def kill(self) -> None:
        """Kill the run with all its processes, and start it again."""
        self.running.kill()
        self.start()

    def restart_broker(self) -> None:
        """Kill the broker, and start it again."""
        self.kafka.kill()
        self.kafka.start()

    def restart_postgres(self) -> None:
        """Restart PostgreSQL; connections are cut."""
        self.postgres.stop()
        self.postgres.start()

    def end_connections(self) -> None:
        """End the run's connections."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid()"
            )

    def behind(self) -> int | None:
        """Return the lag that the run told of last, None if it told of none since it was started."""
        lines = self.running.errors.splitlines()
        if not lines or " events, " not in lines[-1]:
            return None
        found = _BEHIND.search(lines[-1])
        return int(found[1].replace(",", "")) if found else 0

    def state(self) -> float:
        """Return the MiB of the checkpoint's state, with the older versions that Spark keeps."""
        return _size(self.folder / "checkpoint" / "spark" / "state") / _MIB

    def epochs(self) -> list[float]:
        """Return when each step was committed, in seconds."""
        with psycopg.connect(self.url) as connection:
            try:
                rows = connection.execute("SELECT committed_at FROM windrow_epochs ORDER BY epoch").fetchall()
            except psycopg.errors.UndefinedTable:  # before the first step
                return []
        return [row[0].timestamp() for row in rows]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # Spark cleans up meanwhile
            continue
    return total


@contextmanager
def events(servers: str, rate: int, users: int, partitions: int, folder: Path) -> Iterator[None]:
    """Give the topic so many events a second meanwhile; raise if that failed."""
    command = [*COMMAND, "generate", f"kafka://{servers}/{TOPIC}", "--rate", str(rate), "--users", str(users)]
    command += ["--partitions", str(partitions), "--late-share", "0.01", "--malformed-share", "0.001"]
    with (folder / "generate.err").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(120)
    if code != 0:
        msg = f"the events stopped coming: {(folder / 'generate.err').read_text()}"
        raise RuntimeError(msg)


def go_on(soak: Soak, minutes: float, every: float) -> list[dict[str, float | str | None]]:
    """Let the run go on, with a fault now and then; return what was seen each minute."""
    kinds: tuple[Callable[[], None], ...] = (
        soak.kill,
        soak.restart_broker,
        soak.restart_postgres,
        soak.end_connections,
    )
    rows: list[dict[str, float | str | None]] = []
    began = time.time()
    told, faulted = began, began
    print("minute  state MiB  steps  step s: median   worst      behind  fault", flush=True)
    while time.time() < began + 60 * minutes:
        soak.running.linger(0.5)
        now = time.time()
        is_due = faulted + every <= now < began + 60 * minutes - every / 2
        kind = kinds[len(soak.faults) % len(kinds)]
        fault = kind.__name__ if is_due else None
        if now >= told + 60 or fault:
            times = [at for at in soak.epochs() if at >= told - 60]
            steps = [b - a for a, b in pairwise(times) if b >= told]
            behind = soak.behind()
            row: dict[str, float | str | None] = {
                "minute": round((now - began) / 60, 1),
                "state": round(soak.state(), 1),
                "steps": len(steps),
                "median": round(statistics.median(steps), 2) if steps else None,
                "worst": round(max(steps), 2) if steps else None,
                "behind": behind,
                "fault": fault,
            }
            rows.append(row)
            shown = ["-" if row[name] is None else f"{row[name]:,}" for name in list(row)[:-1]]
            print("{:>6} {:>10} {:>6} {:>15} {:>7} {:>11}  ".format(*shown) + (fault or ""), flush=True)
            told = now
        if fault:
            kind()
            soak.faults.append(fault)
            faulted = now
    return rows


def finish(soak: Soak) -> None:
    """Let the run catch up, ask it to stop, and fire what is open; raise if it will not."""
    deadline = time.monotonic() + _CATCH_UP
    while soak.behind() != 0 and time.monotonic() < deadline:
        soak.running.linger(0.5)
    soak.running.send(signal.SIGINT)
    code = soak.running.wait(300)
    if code == 0:
        with WindrowProcess((*RUN, "--until-end"), soak.folder) as last:
            code = last.wait(_FIRE)
            soak.process = last
    if code != 0 and soak.process is not None:
        msg = f"the run ended with {code}: {soak.process.errors[-2000:]}"
        raise RuntimeError(msg)


def main() -> int:
    """Run, print what was seen, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=int, default=5000, help="events a second")
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--fault-every", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--out", help="a file that a line of JSON is added to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-soak-") as name:
        folder = Path(name)
        kafka, postgres = Kafka(folder / "kafka"), Postgres()
        kafka.start()
        postgres.start()
        soak = Soak(folder, kafka, postgres, postgres.create_database("spend"))
        try:
            kafka.create_topic(TOPIC, arguments.partitions)
            (folder / "pipeline.yaml").write_text(pipeline(kafka.servers, TOPIC, soak.url))
            soak.start()
            with (
                Sampler(lambda: None if soak.process is None else soak.process.pid) as sampler,
                events(kafka.servers, arguments.rate, arguments.users, arguments.partitions, folder),
            ):
                rows = go_on(soak, arguments.minutes, arguments.fault_every)
            finish(soak)
            # each kill begins anew: what counts is how high it comes
            flat, memory = flatness(sampler.samples, percentile=90)
            print(f"{len(soak.faults)} faults: {', '.join(soak.faults)}\n{memory}")
            began = time.monotonic()
            found = verdict(folder / "pipeline.yaml", soak.url)
            print(f"{found.said} ({time.monotonic() - began:.0f} s)")
            for error in soak.gave_up:
                print(f"A RUN ENDED BY ITSELF: {error}")
        finally:
            if soak.process is not None:
                soak.process.kill()
            kafka.stop()
            postgres.remove()
    found_wrong = {
        "rows": not found.is_right,
        "memory": not flat and arguments.minutes >= _JUDGED,
        "a run that ended by itself": bool(soak.gave_up),
    }
    wrong = [what for what, is_wrong in found_wrong.items() if is_wrong]
    if arguments.out is not None:
        told = {
            "arguments": vars(arguments),
            "wrong": wrong,
            "verdict": found.said,
            "rows": rows,
            "memory": list(map(asdict, sampler.samples)),
        }
        with Path(arguments.out).open("a") as file:
            file.write(json.dumps(told) + "\n")
    print(f"NOT WELL: {', '.join(wrong)}" if wrong else "WELL", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
