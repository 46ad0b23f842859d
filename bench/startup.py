"""How long the light commands take: ``PYTHONPATH=. python bench/startup.py``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.pipelines import from_log, into_sqlite, main_job

ROUNDS = 7


def main() -> None:
    """Print the median of some rounds of each."""
    text = main_job(from_log("data/spend"), into_sqlite("spend.db", "user_spend_5m"), emit="lateness: 1h")
    windrow = str(Path(sys.executable).with_name("windrow"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(text, encoding="utf-8")
        for arguments in (["--help"], ["check", str(file)], ["explain", str(file)]):
            seconds = []
            for _ in range(ROUNDS):
                began = time.monotonic()
                subprocess.run([windrow, *arguments], check=True, stdout=subprocess.DEVNULL)
                seconds.append(time.monotonic() - began)
            print(f"windrow {arguments[0]:8} median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
