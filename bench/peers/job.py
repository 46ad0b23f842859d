"""What the script of an engine is told, and what it tells: of the standard library, as it runs in each environment."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

READY, DONE = "@ready", "@done"
"""Lines of the script's output: from here on it counts, and all output is written."""

TABLE = "spend"
TABLE_ONLY = "-table"
"""What the names of engines end with that write no changelog beside it."""

WINDOW_SECONDS, DELAY_SECONDS = 300, 600


@dataclass(frozen=True)
class Job:
    """What to run: sums and counts of a topic's purchases by user and five minutes, ten minutes out of order at most.

    `events` is how many records the topic holds, `folder` where state may lie. Results are dropped, or go to `postgres`
    (the address of a database), or exactly once to the topic `results` at the same brokers, or with windrow to a `lake`
    in the folder ("delta" or "parquet"). `step` is how many records a micro-batch takes, `window` windrow's window.
    """

    engine: str
    servers: str
    topic: str
    events: int
    folder: Path
    postgres: str | None
    results: str | None
    lake: str | None
    step: int
    window: str

    @property
    def jdbc(self) -> tuple[str, str]:
        """The database's address as Java's drivers take it, and the user."""
        parts = urlsplit(self.postgres or "")
        return f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}", parts.username or ""


def command(job: Job) -> list[str]:
    """Return the arguments of the script."""
    words = [job.engine, job.servers, job.topic, str(job.events), str(job.folder)]
    words += ["--step", str(job.step), "--window", job.window]
    words += [] if job.results is None else ["--results", job.results]
    words += [] if job.lake is None else ["--lake", job.lake]
    return words if job.postgres is None else [*words, "--postgres", job.postgres]


def told(words: list[str] | None = None) -> Job:
    """Return what this script was told by its arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("events", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--postgres")
    parser.add_argument("--results")
    parser.add_argument("--lake")
    parser.add_argument("--step", type=int, default=1_000_000)
    parser.add_argument("--window", default="{tumbling: 5m}")
    return Job(**vars(parser.parse_args(words)))


def tell(line: str) -> None:
    """Say that the script is ready, or done."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def spread(engine: str, processes: int, work: Callable[..., None], *given: object) -> None:
    """Be ready; run `work(number, *given)` in so many forked processes at once, until all have ended; and be done.

    Exit with an error that names the engine if one of them failed.
    """
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=work, args=(number, *given)) for number in range(processes)]
    tell(READY)
    for process in started:
        process.start()
    for process in started:
        process.join()
    if any(process.exitcode for process in started):
        sys.exit(f"RuntimeError: a process of {engine} failed")
    tell(DONE)
