"""How the range of a batch run is cut into steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from windrow.core.messages import Packet
from windrow.sources import Cut

END = Packet(key_group=-1, kind="end")
"""What tells the end of the input, for any key group."""


@dataclass(frozen=True)
class Slices:
    """The steps of a run, numbered from 0.

    `upto` are the next offsets after each; all name the same partitions. `told` is what every key group is told in a
    step beside its records.
    """

    upto: tuple[Cut, ...]
    told: Mapping[int, tuple[Packet, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.upto)

    def ends_of(self, partition: int) -> list[int]:
        """Return where each step ends in a partition."""
        return [upto[partition] for upto in self.upto]


def slices(begin: Cut, end: Cut, ends: Sequence[Cut], max_records: int, last: tuple[Packet, ...]) -> Slices:
    """Cut what is between two cuts into steps of some `max_records` offsets.

    In each step a partition goes as far as its share of the range, so that partitions of one topic stay abreast in
    time and few windows are open at once. Steps end at all of `ends` that are within the range, and are told so. The
    last one is told `last`; it comes also where there is nothing to read.
    """
    upto: list[Cut] = []
    told: dict[int, tuple[Packet, ...]] = {}
    at: Cut = {partition: begin.get(partition, 0) for partition in sorted(end)}
    for cut in ends:
        to = {partition: max(offset, cut.get(partition, offset)) for partition, offset in at.items()}
        if to == at:
            continue  # all that is open there has been told
        if any(offset > end[partition] for partition, offset in to.items()):
            break
        upto += _steps(at, to, max_records)
        told[len(upto) - 1] = (END,)
        at = to
    upto += _steps(at, end, max_records)
    if last and not upto:
        upto.append(at)
    if last:
        told[len(upto) - 1] = (*told.get(len(upto) - 1, ()), *last)
    return Slices(tuple(upto), told)


def _steps(start: Cut, end: Cut, max_records: int) -> Iterator[Cut]:
    """Yield where each step ends on the way; none if there is no way."""
    records = sum(end[partition] - offset for partition, offset in start.items())
    count = -(-records // max_records)
    at = start
    for number in range(1, count + 1):
        to = {partition: offset + (end[partition] - offset) * number // count for partition, offset in start.items()}
        if to != at:  # shares of less than a record add up to none
            yield to
        at = to
