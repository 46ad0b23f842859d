"""Plays the example: deducts credits once per order, while the run, the relay and the database are killed.

``python examples/ledger/play.py`` in the project's folder; it ends after some minutes with the ledger beside what the
log says. What it writes is in the folder ``ledger-demo``, which it makes anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres

HERE = Path(__file__).parent
FOLDER = Path("ledger-demo")
PARTITIONS = 2
USERS = 200
MINUTE = 60_000
DAY = 24 * 60 * MINUTE
BEGIN = 1_767_225_600_000
"""The first order, 2026-01-01, in milliseconds; the orders are of ten days."""
SHARE = 0.1
"""The share of orders that arrive late, that are sent again at once, and that are sent again at any time."""
LIMIT_SECONDS = 300.0


def main() -> None:
    """Play."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--orders", type=int, default=20_000, help="number of orders (default: 20000)")
    parser.add_argument("--faults", type=int, default=6, help="how often something is killed (default: 6)")
    parser.add_argument("--seed", type=int, default=1, help="of the orders and the moments of faults (default: 1)")
    parser.add_argument("--kafka", action="store_true", help="orders are in a Kafka topic, and so are deductions")
    given = parser.parse_args()
    for one in (signal.SIGINT, signal.SIGTERM):
        # also where the shell has this program ignore them
        signal.signal(one, signal.default_int_handler)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with ExitStack() as running:
        sys.exit(Play(given, running).play())


