"""How the range of a batch run is cut into steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from windrow.sources import Cut


@dataclass(frozen=True)
class Slices:
    """The steps of a run, numbered from 0: `upto` are the next offsets after each, `ended` where the input ended.

    All steps name the same partitions.
    """

    upto: tuple[dict[int, int], ...]
    ended: frozenset[int]

    def __len__(self) -> int:
        return len(self.upto)

    def cuts(self, partition: int) -> list[int]:
        """Return where each step ends in a partition."""
        return [upto[partition] for upto in self.upto]


def slices(begin: Cut, end: Cut, ends: Sequence[Cut], max_records: int, *, fires: bool) -> Slices:
    """Cut what is between two cuts into steps of at most `max_records` offsets.

    In each step a partition goes as far as its share of the range, so that partitions of one topic stay abreast in
    time and few windows are open at once. Steps end at all of `ends` that are within the range, and at its end;
    those are ends of the input, the last if `fires`.
    """
    upto: list[dict[int, int]] = []
    ended: set[int] = set()
    at = {partition: begin.get(partition, 0) for partition in sorted(end)}
    for cut in ends:
        to = {partition: max(offset, cut.get(partition, offset)) for partition, offset in at.items()}
        if to == at and not upto:
            continue  # nothing has been read: nothing is open
        if any(offset > end[partition] for partition, offset in to.items()):
            break
        upto += _steps(at, to, max_records)
        ended.add(len(upto) - 1)
        at = to
    upto += _steps(at, end, max_records)
    if fires:
        if not upto:
            upto.append(dict(at))
        ended.add(len(upto) - 1)
    return Slices(tuple(upto), frozenset(ended))


def _steps(start: Cut, end: Cut, max_records: int) -> Iterator[dict[int, int]]:
    """Yield where each step ends on the way; none if there is no way."""
    records = sum(end[partition] - offset for partition, offset in start.items())
    count = -(-records // max_records)
    for number in range(1, count + 1):
        yield {partition: offset + (end[partition] - offset) * number // count for partition, offset in start.items()}
