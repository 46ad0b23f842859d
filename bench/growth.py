"""How the cost of an event and of a window's row grows: ``python bench/growth.py``.

Around a base, the main job from a Kafka topic to a sink that drops all, one thing is varied at a time. Each point is
``bench/growth_point.py`` in a process of its own, warmed up; its figure is the median of its runs. The base is measured
anew before each thing and at the end, so that a drift of the machine is seen, and each thing is held to the median of
all of them. Figures go to a file of JSON as they come; at the end there is a table, and a verdict on each thing: flat
within 20 % of the base, or by which law it grows. ``--report FILE`` writes the figures and pictures of
docs/performance.md from such a file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench.growth_report import PAGE, PICTURES, page, picture, table
from bench.growth_results import BASE, THINGS, Growth, Measured, Point

from windrow.testing.servers.kafka import Kafka
from windrow.tools.generate import LogSpec, write_kafka

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
_HOUR = 3_600_000_000
_DAYS = 10
_POINT = Path(__file__).with_name("growth_point.py")


class Topics:
    """Makes a topic for each log, when it is first asked for."""

    def __init__(self, broker: Kafka, events: int) -> None:
        self._broker = broker
        self._events = events
        self._made: dict[LogSpec, str] = {}

    def of(self, point: Point) -> str:
        """Return the topic of a point's log."""
        spec = LogSpec(
            events=round(self._events * point.times),
            users=point.users,
            partitions=point.partitions,
            duration=_DAYS * 24 * _HOUR,
            malformed_share=0,
            hot_key_share=point.hot,
        )
        if spec not in self._made:
            name = f"spend-{len(self._made)}"
            # event times are in the past: the topic must not let them go
            self._broker.create_topic(name, spec.partitions, {"retention.ms": "-1"})
            write_kafka(spec, self._broker.servers, name)
            self._made[spec] = name
        return self._made[spec]


def measure(point: Point, topics: Topics, servers: str, step: int, runs: int) -> Measured:
    """Measure one point in a process of its own, which leads a session, so that its processes are told from ours."""
    # a long log is warmed up on the base's
    warm = topics.of(point if point.times <= 1 else replace(point, times=1.0))
    command = [sys.executable, str(_POINT), "--servers", servers, "--topic", topics.of(point), "--warm", warm]
    command += ["--window", point.window, "--lateness", point.lateness, "--salt", str(point.salt)]
    command += ["--step", str(step), "--runs", str(runs)]
    # it has a session of its own, and yet is not to outlive this process; Java ends with it
    setpriv = shutil.which("setpriv")
    command = [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, start_new_session=True)
    return Measured.of(point, json.loads(ran.stdout.splitlines()[-1]))


def grow(given: argparse.Namespace) -> Growth:
    """Measure all points of the things that are asked for."""
    machine = f"{os.cpu_count()} cores, {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >> 30} GiB"
    found = Growth(datetime.now(UTC).strftime("%Y-%m-%d"), machine, given.events, given.step, given.runs, [])

    def take(point: Point) -> None:
        try:
            one = measure(point, topics, broker.servers, given.step, given.runs)
        except subprocess.CalledProcessError as exc:  # it may want more memory than there is
            if point == BASE:
                raise
            found.failed.append(f"{point.thing} {point.value} (exit code {exc.returncode})")
            print(f"{point.thing:11} {point.value:>18}  failed", flush=True)
        else:
            found.measured.append(one)
            print(f"{point.thing:11} {point.value:>18}  {one.told}", flush=True)
        found.save(given.out)

    with tempfile.TemporaryDirectory(prefix="windrow-kafka-") as folder:
        broker = Kafka(Path(folder))
        broker.start()
        try:
            topics = Topics(broker, given.events)
            for thing in given.things:
                take(BASE)
                for point in THINGS[thing].points:
                    take(point)
            take(BASE)
        finally:
            broker.stop()
    return found


def write_page(found: Growth) -> None:
    """Write the pictures, and the part of the page between its marks."""
    for name in found.things:
        (ROOT / PICTURES.format(name)).write_text(picture(found, name), encoding="utf-8")
    path = ROOT / PAGE
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{page(found)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> int:
    """Measure, and print the table; return 1 if a curve is neither flat nor by a law, or the state misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--things", nargs="+", choices=THINGS, default=list(THINGS), metavar="THING", help=" ".join(THINGS)
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="of the base")
    parser.add_argument("--step", type=int, default=500_000, help="records a step, at the most")
    parser.add_argument("--runs", type=int, default=3, help="of each point")
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / f"growth-{today}.json")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing: write the page from this file")
    given = parser.parse_args()
    if given.report is not None:
        write_page(Growth.load(given.report))
        return 0
    found = grow(given)
    print("", *table(found), "", *found.verdicts(), sep="\n")
    return 0 if found.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
