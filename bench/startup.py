"""How long light commands and a small run take: ``PYTHONPATH=. python bench/startup.py``.

The preview and the small run read 1,000 events from a log, the run into SQLite. What is run first is the project of
`windrow init`, with 20,000 events, on the memory host. Beside these, Spark's own start: PySpark with its defaults
starts a session and reads the first row of the small log.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.pipelines import from_log, into_sqlite, main_job

from windrow.tools.generate import LogSpec, write_log

ROUNDS = 7
SPARK = """
from pyspark.sql import SparkSession

session = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
assert session.read.json("log/partition-0.jsonl").first() is not None
"""


def main() -> None:
    """Print the median of some rounds of each, taken in turn."""
    text = main_job(from_log("log"), into_sqlite("spend.db", "user_spend_5m"), emit="lateness: 1h")
    windrow = str(Path(sys.executable).with_name("windrow"))
    to_end = ["--until-end", "--fresh"]
    commands = {
        "windrow --help": [windrow, "--help"],
        "windrow check": [windrow, "check", "pipeline.yaml"],
        "windrow explain": [windrow, "explain", "pipeline.yaml"],
        "windrow preview": [windrow, "preview", "pipeline.yaml"],
        "memory host": [windrow, "run", "project/pipeline.yaml", *to_end, "--host", "memory"],
        "windrow run": [windrow, "run", "pipeline.yaml", *to_end],
        "PySpark": [sys.executable, "-c", SPARK],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        write_log(LogSpec(events=1_000, users=100), Path(folder) / "log")
        (Path(folder) / "pipeline.yaml").write_text(text, encoding="utf-8")
        subprocess.run([windrow, "init", "project"], check=True, capture_output=True, cwd=folder)
        # its paths are relative to the folder in which it runs
        (Path(folder) / "project" / "data").rename(Path(folder) / "data")
        for _ in range(ROUNDS):
            for name, command in commands.items():
                began = time.monotonic()
                subprocess.run(command, check=True, capture_output=True, cwd=folder)
                seconds[name].append(time.monotonic() - began)
    for name, taken in seconds.items():
        print(f"{name:15} median {statistics.median(taken):.2f} s, worst {max(taken):.2f} s")


if __name__ == "__main__":
    main()
