"""A cluster of two workers of one core beside one machine of two: ``python bench/cluster.py``.

The main job from an embedded log into SQLite to its end, and live from Kafka, on ``local[2]`` and on a standalone
cluster on loopback (``tests/servers/cluster.py``), in turn. A cluster's state is in 8 partitions by default; the rows
with 2 have as many as the local run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from bench.pipelines import from_log, into_sqlite, main_job
from tests.servers.cluster import Cluster

from windrow.tools.generate import LogSpec, write_log

ROOT = Path(__file__).parents[1]
TWO = ["--conf", "spark.sql.shuffle.partitions=2"]


def throughput(cluster: Cluster, number: int, options: list[str]) -> float:
    """Return the events a second of a run to the end of the log."""
    folder = cluster.private / f"run-{number}"
    folder.mkdir()
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(main_job(from_log(cluster.shared / "log"), into_sqlite(folder / "spend.db", "spend")))
    words = ["--until-end", "--json", "--checkpoint", str(cluster.shared / f"checkpoint-{number}"), *options]
    command = [sys.executable, "-m", "windrow", "run", str(pipeline), *words]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    return float(json.loads(ran.stdout)["events_per_second"])


def live(cluster: Cluster, options: list[str]) -> str:
    """Return what `bench/live.py` prints."""
    command = [sys.executable, "bench/live.py", "--folder", str(cluster.shared), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def main() -> None:
    """Measure, and print each run and the ratios of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    cluster = Cluster()
    try:
        cluster.start()
        write_log(LogSpec(events=arguments.events, partitions=4), cluster.shared / "log")
        kinds = {
            "local[2]": ["--master", "local[2]"],
            "cluster": cluster.options,
            "cluster, 2 state partitions": [*cluster.options, *TWO],
        }
        rates: defaultdict[str, list[float]] = defaultdict(list)
        for number in range(arguments.rounds):
            for place, (name, options) in enumerate(kinds.items()):
                rates[name].append(throughput(cluster, 10 * number + place, options))
                print(f"round {number + 1}, {name}: {rates[name][-1]:,.0f} events/s", flush=True)
                print(f"round {number + 1}, {name}: {live(cluster, options)}", flush=True)
        base = statistics.median(rates["local[2]"])
        for name, found in rates.items():
            print(f"{name}: {statistics.median(found) / base:.2f} of local[2]")
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
