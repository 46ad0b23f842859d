"""How far a step of a log goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windrow.sources.base import Cut
from windrow.sources.log.folder import START, LogFolder, Position
from windrow.sources.portions import portions

Positions = Mapping[int, Position]


def up_to(folder: LogFolder, start: Positions, sizes: Mapping[int, int], max_records: int | None) -> Positions:
    """Return where a step ends that takes what is there: within the first `sizes` bytes of each partition.

    With `max_records`, partitions with a backlog share it by the bytes of theirs, and what one leaves over goes to the
    others; each gives a record at the least, whatever the limit. The same files and start give the same end.
    """
    ends = dict(start)
    if max_records is None:
        for partition, size in sizes.items():
            ends[partition] = folder.scan(partition, _at(start, partition), max_byte=size)
        return ends
    behind = {partition for partition, size in sizes.items() if size > _at(start, partition).byte}
    left = max(max_records, len(behind))
    while left:
        waiting = {partition: sizes[partition] - _at(ends, partition).byte for partition in behind}
        waiting = {partition: size for partition, size in waiting.items() if size > 0}
        if not waiting:
            break
        for partition, portion in portions(waiting, left).items():
            at = _at(ends, partition)
            ends[partition] = end = folder.scan(partition, at, max_lines=portion, max_byte=sizes[partition])
            left -= end.line - at.line
            if end.line - at.line < portion:  # there may be a line that is not whole yet
                behind.remove(partition)
    return ends


def up_to_cut(folder: LogFolder, start: Positions, sizes: Mapping[int, int], cuts: Sequence[Cut]) -> Positions:
    """Return where a step ends by the first cut that is ahead of `start`; after the last one, take what is there.

    Records of a cut that are not there yet come when they are; the next cut waits for them.
    """
    lines: dict[int, int] = {}
    for cut in cuts:
        lines.update({p: max(count, lines.get(p, 0)) for p, count in cut.items()})
        if any(count > _at(start, p).line for p, count in lines.items()):
            ends = dict(start)
            for p, count in lines.items():
                at = _at(start, p)
                if p in sizes and count > at.line:
                    ends[p] = folder.scan(p, at, max_lines=count - at.line, max_byte=sizes[p])
            return ends
    return up_to(folder, start, sizes, None)


def _at(positions: Positions, partition: int) -> Position:
    return positions.get(partition, START)
