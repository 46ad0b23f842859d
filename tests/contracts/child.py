"""A process that commits steps until it is killed: `child.py SINK RUN STEPS`, three pickles.

It says "N" after each commit. The step that follows stops when its clocks are asked for, says "writing", and
goes on when it is told a line.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from windrow.engine.changelog import StepOutput


@dataclass(frozen=True)
class Halting(StepOutput):
    """A step that waits for a line before it gives its clocks."""

    def __getattribute__(self, name: str) -> pa.Table:
        if name == "clocks":
            print("writing", flush=True)  # noqa: T201 - the parent reads it
            sys.stdin.readline()
        return super().__getattribute__(name)


def main() -> None:
    sink, run, steps = (pickle.loads(Path(path).read_bytes()) for path in sys.argv[1:4])  # noqa: S301 - our own
    last = sink.open(run)
    for epoch in range(0 if last is None else last + 1, len(steps)):
        sink.commit(epoch, steps[epoch])
        print(epoch, flush=True)  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    main()
