"""The clocks of all partitions, as every key group knows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.core.micros import BEFORE_ALL, Micros
from windrow.core.packet import Packet


@dataclass
class Clocks:
    """Each known partition's watermark and next offset, and the low watermark of them all.

    Partitions that were there at the start hold the low watermark back until their first record. One that comes later
    joins with its watermark at the low watermark, as its records cannot be on time for windows that have fired.
    """

    watermarks: dict[int, int] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    now: int | None = None
    idle: set[int] = field(default_factory=set)

    @staticmethod
    def start(partitions: Iterable[int]) -> Clocks:
        """Return the clocks before the first record."""
        return Clocks(dict.fromkeys(partitions, BEFORE_ALL), dict.fromkeys(partitions, 0))

    @property
    def low(self) -> int:
        """The low watermark."""
        return min(self.watermarks.values(), default=BEFORE_ALL)

    @property
    def high(self) -> int:
        """The greatest watermark."""
        return max(self.watermarks.values(), default=BEFORE_ALL)

    def join(self, packets: Iterable[Packet]) -> list[tuple[Packet, int]]:
        """Let in the partitions that were not known; return their packets and the low watermark they begin at."""
        low = self.low
        joined = [(packet, low) for packet in packets if packet.partition not in self.watermarks]
        for packet, _ in joined:
            self.watermarks[packet.partition] = low
        return joined

    def advance(self, packets: Iterable[Packet]) -> None:
        """Move to where the step's records took the partitions."""
        for packet in packets:
            self.watermarks[packet.partition] = max(self.watermarks[packet.partition], packet.watermark)
            self.next[packet.partition] = packet.next

    def tick(self, micros: int) -> int:
        """Take the processing time; return it. It never goes back."""
        self.now = micros if self.now is None else max(self.now, micros)
        return self.now

    def at(self, partitions: pa.ChunkedArray, watermarks: Micros) -> Micros:
        """Return the watermark at each record: what the step's records say, but not below what was known before."""
        # every partition with records is known by now, and there are few
        known = np.array(sorted(self.watermarks.items()), dtype=np.int64).reshape(-1, 2)
        places = np.searchsorted(known[:, 0], partitions.to_numpy())
        reached: Micros = np.maximum(watermarks, known[places, 1])
        return reached

    def encode(self) -> dict[str, Any]:
        """Return plain JSON."""
        partitions = [[p, watermark, self.next.get(p, 0)] for p, watermark in self.watermarks.items()]
        return {"partitions": partitions, "now": self.now, "idle": sorted(self.idle)}

    @staticmethod
    def decode(fields: Any) -> Clocks:  # noqa: ANN401 - plain JSON
        """Read what `encode` returned."""
        rows = fields["partitions"]
        return Clocks(
            watermarks={p: watermark for p, watermark, _ in rows},
            next={p: next_ for p, _, next_ in rows},
            now=fields["now"],
            idle=set(fields["idle"]),
        )
