"""windrow beside the engines that one would take instead, on one log and the same cores: ``python bench/compare.py``.

Starts a broker and a PostgreSQL server, fills a topic (10,000 users, 4 partitions, keyed by user, ten days of event
time; a shorter one for the slow engines), and runs the engines of ``bench/peers`` in turn, round by round, each in a
process of its own, to no sink, into PostgreSQL, with ``--sinks kafka`` exactly once into a topic, and windrow with
``delta`` and ``parquet`` into a folder. An engine ``stream:{session: 5m}`` is windrow with that window.

Writes what it found to ``bench/results``; ``--report FILE...`` writes the page and the pictures from such files,
and from those of ``bench/joins.py`` and ``bench/realtime.py``.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain, count
from pathlib import Path
from typing import get_args

from bench.peers import report
from bench.peers.engines import ENGINES, Engine, Sink, engine
from bench.peers.measure import ROOT, Servers, answer, run, servers
from bench.peers.picture import more_picture, picture
from bench.peers.results import Results, Run

from windrow.runtime.spark.jars import java

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = {"benchmarks": picture, "benchmarks-joins-alerts": more_picture}
"""In docs/images."""
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
CHECKED = 50_000
"""Events of the log without late records, on which the answers are compared."""


def compare(arguments: argparse.Namespace) -> Results:
    """Check the answers, and measure round by round."""
    engines = [engine(name) for name in arguments.engines]
    results = _results(arguments)
    with servers(arguments.hours, arguments.step, arguments.limit) as on:
        if not arguments.no_check:
            _check(engines, on, results, arguments)
        for number in range(1, arguments.rounds + 1):
            for sink in arguments.sinks:
                for one in engines:
                    if sink in one.sinks:
                        topic = on.topic(arguments.slow_events if one.slow else arguments.events)
                        ran = run(on, one, sink, topic, number)
                        results.runs.append(ran)
                        print(f"round {number}, {sink}: {one.name} {_told(ran)}", flush=True)
                        _save(results, arguments)
    return results


def _check(engines: list[Engine], on: Servers, results: Results, arguments: argparse.Namespace) -> None:
    topic = on.topic(CHECKED, late_share=0)
    peers = [one for one in engines if "postgres" in one.sinks and one.kind != "windrow"]
    for one in [engine("stream"), *peers, *([engine("batch")] if "batch" in arguments.engines else [])]:
        results.answers.append(answer(on, one, topic))
        print(
            f"the answer of {results.answers[-1].engine} is {results.answers[-1].beside(results.answers[0])}",
            flush=True,
        )


def _told(ran: Run) -> str:
    if ran.error:
        return f"failed: {ran.error}"
    return (
        f"{ran.seconds:.1f} s, {ran.rate:,.0f} events/s, {ran.memory:,.0f} MiB, {ran.cpu_per_million:.1f} CPU s/million"
    )


def _save(results: Results, arguments: argparse.Namespace) -> None:
    if arguments.out is not None:
        results.save(arguments.out)


def _results(arguments: argparse.Namespace) -> Results:
    options = {name: str(getattr(arguments, name)) for name in ("events", "slow_events", "rounds", "hours", "step")}
    return Results(today(), machine(), versions(), options)


def today() -> str:
    """Return the date, by UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def machine() -> dict[str, str]:
    """Say what this machine is."""
    cpus = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": f"{os.cpu_count()} cores",
        "cpu": cpus[0] if cpus else platform.machine(),
        "memory": f"{pages * size / (1 << 30):.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Return the versions of what is measured: windrow's commit, Spark, and the engines' packages."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    said = subprocess.run([str(java()), "-version"], capture_output=True, text=True, check=False).stderr
    found = {"windrow": commit.stdout.strip() or version("windrow"), "Spark": version("pyspark")}
    for folder in dict.fromkeys(one.script.parent for one in ENGINES):
        for line in _lines(folder / "requirements.txt"):
            name, _, number = line.partition("==")
            found[name] = number
    return {**found, "Python": platform.python_version(), "Java": said.split('"')[1] if '"' in said else "unknown"}


def _new_file() -> Path:
    """Return a file of today that is not there yet."""
    date = today()
    names = chain([date], (f"{date}-{number}" for number in count(2)))
    return next(file for name in names if not (file := ROOT / "bench" / "results" / f"{name}.json").exists())


def _lines(file: str | Path) -> list[str]:
    return Path(file).read_text().splitlines() if Path(file).exists() else []


def write_page(given: Sequence[Results]) -> None:
    """Write the pictures, and the part of the page between its marks."""
    parts = apart(given)
    results, first = Results.of(parts), parts[0]
    others = [
        one for one in parts if (one.date, one.machine, one.versions) != (first.date, first.machine, first.versions)
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{report.page(results, others)}\n{END}{after}", encoding="utf-8")
    for name, drawn in PICTURES.items():
        if f"images/{name}.svg" in PAGE.read_text(encoding="utf-8"):
            (ROOT / "docs" / "images" / f"{name}.svg").write_text(drawn(results), encoding="utf-8")


def apart(parts: Sequence[Results]) -> list[Results]:
    """Leave out runs of an engine into a sink that an earlier part has: rounds of several days are not one figure."""
    kept: list[Results] = []
    for part in parts:
        earlier = {(run.engine, run.sink) for one in kept for run in one.runs}
        kept.append(replace(part, runs=[run for run in part.runs if (run.engine, run.sink) not in earlier]))
    return kept


def main() -> int:
    """Measure, and print the tables; return 1 if an engine of windrow's failed or answered otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [one.name for one in ENGINES]
    parser.add_argument("--engines", nargs="+", default=names, metavar="ENGINE", help=f"of: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--slow-events", type=int, default=2_000_000, help="of the engines in Python")
    parser.add_argument("--sinks", nargs="+", choices=get_args(Sink), default=["none", "postgres"])
    parser.add_argument("--hours", type=float, default=240, help="how much event time the events span")
    parser.add_argument(
        "--step",
        type=int,
        default=2_000_000,
        help="records a step of windrow and a micro-batch of PySpark, at the most",
    )
    parser.add_argument("--limit", type=float, default=1800, help="seconds that a run may take")
    parser.add_argument("--no-check", action="store_true", help="do not compare the answers first")
    parser.add_argument("--out", type=Path, default=_new_file(), help="(default: %(default)s)")
    parser.add_argument("--no-out", dest="out", action="store_const", const=None, help="write no file")
    parser.add_argument("--report", type=Path, nargs="+", metavar="FILE", help="only write the page, from these files")
    arguments = parser.parse_args()
    if arguments.report is not None:
        write_page(list(map(Results.load, arguments.report)))
        return 0
    try:
        list(map(engine, arguments.engines))
    except KeyError as exc:
        parser.error(f"there is no engine {exc}; there are {', '.join(names)}")
    results = compare(arguments)
    _save(results, arguments)
    for sink in arguments.sinks:
        print("", *report.table(results, sink), sep="\n")
    judged = [goal for goal in report.goals(results) if goal.met is not None]
    print("", *report.ratios(results), "", *judged, sep="\n")
    wrong = [run for run in results.runs if run.error and engine(run.engine).kind != "peer"]
    return 1 if wrong or any("ANOTHER" in line for line in report.answers(results)) else 0


if __name__ == "__main__":
    sys.exit(main())
