"""The clocks of all partitions, as every key group knows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

import numpy as np
import pyarrow as pa

from windrow.core.adaptive import Lateness, Reached, Stretch, follow
from windrow.core.micros import BEFORE_ALL, Micros
from windrow.core.packet import Packet
from windrow.model import Adaptive, Delay, Punctuated, Watermark

Reason = Literal["joined", "active"]


@dataclass(frozen=True)
class Raised:
    """A partition whose watermark is not below `low` from the offset `first` on; its clock is at `clock` there."""

    partition: int
    first: int
    clock: int
    low: int
    reason: Reason


@dataclass(frozen=True)
class Lost:
    """A partition that goes on at the offset `first`, its clock and watermark there, and what happened."""

    partition: int
    first: int
    clock: int
    watermark: int
    what: str


@dataclass
class Clocks:
    """Each known partition's watermark and next offset, and the low watermark of them all, which never goes back.

    Partitions that were there at the start hold the low watermark back until their first record. One that comes later
    joins with its watermark at the low watermark, as its records cannot be on time for windows that have fired.

    `now` is the last tick, `active` the tick at which a partition last had a record. The `idle` ones do not hold the
    low watermark back. `still` is where time stood when all of them fell silent: the tick, and the low watermark.
    `lateness` is what an adaptive delay depends on, `reached` the greatest event time so far.
    """

    watermarks: dict[int, int] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    low: int = BEFORE_ALL
    now: int | None = None
    active: dict[int, int] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    still: tuple[int, int] | None = None
    lateness: dict[int, Lateness] = field(default_factory=dict)
    reached: int = BEFORE_ALL

    @staticmethod
    def start(partitions: Iterable[int]) -> Clocks:
        """Return the clocks before the first record."""
        return Clocks(dict.fromkeys(partitions, BEFORE_ALL), dict.fromkeys(partitions, 0))

    def clock(self, watermark: Watermark, partition: int) -> int:
        """Return the clock that makes a partition's watermark; a punctuated one is its own clock."""
        value = self.watermarks[partition]
        match watermark:
            case Delay(micros):
                return BEFORE_ALL if value == BEFORE_ALL else value + micros
            case Adaptive():
                return self.lateness[partition].clock if partition in self.lateness else BEFORE_ALL
            case Punctuated():
                return value
            case _:
                assert_never(watermark)

    def tick(self, micros: int) -> int:
        """Take the processing time; return it. It never goes back."""
        self.now = micros if self.now is None else max(self.now, micros)
        for partition in self.watermarks:
            self.active.setdefault(partition, self.now)
        return self.now

    def raise_to_low(self, watermark: Watermark, packets: Iterable[Packet]) -> list[Raised]:
        """Let in the step's partitions that were not known or were idle: they go on from the low watermark."""
        raised = []
        for packet in packets:
            partition = packet.partition
            known = partition in self.watermarks
            if known and partition not in self.idle:
                continue
            self.watermarks[partition] = max(self.watermarks.get(partition, BEFORE_ALL), self.low)
            reason: Reason = "active" if known else "joined"
            raised.append(Raised(partition, packet.first, self.clock(watermark, partition), self.low, reason))
            self.idle.discard(partition)
            self.still = None
        return raised

    def skip(self, watermark: Watermark, packets: Iterable[Packet]) -> list[Lost]:
        """Go on behind records that are gone: what they would have done to the clocks is not known, and not done."""
        lost = []
        for packet in packets:
            partition, at, clock = packet.partition, BEFORE_ALL, BEFORE_ALL
            if partition in self.watermarks:
                at, clock = self.watermarks[partition], self.clock(watermark, partition)
                if not 0 < packet.first <= self.next.get(partition, 0):
                    # nothing of what was read is there: an adaptive delay begins anew, as a replay's does
                    self.lateness.pop(partition, None)
                self.next[partition] = packet.first
            lost.append(Lost(partition, packet.first, clock, at, packet.blob.decode()))
        return lost

    def adapt(self, adaptive: Adaptive, packets: Iterable[Packet], times: Iterable[Packet]) -> dict[int, Reached]:
        """Move the watermarks with an adaptive delay through the step's records; return where that takes them."""
        blobs: dict[int, list[bytes]] = {}
        for packet in times:
            blobs.setdefault(packet.partition, []).append(packet.blob)
        stretches = (
            Stretch(
                partition=packet.partition,
                lateness=self.lateness.get(packet.partition, Lateness.start(adaptive)),
                watermark=self.watermarks[packet.partition],
                times=tuple(blobs.get(packet.partition, ())),
                following=packet.next,
            )
            for packet in packets
        )
        found = follow(adaptive, tuple(stretches))
        for partition, reached in found.items():
            self.lateness[partition] = reached.lateness
            self.watermarks[partition] = reached.watermark
        return found

    def advance(self, packets: Iterable[Packet]) -> None:
        """Move to where the step's records took the partitions."""
        for packet in packets:
            self.watermarks[packet.partition] = max(self.watermarks[packet.partition], packet.watermark)
            self.next[packet.partition] = packet.next
            self.reached = max(self.reached, packet.reached)
            if self.now is not None:
                self.active[packet.partition] = self.now
        self._settle()

    def rest(self, idle: int, all_idle: Literal["hold", "advance"]) -> list[int]:
        """Look at the processing time: leave out who has been silent for `idle`; return those that were not out yet.

        When all are silent, time stands still, or goes on with processing time from then on.
        """
        now = self.now
        if now is None:
            return []
        silent = {partition for partition in self.watermarks if now - self.active[partition] >= idle}
        if silent == self.watermarks.keys():
            if all_idle == "hold":
                return []
            if self.still is None:
                self.still = (now, self.low)
            since, low = self.still
            if low != BEFORE_ALL:
                self.low = low + now - since
        fallen = sorted(silent - self.idle)
        self.idle = silent
        self._settle()
        return fallen

    def leave_out(self, packets: Iterable[Packet]) -> None:
        """Leave out partitions that were idle in a run that is repeated, of which no processing time is known."""
        told = list(packets)
        for packet in told:
            self.idle.add(packet.partition)
            # they were silent before anything that a tick may say from here on
            self.active[packet.partition] = BEFORE_ALL
            self.low = max(self.low, packet.watermark)
        if told:
            self._settle()

    def _settle(self) -> None:
        holding = [watermark for partition, watermark in self.watermarks.items() if partition not in self.idle]
        if holding:
            self.low = max(self.low, min(holding))

    def at(self, partitions: pa.ChunkedArray, watermarks: Micros) -> Micros:
        """Return the watermark at each record: what the step's records say, but not below what was known before."""
        # every partition with records is known by now, and there are few
        known = np.array(sorted(self.watermarks.items()), dtype=np.int64).reshape(-1, 2)
        places = np.searchsorted(known[:, 0], partitions.to_numpy())
        reached: Micros = np.maximum(watermarks, known[places, 1])
        return reached

    def encode(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "partitions": [
                [partition, watermark, self.next.get(partition, 0), self.active.get(partition), partition in self.idle]
                for partition, watermark in self.watermarks.items()
            ],
            "low": self.low,
            "now": self.now,
            "still": self.still,
            "lateness": [[partition, lateness.encode()] for partition, lateness in self.lateness.items()],
            "reached": self.reached,
        }

    @staticmethod
    def decode(fields: Any) -> Clocks:  # noqa: ANN401 - plain JSON
        """Read what `encode` returned."""
        rows: Sequence[tuple[int, int, int, int | None, bool]] = fields["partitions"]
        return Clocks(
            watermarks={partition: watermark for partition, watermark, *_ in rows},
            next={partition: offset for partition, _, offset, *_ in rows},
            low=fields["low"],
            now=fields["now"],
            active={partition: active for partition, _, _, active, _ in rows if active is not None},
            idle={partition for partition, *_, idle in rows if idle},
            still=None if fields["still"] is None else tuple(fields["still"]),
            lateness={partition: Lateness.decode(lateness) for partition, lateness in fields["lateness"]},
            reached=fields["reached"],
        )
