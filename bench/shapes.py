"""What the shape of a window costs, over Kafka to a sink that drops all: ``python bench/shapes.py``.

Hopping windows beside tumbling ones as long as the hop, where each of 10,000 users has some events in each minute;
sessions beside tumbling windows on the main job's log.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMPARE = Path(__file__).with_name("compare.py")
SHAPES = (
    ("2", ("stream:{tumbling: 1m}", "stream:{hopping: {size: 1h, slide: 1m}}")),
    ("240", ("stream:{tumbling: 5m}", "stream:{session: 5m}", "stream:{session: 30m}")),
)
ONLY = ("--sinks", "none", "--no-check", "--no-out")


def main() -> None:
    """Measure each pair (arguments go to ``bench/compare.py``)."""
    for hours, engines in SHAPES:
        command = [sys.executable, str(COMPARE), *sys.argv[1:], *ONLY, "--hours", hours, "--engines", *engines]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
