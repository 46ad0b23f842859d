"""How long the demo's day takes: ``python bench/demo.py``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Run the demo once, and print its own figures and the time of the whole."""
    windrow = str(Path(sys.executable).with_name("windrow"))
    with tempfile.TemporaryDirectory(prefix="windrow-demo-") as folder:
        began = time.monotonic()
        command = [windrow, "demo", "--json", "--folder", str(Path(folder) / "demo")]
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        whole = time.monotonic() - began
    told = json.loads(result.stdout)
    print(f"log -> SQLite: {told['events']:,} events in {told['seconds']:.1f} s after Spark's start")
    for replay in told["replays"]:
        print(f"replay in steps of {replay['max_records']:,}: {replay['seconds']:.1f} s")
    print(f"the same: {told['same']}; the whole demo: {whole:.1f} s")


if __name__ == "__main__":
    main()
