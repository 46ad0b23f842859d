"""What browsers on the dashboard cost a run: ``python bench/ten_browsers.py``.

Runs the main job on the stream host over an embedded log, to no sink, with its history, in pairs and in turns, while
`windrow dashboard` shows it: once to nobody, and once to ten clients. A client does what the page does: it holds the
stream of events, and asks for the overview and for its own view whenever that says that there is something new, with
the ETag of the answer before. It draws nothing: a browser is mostly on another machine. Run, dashboard and clients are
processes of their own. By default the run takes all it can get, so that it has to share its cores with the page; with
`--every` it takes a step so often, as a live run does. For each pair it prints the throughput of both, the medians of
the time of their steps, and what the dashboard took of the processors. The goal is a cost of at most 2 %.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from bench.pipelines import from_log, main_job
from bench.replay import processors

from windrow.tools.generate import LogSpec, write_log

GOAL = 0.02
BROWSERS = 10
_VIEWS = ("overview", "watermark", "time", "lateness", "throughput", "windows", "steps", "graph")
_HOURS = 48


@dataclass(frozen=True)
class Took:
    """Seconds of a run: by the clock, of processors' time, and of each step but the first, which starts Spark's work.

    `page` is the processors' time of the dashboard, `answers` are those that its clients were given with news.
    """

    clock: float
    processors: float
    steps: list[float] = field(repr=False)
    page: float = 0.0
    answers: int = 0


def one(file: str, checkpoint: Path, events: int, step: int, every: float) -> Took:
    """Run the job in this process."""
    from bench.discard import DiscardSink  # noqa: PLC0415

    from windrow.authoring.load import open_pipeline  # noqa: PLC0415
    from windrow.runtime.run import RunSettings  # noqa: PLC0415
    from windrow.runtime.spark.session import spark_session  # noqa: PLC0415 - only the process that measures loads Spark
    from windrow.runtime.stream.run import StreamRun  # noqa: PLC0415
    from windrow.telemetry.history import HistoryWriter, RunRecord, history_of  # noqa: PLC0415
    from windrow.telemetry.reports import StepReport  # noqa: PLC0415

    spark_session(log=checkpoint.with_name("spark.log"))
    pipeline = open_pipeline(file).runnable()
    read, took = 0, list[float]()
    with HistoryWriter(history_of(checkpoint), RunRecord.here(pipeline.name, "stream"), print) as history:
        settings = RunSettings(
            checkpoint,
            until_end=not every,
            max_records=step,
            every=round(every * 1_000_000) or 1_000_000,
            on_ready=history.on_ready,
            on_lag=history.on_lag,
        )
        run = StreamRun(pipeline, DiscardSink(), settings)

        def on_step(report: StepReport) -> None:
            nonlocal read
            history.on_step(report)
            read += report.events
            took.append(report.took)
            if every and read >= events:
                run.stop()

        began, used = time.monotonic(), processors()
        run.run(on_step)
        return Took(time.monotonic() - began, processors() - used, took[1:])


class Client:
    """A page that follows a run and shows one view."""

    def __init__(self, port: int, view: str) -> None:
        self._port = port
        self._views = dict.fromkeys(["overview", view])
        self._tags: dict[str, str] = {}
        self.answers = 0
        self._stream = HTTPConnection("127.0.0.1", self._port)
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Close the page."""
        with suppress(OSError):
            self._stream.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join()

    def _follow(self) -> None:
        with closing(self._stream) as stream:
            stream.request("GET", "/events")
            lines = stream.getresponse()
            while line := lines.readline():
                if line.startswith(b"data:"):
                    # the server closes what is idle for some seconds
                    with closing(HTTPConnection("127.0.0.1", self._port)) as connection:
                        for view in self._views:
                            self._ask(connection, view)

    def _ask(self, connection: HTTPConnection, view: str) -> None:
        tag = self._tags.get(view)
        connection.request("GET", f"/api/{view}", headers={} if tag is None else {"If-None-Match": tag})
        answer = connection.getresponse()
        answer.read()
        if answer.status not in {200, 304}:
            message = f"{view} was answered with {answer.status}"
            raise RuntimeError(message)
        self._tags[view] = answer.headers["ETag"]
        self.answers += answer.status == 200  # noqa: PLR2004 - HTTP


