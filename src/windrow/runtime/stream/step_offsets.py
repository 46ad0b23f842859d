"""Offsets at which a step ends, as they stand in a checkpoint.

A room of its own, since the process in which Spark plans the steps of a query loads it, and should load little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windrow.connectors.cuts import Offset
from windrow.connectors.source import Loss


@dataclass(frozen=True)
class StepOffsets:
    """Where a step ends, as Spark records it: at an offset of the source, after a number of ends of the input.

    `lost` is added later if the records that follow were lost: the next step reports it.
    """

    at: Offset
    ends: int = 0
    lost: tuple[Loss, ...] = ()

    @staticmethod
    def of(kept: Any) -> StepOffsets:  # noqa: ANN401 - plain JSON
        """Read a note."""
        return StepOffsets(dict(kept["at"]), int(kept["ends"]), tuple(Loss(**one) for one in kept["lost"]))

    def written(self) -> dict[str, Any]:
        """Write it as plain JSON."""
        return {"at": dict(self.at), "ends": self.ends, "lost": [vars(one) for one in self.lost]}
