"""What an embedded log has no more of what was read from it."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.errors import SourceError
from windrow.sources.log.folder import LogFolder, Position
from windrow.sources.loss import Found, Loss


def find_losses(folder: LogFolder, offset: Mapping[str, Mapping[str, int]]) -> Found:
    """Hold each file to the marks of what was read from it, in an offset as `windrow_log` gives it to Spark.

    A file that begins as it did was cut off or changed, and what comes is behind its end (or where it was read up to);
    one that begins otherwise is another, which is read from its beginning. Raise SourceError if one cannot be read.
    """
    there = set(folder.partitions())
    moved = dict(offset)
    losses = []
    for name, at in offset.items():
        partition, stood = int(name), Position(at["line"], at["byte"])
        if partition not in there:
            losses.append(Loss(partition, stood.line, 0, f"{folder.file(partition)} is gone, read up to {_at(stood)}"))
            del moved[name]
            continue
        try:
            folder.verify(partition, stood, at["mark"])
        except SourceError:
            size = folder.sizes()[partition]
            if "head" in at and size and folder.head(partition) == at["head"]:
                goes_on = folder.scan(partition, max_lines=stood.line)
                short = goes_on.line < stood.line
                what = "was cut off" if short else "holds other bytes now"
                moved[name] = folder.noted(partition, goes_on)
            else:
                goes_on, what = Position(), "is another file now"
                del moved[name]
            told = f"{folder.file(partition)} {what}, read up to {_at(stood)}"
            losses.append(Loss(partition, stood.line, goes_on.line, told))
    return Found(tuple(losses), moved)


def _at(position: Position) -> str:
    return f"offset {position.line} (byte {position.byte})"
