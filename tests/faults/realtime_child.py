"""A process that runs the partitions of a pipeline in real time, as a task of Spark does, until it is killed.

``python -m tests.faults.realtime_child SERVERS TOPIC NAME KIND RUN``; it exits with 3 if it was taken over.
"""

from __future__ import annotations

import sys

from tests.runtime.realtime_jobs import PIPELINES, open_jobs

from windrow.runtime.realtime import partition
from windrow.runtime.realtime.supervise import TakenOverError, serve

TAKEN_OVER = 3


def main() -> None:
    """Run."""
    servers, topic, name, kind, run = sys.argv[1:]
    # many checkpoints, and most of them begun again before they are whole
    partition._CHECKPOINT_EVERY, partition._CHECKPOINT_BYTES = 0.2, 2000  # noqa: SLF001
    try:
        serve(open_jobs(PIPELINES[kind](servers, topic, name), run), lambda: False)
    except TakenOverError:
        sys.exit(TAKEN_OVER)


if __name__ == "__main__":
    main()
