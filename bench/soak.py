"""A long live run under faults: ``python bench/soak.py --hours 2 --rate 1500 --fault-every 180``.

Purchases go to a topic of four partitions, and ``windrow run`` takes them to PostgreSQL: without their copies, by user
and window, with late output and dead letters (`bench/verdict.py` has the pipeline). Each interval brings a fault of
`bench/faults.py`, in a random order that `--seed` chooses, each kind before any is repeated: a Python worker is killed,
all of them, the JVM, or the whole run; the broker or the database is killed and started; the database's connections are
ended; the checkpoint's disk is full; the clock is set back an hour; a record of each kind that is known to break
readers arrives. A run that ends of these is started again, as a supervisor does.

Then the input ends, the run is asked to stop, another one fires what is open, and every row is compared with what the
definition says of the topic. What the run takes is sampled each 15 s: memory, descriptors, threads, the checkpoint and
the history. The figures are written to ``bench/results/soak-DATE.json``, and as a table beside it. Exit code 0 if every
criterion is met. Full disks need root, and the clock a C compiler; ``--skip`` leaves a kind out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import psycopg
from bench.compare import machine, today, versions
from bench.faults import Disk, Fault, Scene, kinds, order
from bench.processes import MIB, family, footprint
from bench.soak_report import Criterion, End, Sample, Struck, judge, markdown
from bench.verdict import pipeline, truth
from tests.faults.clock import Clock
from tests.faults.windrow_process import COMMAND, ROOT, WindrowProcess

from windrow.telemetry.history import FILES
from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres

TOPIC = "purchases"
_SAMPLED = 15.0
_PAUSE = 2.0
"""Seconds until a run that has ended is started again."""
_POLL = 0.5
_STALLED = 300.0
_STOP, _FIRE = 300.0, 3600.0
_STEPS = 2
"""A step that was under way when a fault struck may still be committed."""


@dataclass
class Soak:
    """What runs, what was done to it, and what was seen."""

    folder: Path
    disk: Disk
    url: str
    environment: dict[str, str]
    began: float = field(default_factory=time.monotonic)
    process: WindrowProcess | None = None
    struck: list[Struck] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint, on a disk of its own."""
        return self.disk.folder / "checkpoint"

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    @property
    def running(self) -> WindrowProcess:
        """The process of the run."""
        if self.process is None:
            msg = "nothing runs"
            raise RuntimeError(msg)
        return self.process

    def start(self, *options: str) -> None:
        """Start `windrow run`."""
        command = ("run", "pipeline.yaml", "--checkpoint", str(self.checkpoint), *options)
        self.process = WindrowProcess(command, self.folder, **self.environment)

    def supervise(self, kind: str | None = None, fault: Fault | None = None) -> None:
        """Wait a little; start the run again if it has ended, and note why."""
        self.running.linger(_POLL)
        if self.running.ended:
            said = " ".join(self.running.errors.split())[-500:]
            end = End(round(self.seconds, 1), kind, fault is not None and fault.may_end, said)
            self.ends.append(end)
            by_itself = "" if end.is_fair else " BY ITSELF"
            print(f"{self.seconds:7.0f} s  the run ended{by_itself}: {said[-160:]}", flush=True)
            self.running.kill()  # what it has left behind
            time.sleep(_PAUSE)
            self.start()

    def strike(self, kind: str, fault: Fault) -> None:
        """Let a fault strike and end, and wait until the run goes on."""
        at, before, committed = self.seconds, self.epoch(), None
        fault.strike()
        while self.seconds < at + fault.lasts or (
            fault.goes_on and committed is None and self.seconds < at + max(fault.lasts, _STALLED)
        ):
            fault.keep()
            self.supervise(kind, fault)
            if fault.goes_on and committed is None and self.epoch() >= before + _STEPS:
                committed = self.seconds - at
        fault.end()
        if not fault.goes_on:
            over, before = self.seconds, self.epoch()
            while committed is None and self.seconds < over + _STALLED:
                self.supervise(kind, fault)
                if self.epoch() >= before + _STEPS:
                    committed = self.seconds - over
        self.struck.append(Struck(round(at, 1), kind, None if committed is None else round(committed, 1)))
        after = "IT DOES NOT GO ON" if committed is None else f"two steps {committed:.1f} s later"
        print(f"{at:7.0f} s  {kind}: {after}", flush=True)

    def epoch(self) -> int:
        """Return the last committed epoch, -1 if there is none or the database is away."""
        found = self._ask("SELECT max(epoch) FROM windrow_epochs")
        return -1 if found is None else found

    def _ask(self, query: str) -> int | None:
        with suppress(psycopg.OperationalError, psycopg.errors.UndefinedTable):
            with psycopg.connect(self.url, connect_timeout=2) as connection:
                [(found,)] = connection.execute(query.encode()).fetchall()
            return None if found is None else int(found)
        return None

    def sample(self) -> None:
        """Note what the run takes, unless it is just being started."""
        pid = self.running.pid
        if not family(pid).workers:
            return
        seen = footprint(pid)
        sizes = list(_sizes(self.checkpoint))
        self.samples.append(
            Sample(
                seconds=round(self.seconds, 1),
                driver=round(seen.driver, 1),
                jvm=round(seen.jvm, 1),
                workers=round(seen.workers, 1),
                descriptors=seen.descriptors,
                threads=seen.threads,
                checkpoint=round(sum(sizes) / MIB, 2),
                files=len(sizes),
                history=_history(self.checkpoint / FILES[0]),
                epochs=self._ask("SELECT count(*) FROM windrow_epochs"),
            )
        )

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Sample in a thread meanwhile."""
        over = threading.Event()

        def run() -> None:
            while not over.wait(_SAMPLED):
                self.sample()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the bytes of each file of a checkpoint but its history, which has a limit of its own."""
    for place, _, names in os.walk(folder):
        for name in set(names).difference(FILES):
            with suppress(FileNotFoundError):  # Spark cleans up meanwhile
                yield (Path(place) / name).stat().st_size


