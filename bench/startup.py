"""How long the light commands take: ``python bench/startup.py``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 7
PIPELINE = """
name: user-spend
source: {log: {path: data/spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m, future: 1h}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
emit: {lateness: 1h}
sink: {sqlite: {path: spend.db, table: user_spend_5m}}
"""


def main() -> None:
    """Print the median of some rounds of each."""
    windrow = str(Path(sys.executable).with_name("windrow"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(PIPELINE, encoding="utf-8")
        for arguments in (["--help"], ["check", str(file)], ["explain", str(file)]):
            seconds = []
            for _ in range(ROUNDS):
                began = time.monotonic()
                subprocess.run([windrow, *arguments], check=True, stdout=subprocess.DEVNULL)
                seconds.append(time.monotonic() - began)
            print(f"windrow {arguments[0]:8} median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
