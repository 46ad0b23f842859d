"""The arguments and the result of an engine's script in a comparison of joins: the standard library alone.

A script writes READY and DONE as those of the main job do (`bench.peers.job`), and before DONE what it found.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

LOGS = {
    "interval": ("orders", "payments"),
    "interval-left": ("orders", "payments"),
    "lookup": ("rates", "sales"),
    "static": ("rates", "sales"),
    "tables": ("prices", "stocks"),
}
"""The logs of each case. A record is a JSON object; its first field is the key of the record in its topic."""

CHECKED = {
    "interval": ("amount", "paid"),
    "interval-left": ("amount", "paid"),
    "lookup": ("amount", "rate"),
    "static": ("amount", "rate"),
    "tables": ("stock", "price"),
}
"""Of each case the columns, one from each side, whose product is summed: where there is no partner it counts as -1."""

TOLERANCE_MINUTES = 11
"""What the peers wait for late records: as long as windrow takes them (its delay of 1m and its lateness of 10m)."""


@dataclass(frozen=True)
class JoinJob:
    """A case over its logs, to their ends: topics of these names, or without `servers` embedded logs in `logs`.

    `folder` is where state may lie, `step` how many records of all logs a micro-batch takes.
    """

    case: str
    servers: str
    logs: Path
    folder: Path
    step: int

    @property
    def command(self) -> list[str]:
        """The arguments of the script."""
        return [self.case, self.servers, str(self.logs), str(self.folder), str(self.step)]

    @staticmethod
    def told() -> JoinJob:
        """Return the job in this script's arguments."""
        parser = argparse.ArgumentParser()
        parser.add_argument("case", choices=LOGS)
        parser.add_argument("servers")
        parser.add_argument("logs", type=Path)
        parser.add_argument("folder", type=Path)
        parser.add_argument("step", type=int)
        return JoinJob(**vars(parser.parse_args()))

    @property
    def product(self) -> str:
        """What is summed over the rows, in SQL."""
        left, right = CHECKED[self.case]
        return f"{left} * COALESCE({right}, -1)"

    def write_found(self, rows: int, checksum: int) -> None:
        """Write the number of rows and the sum of the products."""
        (self.folder / "found.json").write_text(json.dumps([rows, checksum]))

    def found(self) -> tuple[int, int]:
        """Return what was written."""
        rows, checksum = json.loads((self.folder / "found.json").read_text())
        return rows, checksum