def _history(file: Path) -> int | None:
    """Return the rows of a history, None if it cannot be read just now."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as history:
        tables = [name for (name,) in history.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return sum(int(history.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in tables)
    return None


@contextmanager
def purchases(servers: str, options: argparse.Namespace, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Give the topic so many events a second meanwhile; raise if that failed."""
    shares = ("--late-share", "0.01", "--malformed-share", "0.001", "--duplicate-share", "0.01")
    numbers = {name: str(getattr(options, name)) for name in ("rate", "users", "partitions", "seed")}
    command = [*COMMAND, "generate", f"kafka://{servers}/{TOPIC}", *shares]
    command += [part for name, value in numbers.items() for part in (f"--{name}", value)]
    with (folder / "generate.err").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(120)
    if code != 0:
        msg = f"the events stopped coming: {(folder / 'generate.err').read_text()}"
        raise RuntimeError(msg)


def play(soak: Soak, faults: dict[str, Fault], feed: subprocess.Popen[bytes], options: argparse.Namespace) -> None:
    """Let the run go on with a fault each interval, until its time is over and each kind has struck."""
    length = 3600 * options.hours if options.minutes is None else 60 * options.minutes
    names, left = order(list(faults), Random(options.seed)), set(faults)
    due = options.fault_every
    while feed.poll() is None and (left or soak.seconds < length):
        soak.supervise()
        # there are workers to kill from the first steps on, and the last fault has its interval too
        is_due = due <= soak.seconds and (left or soak.seconds < length - options.fault_every / 2)
        if is_due and soak.epoch() >= _STEPS:
            kind = next(names)
            soak.strike(kind, faults[kind])
            left.discard(kind)
            due = max(due + options.fault_every, soak.seconds)


def finish(soak: Soak) -> None:
    """Ask the run to stop, and let another one read the rest and fire what is open; raise if one does not end well."""
    soak.running.send(signal.SIGINT)
    code = soak.running.wait(_STOP)
    if code == 0:
        soak.start("--until-end")
        code = soak.running.wait(_FIRE)
    if code != 0:
        msg = f"the run ended with {code}: {soak.running.errors[-2000:]}"
        raise RuntimeError(msg)


def run(options: argparse.Namespace) -> tuple[Soak, list[Criterion]]:
    """Run a soak; return what was seen of it, and what that says."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="windrow-soak-")))
        disk = Disk(folder / "disk")
        disk.folder.mkdir()
        if "disk" not in options.skip:
            held.enter_context(disk.mounted())
        clock = None if "clock" in options.skip else Clock(folder)
        kafka, postgres = Kafka(folder / "kafka"), Postgres()
        held.callback(kafka.stop)
        held.callback(postgres.remove)
        kafka.start()
        postgres.start()
        kafka.create_topic(TOPIC, options.partitions)
        url = postgres.create_database("soak")
        (folder / "pipeline.yaml").write_text(pipeline(kafka.servers, TOPIC, url))
        soak = Soak(folder, disk, url, {} if clock is None else clock.environment)
        held.callback(lambda: None if soak.process is None else soak.process.kill())
        scene = Scene(
            lambda: soak.running.pid, kafka, postgres, TOPIC, options.partitions, url, disk, clock, Random(options.seed)
        )
        found = kinds(scene, min(60.0, options.fault_every / 3))
        faults = {kind: fault for kind, fault in found.items() if kind not in options.skip}
        soak.start()
        with soak.sampled(), purchases(kafka.servers, options, folder) as feed:
            play(soak, faults, feed, options)
        print(f"{soak.seconds:7.0f} s  the input ends; {len(soak.struck)} faults", flush=True)
        finish(soak)
        print(f"{soak.seconds:7.0f} s  all is read; comparing", flush=True)
        with truth(folder / "pipeline.yaml") as right:
            said = right.verdict(url)
        return soak, judge(soak.samples, soak.struck, soak.ends, list(faults), said)


def main() -> int:
    """Run, print and write what was seen, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float, default=0.5)
    length.add_argument("--minutes", type=float)
    parser.add_argument("--rate", type=int, default=1500, help="events a second")
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--fault-every", type=float, default=180, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the faults, and of the events")
    parser.add_argument("--skip", action="append", default=[], metavar="KIND", help="a kind of fault that is left out")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / f"soak-{today()}.json")
    options = parser.parse_args()
    soak, criteria = run(options)
    given = {name: str(value) for name, value in vars(options).items()}
    seen = {
        name: list(map(asdict, values))
        for name, values in (
            ("criteria", criteria),
            ("faults", soak.struck),
            ("ends", soak.ends),
            ("samples", soak.samples),
        )
    }
    found = {"date": today(), "machine": machine(), "versions": versions(), "options": given, **seen}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    title = f"A soak of {soak.seconds / 60:.0f} minutes at {options.rate:,} events a second, {today()}"
    text = markdown(title, criteria, soak.struck, soak.samples)
    options.out.with_suffix(".md").write_text(text)
    print(text, flush=True)
    missed = [one.name for one in criteria if one.is_met is False]
    print(f"NOT MET: {', '.join(missed)}" if missed else "ALL CRITERIA ARE MET", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
