"""What windrow asks of the kind of source: settings, keys, findings; nothing here loads numpy or Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from windrow.connectors.base import Connector, SourceConnector
from windrow.declare.findings import Finding, error
from windrow.declare.spec import NUMBER, Key, Section
from windrow.model import Source

if TYPE_CHECKING:
    from windrow.client.fluent.streams import Stream


@dataclass(frozen=True)
class RandomWalksSource(Source):
    """Walks of a length from 0, a step of 1 up or down each second from 2026-01-01 on; each is a partition.

    A record is ``{"walk": 0, "t": 1767225601000, "position": -1}``; `t` is in milliseconds.
    """

    seed: int
    walks: int = 4
    steps: int = 1_000
    format: Literal["json"] = "json"
    section: ClassVar[str] = "random_walks"

    @property
    def place(self) -> str:
        """The seed, and how many walks there are."""
        return f"seed {self.seed}, {self.walks} walks of {self.steps} steps"


def random_walks(seed: int, *, walks: int = 4, steps: int = 1_000) -> Stream:
    """Read random walks by seed, each of which is a partition."""
    from windrow.client.fluent.streams import Stream  # noqa: PLC0415 - YAML does without it

    return Stream(RandomWalksSource(seed, walks, steps))


def _findings(source: RandomWalksSource) -> Iterator[Finding]:
    for name in ("walks", "steps"):
        if getattr(source, name) < 1:
            yield error(name, "must be at least 1")


RANDOM_WALKS = Connector(
    SourceConnector(
        (RandomWalksSource,),
        Section(
            "windrow_random_walks.random_walks",
            RandomWalksSource,
            (
                Key("seed", NUMBER, "what the walks are computed from.", required=True, positional=True),
                Key("walks", NUMBER, "the number of walks.", default=RandomWalksSource.walks),
                Key("steps", NUMBER, "the number of steps of each walk.", default=RandomWalksSource.steps),
            ),
        ),
        lambda source: f"{source.walks} random walks by seed {source.seed}, of {source.steps} steps each",
        "random walks by seed, each a partition of its own.",
        dataset=lambda source: ("random-walks", str(source.seed)),
        findings=_findings,
        log="windrow_random_walks.source:RandomWalks",
    )
)
