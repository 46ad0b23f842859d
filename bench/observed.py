"""What metrics and history cost a run: ``python bench/observed.py``.

Runs the main job on the stream host over an embedded log, to no sink, in pairs and in turns, each in a process of its
own: once as it is, and once with its metrics on a port, which are scraped each second, and with its history. Spark is
started before the clock. For each pair it prints the throughput of both and their ratio, by the clock and by the
processors' time (of Python and Java together), which other work on the machine changes less; and how much of that time
the thread of the history and the pages of the scrapes took. The goal is a cost of at most 2 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import urlopen

from bench.pipelines import from_log, main_job
from bench.replay import processors

from windrow.tools.generate import LogSpec, write_log

GOAL = 0.02
_HOURS = 48
_SCRAPE = 1.0
"""Seconds between two scrapes."""
_WRITTEN = 1.5
"""Seconds after which the history has all that was reported; they are not counted."""


@dataclass(frozen=True)
class Took:
    """Seconds of a run by the clock and of processors' time; in them those of the history and of the pages."""

    clock: float
    processors: float
    history: float = 0.0
    pages: float = 0.0
    scrapes: int = 0


def one(log: str, folder: Path, step: int, *, is_observed: bool) -> Took:
    """Run the job in this process; if it is observed, print the port of the metrics first."""
    from bench.discard import DiscardSink  # noqa: PLC0415

    from windrow.authoring.pipeline_file import parse_pipeline  # noqa: PLC0415
    from windrow.cli.listen import RunServer  # noqa: PLC0415 - only the process that measures loads Spark
    from windrow.runtime.run import RunSettings  # noqa: PLC0415
    from windrow.runtime.spark.session import spark_session  # noqa: PLC0415
    from windrow.runtime.stream.run import StreamRun  # noqa: PLC0415
    from windrow.telemetry.history import HistoryWriter, RunRecord, history_of  # noqa: PLC0415
    from windrow.telemetry.reports import Observer, OnStep  # noqa: PLC0415

    spark_session(log=folder / "spark.log")
    pipeline = parse_pipeline(main_job(from_log(log)), "bench/observed.py")
    checkpoint = folder / "checkpoint"
    settings = RunSettings(checkpoint, until_end=True, max_records=step)
    on_step: OnStep = lambda _: None  # noqa: E731 - a step that nobody looks at
    pages: list[float] = []
    with ExitStack() as held:
        if is_observed:
            record = RunRecord.here(pipeline.name, "stream")
            history = held.enter_context(HistoryWriter(history_of(checkpoint), record, print))
            server = held.enter_context(RunServer("127.0.0.1", 0, pipeline.name, 120.0))
            server.metrics.page = _timed(server.metrics.page, pages)  # type: ignore[assignment, method-assign]
            observer = Observer.all_of([server.observer, history.observer])
            on_step = observer.on_step
            settings = RunSettings(
                checkpoint,
                until_end=True,
                max_records=step,
                on_ready=observer.on_ready,
                on_lag=observer.on_lag,
            )
            print(server.port, flush=True)
        began, used = time.monotonic(), processors()
        StreamRun(pipeline, DiscardSink(), settings).run(on_step)
        clock, used = time.monotonic() - began, processors() - used
        if not is_observed:
            return Took(clock, used)
        time.sleep(_WRITTEN)
        return Took(clock, used, _seconds_of("windrow-history"), sum(pages), len(pages))


def _timed(page: Callable[[str], tuple[bytes, str]], spent: list[float]) -> Callable[[str], tuple[bytes, str]]:
    """Return a function that makes a page, and notes the processor's time that it takes."""

    def make(accept: str) -> tuple[bytes, str]:
        began = time.thread_time()
        made = page(accept)
        spent.append(time.thread_time() - began)
        return made

    return make


def _seconds_of(name: str) -> float:
    """Return the processor's time that a thread has taken."""
    (thread,) = (one for one in threading.enumerate() if one.name == name)
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))


@contextmanager
def _scraping(port: int) -> Iterator[None]:
    """Ask for the metrics each second."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(_SCRAPE):
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                answer.read()

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _run(log: Path, step: int, *, is_observed: bool) -> Took:
    """Run the job in a process of its own, and scrape it if it is observed."""
    with tempfile.TemporaryDirectory(prefix="windrow-observed-") as folder, ExitStack() as held:
        command = [sys.executable, __file__, "--one", "observed" if is_observed else "bare", str(log), folder]
        child = held.enter_context(subprocess.Popen([*command, "--step", str(step)], stdout=subprocess.PIPE, text=True))
        if child.stdout is None:
            raise RuntimeError
        if is_observed:
            held.enter_context(_scraping(int(child.stdout.readline())))
        said = child.stdout.read()
        if child.wait():
            message = f"{' '.join(command)} failed"
            raise RuntimeError(message)
        return Took(**json.loads(said.splitlines()[-1]))


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("HOW", "LOG", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--step", type=int, default=100_000, help="records a step, at the most")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    if given.one:
        how, log, folder = given.one
        print(json.dumps(asdict(one(log, Path(folder), given.step, is_observed=how == "observed"))))
        return
    with tempfile.TemporaryDirectory(prefix="windrow-observed-") as folder:
        log = Path(folder) / "log"
        write_log(LogSpec(events=given.events, duration=_HOURS * 3_600_000_000, partitions=given.partitions), log)
        pairs: list[tuple[Took, Took]] = []
        for number in range(given.pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            took = {is_observed: _run(log, given.step, is_observed=is_observed) for is_observed in order}
            bare, observed = took[False], took[True]
            pairs.append((bare, observed))
            print(
                f"pair {number + 1}: {given.events / bare.clock:,.0f} and, observed, "
                f"{given.events / observed.clock:,.0f} events/s: {bare.clock / observed.clock:.3f}; processors "
                f"{bare.processors:.1f} and {observed.processors:.1f} s: {bare.processors / observed.processors:.3f}; "
                f"history {1000 * observed.history:.0f} ms, {observed.scrapes} pages {1000 * observed.pages:.0f} ms: "
                f"{(observed.history + observed.pages) / observed.processors:.2%} of that",
                flush=True,
            )
    clock = statistics.median(observed.clock / bare.clock for bare, observed in pairs) - 1
    used = statistics.median(observed.processors / bare.processors for bare, observed in pairs) - 1
    threads = statistics.median((one.history + one.pages) / one.processors for _, one in pairs)
    print(
        f"metrics, a scrape a second, and the history cost {clock:.1%} of the throughput (processors: {used:.1%}; "
        f"their threads: {threads:.2%}), in the median of {len(pairs)} pairs; the goal is {GOAL:.0%}"
    )


if __name__ == "__main__":
    main()
