"""What the script of an engine is told of a query of Nexmark: of the standard library, as it runs in each environment.

A script tells READY and DONE as those of the main job do (`bench.peers.job`).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NexmarkJob:
    """A query (``q4``) over the topics TOPIC-persons, TOPIC-auctions and TOPIC-bids, to their ends.

    `folder` is where state may lie, `step` how many records a micro-batch takes. Results are dropped, or with `rows`
    written into the folder: windrow's into nexmark.db, Flink's final rows into rows.jsonl, as objects by column.
    """

    query: str
    servers: str
    topic: str
    folder: Path
    step: int
    rows: bool

    @property
    def command(self) -> list[str]:
        """The arguments of the script."""
        words = [self.query, self.servers, self.topic, str(self.folder), "--step", str(self.step)]
        return [*words, "--rows"] if self.rows else words

    @staticmethod
    def told() -> NexmarkJob:
        """Return what this script was told by its arguments."""
        parser = argparse.ArgumentParser()
        parser.add_argument("query")
        parser.add_argument("servers")
        parser.add_argument("topic")
        parser.add_argument("folder", type=Path)
        parser.add_argument("--step", type=int, default=1_000_000)
        parser.add_argument("--rows", action="store_true")
        return NexmarkJob(**vars(parser.parse_args()))