class Play:
    """One play: the servers, the log, and what was killed."""

    def __init__(self, given: argparse.Namespace, running: ExitStack) -> None:
        self._random = Random(given.seed)  # noqa: S311 - no secret
        self._running = running
        self._portions = portions(given.orders, given.faults + 1, self._random)
        self._faults = given.faults
        print("starting PostgreSQL ..." if not given.kafka else "starting PostgreSQL and a broker ...", flush=True)
        self._postgres = Postgres()
        running.callback(self._postgres.remove)
        self._postgres.start()
        self._url = self._postgres.create_database("shop")
        self._log = TopicLog(running) if given.kafka else FolderLog()
        self._killed: Counter[str] = Counter()
        self._reads = 0

    def play(self) -> int:
        """Append the orders, portion by portion, with a fault in each but the last; return the exit code."""
        text = (HERE / "pipeline.yaml").read_text(encoding="utf-8").replace("postgresql://localhost/shop", self._url)
        (FOLDER / "pipeline.yaml").write_text(self._log.into(text), encoding="utf-8")
        for number, portion in enumerate(self._portions[:-1]):
            self._log.append(portion)
            self._fault(number)
        self._log.append(self._portions[-1])
        print("the rest of the log, to its end ...", flush=True)
        for arguments in (self._run, self._relay):
            with windrow(*arguments) as process:
                self._until(lambda process=process: process.poll() is not None, process)
            if process.returncode:
                print(f"windrow {arguments[0]} failed; see {FOLDER}/{arguments[0]}.txt")
                return 1
        return self._compare()

    @property
    def _run(self) -> list[str]:
        pipeline, checkpoint = str(FOLDER / "pipeline.yaml"), str(FOLDER / "checkpoint")
        return ["run", pipeline, "--checkpoint", checkpoint, "--until-end", "--max-records", "500"]

    @property
    def _relay(self) -> list[str]:
        return ["relay", str(FOLDER / "pipeline.yaml"), self._log.deductions, "--until-empty"]

    def _fault(self, number: int) -> None:
        """Let the pipeline and the relay run, and kill one of them, or the database, at a random moment."""
        victim = ("run", "database", "relay")[number % 3]
        print(f"{number + 1} of {self._faults}: the {victim} is killed ...", flush=True)
        before = self._epoch()
        with ExitStack() as both:
            run = both.enter_context(windrow(*self._run))
            # without a step there is no outbox yet
            self._until(lambda: run.poll() is not None or self._epoch() > before, run)
            relay = both.enter_context(windrow(*(one for one in self._relay if one != "--until-empty")))
            moment = time.monotonic() + self._random.uniform(0, 3)
            self._until(lambda: time.monotonic() > moment, run)
            if victim == "database":
                self._postgres.kill()
                self._postgres.start()
                # the run tries again by itself; the relay has ended, and a supervisor would start it again
                self._until(lambda: run.poll() is not None, run)
            else:
                kill(run if victim == "run" else relay)
            self._killed[victim] += 1

    def _until(self, is_done: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        """Wait, and see meanwhile that the ledger and the balances agree at each moment."""
        until = time.monotonic() + LIMIT_SECONDS
        while not is_done():
            if time.monotonic() > until:
                sys.exit(f"nothing happens; see the files .txt in {FOLDER} ({process.args!r})")
            found = self._query("SELECT (SELECT coalesce(sum(credits), 0) FROM ledger), sum(deducted) FROM balances")
            if found and found[0][1] is not None:
                self._reads += 1
                if found[0][0] != found[0][1]:
                    sys.exit(f"the ledger says {found[0][0]}, and the balances {found[0][1]}")
            time.sleep(0.05)

    def _epoch(self) -> int:
        found = self._query("SELECT max(epoch) FROM windrow_epochs")
        return int(found[0][0]) if found and found[0][0] is not None else -1

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return rows, none while there are no tables."""
        try:
            with psycopg.connect(self._url, autocommit=True) as db:
                return db.execute(sql.encode()).fetchall()
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
            return []

    def _compare(self) -> int:
        """Print the ledger beside what the log says; return 0 if they agree, else 1."""
        lines = [line for portion in self._portions for line in portion]
        orders = {order["order_id"]: order for order in map(json.loads, lines)}
        balances: Counter[str] = Counter()
        for order in orders.values():
            balances[order["user"]] += order["credits"]
        ledger = self._query("SELECT count(*), sum(credits) FROM ledger")[0]
        copies = self._query("SELECT count(*) FROM copies")[0][0]
        late = self._query("SELECT count(*) FROM ledger_late")[0][0]
        found = dict(self._query('SELECT "user", deducted FROM balances'))
        wrong = sum(found.get(user) != credit for user, credit in balances.items()) + len(found.keys() - balances)
        sent = Counter(order["order_id"] for order in map(json.loads, self._log.sent()))
        is_right = ledger == (len(orders), balances.total()) and not wrong and sent == Counter(orders.keys())
        killed = ", ".join(f"the {victim} ({count})" for victim, count in self._killed.items()) or "nothing"
        print(f"""
killed: {killed}
the log:      {len(lines):,} records, {len(orders):,} orders, {balances.total():,} credits
the ledger:   {ledger[0]:,} orders, {ledger[1]:,} credits; {copies:,} copies, and {late:,} that came after seven days
the balances: {len(found):,} users, {wrong} of them wrong; equal to the ledger in {self._reads:,} reads meanwhile
deductions:   {sent.total():,} events sent by the relay, for {len(sent):,} orders
{"The ledger is right." if is_right else "The ledger is WRONG."}""")
        return 0 if is_right else 1


def portions(count: int, parts: int, random: Random) -> list[list[str]]:
    """Return the records of the log in portions, in the order in which they arrive.

    Of ten orders one arrives up to two days late, and the others within minutes. Of ten one is sent again at once, and
    one at any time up to the end, which can be more than seven days later.
    """
    arrivals: list[tuple[float, str]] = []
    end = BEGIN + 10 * DAY
    for number in range(count):
        ordered = BEGIN + 10 * DAY * number // count
        order = {
            "order_id": f"o{number:06d}",
            "user": f"u{random.randrange(USERS):03d}",
            "credits": random.randint(1, 500),
            "ordered_at": ordered,
        }
        line = json.dumps(order)
        late = 2 * DAY if random.random() < SHARE else 5 * MINUTE
        arrived = ordered + random.uniform(0, late)
        arrivals.append((arrived, line))
        if random.random() < SHARE:
            arrivals.append((arrived + random.uniform(0, MINUTE), line))
        if random.random() < SHARE:
            arrivals.append((random.uniform(arrived, max(arrived, end)), line))
    lines = [line for _, line in sorted(arrivals)]
    return [lines[len(lines) * part // parts : len(lines) * (part + 1) // parts] for part in range(parts)]


class FolderLog:
    """The orders in an embedded log, and the deductions in another one."""

    deductions = str(FOLDER / "deductions")

    def __init__(self) -> None:
        for folder in ("orders", "deductions"):
            (FOLDER / folder).mkdir()
            for partition in range(PARTITIONS):
                (FOLDER / folder / f"partition-{partition}.jsonl").touch()
        self._next = 0

    def into(self, text: str) -> str:
        """Return the pipeline that reads this log."""
        return text

    def append(self, lines: list[str]) -> None:
        """Append records, each to the next partition: a copy is often in another one."""
        for line in lines:
            with (FOLDER / "orders" / f"partition-{self._next % PARTITIONS}.jsonl").open("a") as file:
                file.write(f"{line}\n")
            self._next += 1

    def sent(self) -> Iterator[str]:
        """Yield the deductions; what is left of a line that a relay was killed in is none."""
        for file in sorted(Path(self.deductions).iterdir()):
            for line in file.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError):
                    json.loads(line)
                    yield line


class TopicLog:
    """The orders in a Kafka topic, and the deductions in another one."""

    def __init__(self, running: ExitStack) -> None:
        self._kafka = Kafka(FOLDER / "kafka")
        self._kafka.start()
        running.callback(self._kafka.kill)
        for topic in ("orders", "deductions"):
            self._kafka.create_topic(topic, PARTITIONS)

    @property
    def deductions(self) -> str:
        """The target of the relay."""
        return f"kafka://{self._kafka.servers}/deductions"

    def into(self, text: str) -> str:
        """Return the pipeline that reads this topic."""
        topic = f'{{kafka: {{servers: "{self._kafka.servers}", topic: orders}}}}'
        return text.replace("{log: {path: ledger-demo/orders}}", topic)

    def append(self, lines: list[str]) -> None:
        """Append records, each to the next partition: a copy is often in another one."""
        for partition in range(PARTITIONS):
            self._kafka.produce("orders", partition, [line.encode() for line in lines[partition::PARTITIONS]])

    def sent(self) -> Iterator[str]:
        """Yield the deductions that are committed."""
        from windrow.connectors.open_sources import open_source  # noqa: PLC0415 - the same
        from windrow.model import KafkaSource  # noqa: PLC0415 - for a topic alone

        for batch in open_source(KafkaSource(self._kafka.servers, "deductions")).read_all():
            yield from (value.decode() for value in batch.column("value").to_pylist())


@contextmanager
def windrow(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of windrow beside this program, with its output in a file; kill it at the end."""
    with (FOLDER / f"{words[0]}.txt").open("a") as output:
        command = [sys.executable, "-m", "windrow", *words]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, as `kill -9` does."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    main()