@contextmanager
def _dashboard(file: str, checkpoint: Path) -> Iterator[tuple[int, int]]:
    """Serve the run; give the process and the port."""
    command = [sys.executable, "-m", "windrow", "dashboard", file, "--checkpoint", str(checkpoint)]
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, text=True) as child:
        try:
            if child.stdout is None:
                raise RuntimeError
            address = json.loads(child.stdout.readline())["address"]
            port = int(address.rstrip("/").rpartition(":")[2])
            # it loads Arrow for this view, before the clock starts
            with closing(HTTPConnection("127.0.0.1", port)) as connection:
                connection.request("GET", "/api/lateness")
                connection.getresponse().read()
            yield child.pid, port
        finally:
            child.terminate()


def _used(process: int) -> float:
    """Return the processors' time of a process."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _run(file: str, clients: int, given: argparse.Namespace) -> Took:
    """Run the job in a process of its own, while so many clients follow it."""
    with tempfile.TemporaryDirectory(prefix="windrow-browsers-") as folder:
        checkpoint = Path(folder) / "checkpoint"
        with _dashboard(file, checkpoint) as (process, port):
            followers = [Client(port, _VIEWS[number % len(_VIEWS)]) for number in range(clients)]
            before = _used(process)
            command = [sys.executable, __file__, "--one", file, str(checkpoint), "--events", str(given.events)]
            command += ["--step", str(given.step), "--every", str(given.every)]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            page = _used(process) - before
            if not all(one.thread.is_alive() and one.answers for one in followers):
                message = "a client has not followed the run"
                raise RuntimeError(message)
            for follower in followers:
                follower.close()
        return Took(**json.loads(ran.stdout.splitlines()[-1]), page=page, answers=sum(one.answers for one in followers))


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=2, metavar=("FILE", "CHECKPOINT"), help=argparse.SUPPRESS)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--step", type=int, default=50_000, help="records a step, at the most")
    parser.add_argument("--every", type=float, default=0.0, help="seconds between two steps; 0: as fast as it can")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--clients", type=int, default=BROWSERS)
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    if given.one:
        file, checkpoint = given.one
        took = one(file, Path(checkpoint), given.events, given.step, given.every)
        print(json.dumps({name: getattr(took, name) for name in ("clock", "processors", "steps")}))
        return
    with tempfile.TemporaryDirectory(prefix="windrow-browsers-") as folder:
        log, file = Path(folder) / "log", Path(folder) / "spend.yaml"
        write_log(LogSpec(events=given.events, duration=_HOURS * 3_600_000_000, partitions=given.partitions), log)
        file.write_text(main_job(from_log(log)))
        pairs: list[tuple[Took, Took]] = []
        for number in range(given.pairs):
            order = (0, given.clients) if number % 2 == 0 else (given.clients, 0)
            runs = {clients: _run(str(file), clients, given) for clients in order}
            none, shown = runs[0], runs[given.clients]
            pairs.append((none, shown))
            print(
                f"pair {number + 1}: {given.events / none.clock:,.0f} and, with {given.clients} clients, "
                f"{given.events / shown.clock:,.0f} events/s: {none.clock / shown.clock:.3f}; steps of "
                f"{1000 * _median(none):.0f} and {1000 * _median(shown):.0f} ms: {_median(none) / _median(shown):.3f}; "
                f"processors {none.processors:.1f} and {shown.processors:.1f} s, page {none.page:.1f} and "
                f"{shown.page:.1f} s for {shown.answers:,} answers",
                flush=True,
            )
    clock = statistics.median(shown.clock / none.clock for none, shown in pairs) - 1
    used = statistics.median(shown.processors / none.processors for none, shown in pairs) - 1
    steps = statistics.median(_median(shown) / _median(none) for none, shown in pairs) - 1
    print(
        f"{given.clients} clients cost {clock:.1%} of the throughput (processors of the run: {used:.1%}) and "
        f"{steps:.1%} of a step's time, in the median of {len(pairs)} pairs; the goal is {GOAL:.0%}"
    )


def _median(took: Took) -> float:
    return statistics.median(took.steps)


if __name__ == "__main__":
    main()
