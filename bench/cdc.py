"""Change data capture: transactions of a PostgreSQL database, followed into an embedded log.

``python bench/cdc.py --rate 2000 --seconds 600`` starts a server, a process that updates, inserts and deletes rows of a
table, a transaction each, and one that follows the table. It prints every few seconds, and in all: transactions and
changes a second, how long ago the last line of the log was committed (sampled every 10 ms), what the slot has more than
the log, and the processor time and memory of the follower. It fails if the log does not make the table in the end. The
server runs with fsync off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psycopg
from bench.closings import percentile

from windrow.connectors.postgres.cdc.follow import FollowedTables
from windrow.model import LogSource, PostgresCdcSource
from windrow.testing.servers.postgres import Postgres

ROWS = 10_000
_SAMPLE_SECONDS = 0.01
_TAIL = 4096
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def write(url: str, rate: float, seconds: float) -> None:
    """Change the table: of ten transactions eight update a row, one inserts one, one deletes one."""
    random = Random(1)
    with psycopg.connect(url, autocommit=True) as sql:
        began, newest, done = time.monotonic(), ROWS, 0
        while (now := time.monotonic() - began) < seconds:
            while done < now * rate:
                done += 1
                match done % 10:
                    case 0:
                        newest += 1
                        sql.execute("INSERT INTO orders VALUES (%s, 'new', 1, 'nobody')", (newest,))
                    case 5:
                        sql.execute("DELETE FROM orders WHERE id = %s", (newest - ROWS + 1,))
                    case _:
                        id_ = random.randrange(newest - ROWS + 2, newest + 1)
                        sql.execute("UPDATE orders SET amount = amount + 1, status = 'paid' WHERE id = %s", (id_,))
            time.sleep(0.001)
        print(json.dumps({"transactions": done, "late": time.monotonic() - began - seconds}))


def follow(url: str, log: str) -> None:
    """Follow the table until this process is ended; print its lag each second."""
    table, stop = FollowedTables(PostgresCdcSource(url, "orders", LogSource(log))), threading.Event()
    thread = threading.Thread(target=table.follow, args=(stop, print))
    thread.start()
    while thread.is_alive() and not stop.wait(1):
        if table.lag is not None:
            print(json.dumps([table.lag.bytes, table.lag.seconds]), flush=True)


@dataclass
class Interval:
    """What was seen in some seconds: of samples the milliseconds since the commit, of the slot the bytes."""

    began: float
    lines: int
    processor: float
    delays: list[float] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)


def last_commit(log: Path, at: int) -> float | None:
    """Return when the last whole line after a byte was committed, in seconds; None if there is none."""
    size = log.stat().st_size
    if size == at:
        return None
    with log.open("rb") as file:
        file.seek(max(0, size - _TAIL))
        lines = file.read().split(b"\n")
    micros: int = json.loads(lines[-2])["source"]["ts_us"]
    return micros / 1_000_000


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=2000.0, help="transactions a second (default: 2000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--every", type=float, default=10.0, help="seconds of a line (default: 10)")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        write(given.part[1], given.rate, given.seconds) if given.part[0] == "write" else follow(*given.part[1:])
        return 0
    server = Postgres()
    try:
        server.start()
        with tempfile.TemporaryDirectory(prefix="windrow-cdc-") as folder:
            return measure(server.create_database("shop"), Path(folder) / "log", given)
    finally:
        server.remove()


def measure(url: str, log: Path, given: argparse.Namespace) -> int:
    """Run the parts, print what is seen; return 1 if the log does not make the table."""
    own = [sys.executable, __file__, "--rate", str(given.rate), "--seconds", str(given.seconds), "--part"]
    with psycopg.connect(url, autocommit=True) as sql:
        sql.execute("CREATE TABLE orders (id bigint PRIMARY KEY, status text, amount numeric(12,2), customer text)")
        rows = "SELECT n, 'new', 1, 'customer ' || n %% 100 FROM generate_series(1, %s) n"
        sql.execute(f"INSERT INTO orders {rows}".encode(), (ROWS,))
    table = FollowedTables(PostgresCdcSource(url, "orders", LogSource(str(log))))
    table.update()
    file = log / "partition-0.jsonl"
    print("seconds  changes/s  ms since the last line: p50  p99  max  slot bytes (max)  processor  resident MB")
    with (
        subprocess.Popen([*own, "follow", url, str(log)], stdout=subprocess.PIPE, text=True) as follower,
        subprocess.Popen([*own, "write", url], stdout=subprocess.PIPE, text=True) as writer,
    ):
        intervals = watch(follower, writer, file, given.every)
        follower.terminate()
        said = json.loads(writer.stdout.read() if writer.stdout else "{}")
    table.update()
    delays = sorted(one for interval in intervals for one in interval.delays)
    changes = sum(1 for _ in file.open("rb")) - ROWS
    print(
        f"{said['transactions']:,} transactions, {changes:,} changes; from commit to log p50 "
        f"{percentile(delays, 50):.0f} ms, p99 {percentile(delays, 99):.0f} ms, max {delays[-1]:.0f} ms; "
        f"the writer was {said['late']:.1f} s late"
    )
    with psycopg.connect(url) as sql:
        is_whole = replica(file) == dict(sql.execute("SELECT id, amount::text FROM orders").fetchall())
    print("the log makes the table" if is_whole else "THE LOG DOES NOT MAKE THE TABLE")
    return 0 if is_whole else 1


def watch(follower: subprocess.Popen[str], writer: subprocess.Popen[str], file: Path, every: float) -> list[Interval]:
    """Sample until the writer has ended; print a line each `every` seconds."""
    slots: list[int] = []

    def read() -> None:
        slots.extend(json.loads(said)[0] or 0 for said in follower.stdout or ())

    threading.Thread(target=read, daemon=True).start()
    began, at, lines = time.monotonic(), file.stat().st_size, 0
    found = [Interval(0.0, 0, processor(follower.pid))]
    while writer.poll() is None:
        time.sleep(_SAMPLE_SECONDS)
        commit = last_commit(file, at)
        if commit is not None:
            found[-1].delays.append((time.time() - commit) * 1000)
        elapsed = time.monotonic() - began
        if elapsed - found[-1].began >= every and found[-1].delays:
            with file.open("rb") as tail:
                tail.seek(at)
                block = tail.read()
            at, lines = at + len(block), block.count(b"\n")
            found[-1].slot, slots[:] = list(slots), []
            found.append(Interval(elapsed, lines, processor(follower.pid)))
            line(found[-2], found[-1], follower.pid)
    return found


def line(interval: Interval, after: Interval, pid: int) -> None:
    """Print an interval."""
    span, delays = after.began - interval.began, sorted(interval.delays)
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6
    print(
        f"{after.began:7.0f}  {after.lines / span:9.0f}  {percentile(delays, 50):26.0f}  "
        f"{percentile(delays, 99):3.0f}  {delays[-1]:3.0f}  {max(interval.slot, default=0):16,}  "
        f"{(after.processor - interval.processor) / span:9.1%}  {resident:11.0f}",
        flush=True,
    )


def processor(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def replica(file: Path) -> dict[int, str]:
    """Return the rows that a log makes."""
    rows: dict[int, str] = {}
    for text in file.open("rb"):
        record = json.loads(text, parse_float=str, parse_int=str)
        if record["op"] == "d":
            del rows[int(record["before"]["id"])]
        else:
            rows[int(record["after"]["id"])] = record["after"]["amount"]
    return rows


if __name__ == "__main__":
    sys.exit(main())
