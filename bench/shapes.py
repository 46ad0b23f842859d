"""What the shape of a window costs, over Kafka to a sink that drops all: ``python bench/shapes.py``.

Hopping windows beside tumbling ones as long as the hop, where each of 10,000 users has some events in each minute;
sessions beside tumbling windows on the main job's log.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

THROUGHPUT = Path(__file__).with_name("throughput.py")
SHAPES = (
    ("2", ("windrow:{tumbling: 1m}", "windrow:{hopping: {size: 1h, slide: 1m}}")),
    ("240", ("windrow:{tumbling: 5m}", "windrow:{session: 5m}", "windrow:{session: 30m}")),
)


def main() -> None:
    """Measure each pair (arguments go to ``bench/throughput.py``)."""
    for hours, engines in SHAPES:
        command = [sys.executable, str(THROUGHPUT), *sys.argv[1:], "--hours", hours, "--engines", *engines]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
