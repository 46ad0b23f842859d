"""Verifies the integrity of the files that Spark keeps in a checkpoint."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

from windrow.errors import CheckpointError
from windrow.runtime.stream.checkpoint import last_noted
from windrow.telemetry.folders import Folder, is_remote, matching

_MAGIC = b"crc\0"
_HEAD = len(_MAGIC) + 4
"""Bytes before the checksums: the magic number and the block length."""

_BLOCK = 512

RESTORE = "restore the checkpoint and the tables from the same time, or start over with --fresh"


def refuse_damaged(spark: Folder, levels: int = 1) -> list[Folder]:
    """Raise CheckpointError if a file from which a query with `levels` levels would resume is damaged or missing.

    Return the files that cannot be verified because their checksums are missing.

    Beside each file, Hadoop's local file system writes a CRC-32 for every 512 bytes, but Spark does not verify it. With
    a flipped bit in the offsets, a step would read the wrong records. The state files that the query will load are
    verified, except RocksDB's own files, whose checksums RocksDB verifies (`refuse_damaged_tables`). An object store
    verifies its files itself.
    """
    planned, done = (last_noted(spark / log) for log in ("offsets", "commits"))
    if planned is None and done is None:
        return []
    unverified = []
    # in an object store, one list takes less time than a request for each file
    there = {str(path) for path in spark.glob("**/*")} if is_remote(spark) else None
    for path in dict.fromkeys(_files_to_load(spark, planned, done, levels)):
        if not (path.exists() if there is None else str(path) in there):
            msg = f"{path} is gone; {RESTORE}"
            raise CheckpointError(msg)
        if there is None:
            _refuse_unfit(path)
            if path.is_file() and not checksum(path).is_file():
                unverified.append(path)
    return unverified


def refuse_damaged_tables(spark: Folder) -> None:
    """Raise CheckpointError if a RocksDB file is damaged; RocksDB's own error does not name the file."""
    for path in matching(spark, "state/*/*/SSTs/*.sst"):
        _refuse_unfit(path)


def write_checksum(path: Folder) -> None:
    """Write the checksums of a file on disk as Hadoop does; an object store verifies its files itself."""
    if not is_remote(path):
        sums = _sums(path.read_bytes(), _BLOCK)
        checksum(path).write_bytes(_MAGIC + _BLOCK.to_bytes(4, "big") + sums)


def _sums(content: bytes, size: int) -> bytes:
    return b"".join(
        zlib.crc32(content[begin : begin + size]).to_bytes(4, "big") for begin in range(0, len(content), size)
    )


def _refuse_unfit(path: Folder) -> None:
    sums = checksum(path)
    if sums.is_file() and not _fits(path.read_bytes(), sums.read_bytes()):
        msg = f"{path} is damaged: it is not what was written; {RESTORE}"
        raise CheckpointError(msg)


def is_whole(path: Folder) -> bool:
    """Return True if a file exists, is not empty, and matches its checksums if it has any."""
    if not path.is_file() or not (content := path.read_bytes()):
        return False
    sums = checksum(path)
    return not sums.is_file() or _fits(content, sums.read_bytes())


def checksum(path: Folder) -> Folder:
    """Return the path at which Hadoop stores the checksums of a file."""
    return path.with_name(f".{path.name}.crc")


def _files_to_load(spark: Folder, planned: int | None, done: int | None, levels: int) -> Iterator[Folder]:
    yield spark / "metadata"
    # a step is planned before it is done, so the last step that is done has both files
    last = max(-1 if planned is None else planned, -1 if done is None else done)
    yield spark / "offsets" / str(last)
    if (before := spark / "offsets" / str(last - 1)).exists():  # Spark reads the last two
        yield before
    if done is not None:
        yield from (spark / log / str(done) for log in ("offsets", "commits"))
    for pattern in ("connectors/open_sources.py*/*", "state/*/_metadata/**/*", "state/*/_stateSchema/**/*"):
        yield from (path for path in matching(spark, pattern) if not path.name.startswith("."))
    if done is not None:
        stores = _stores(spark, done)
        for level in range(levels if stores else 0):
            for part in (spark / "state" / str(level) / name for name in ("_metadata", "_stateSchema")):
                if not any(path.is_file() for path in matching(part, "**/[!.]*")):
                    yield part / "*"
        known = {spark / "state" / str(level) / str(store) for level in range(levels) for store in range(stores)}
        for folder in sorted(known.union(matching(spark, "state/*/[0-9]*")), key=str):
            yield from _state_files(folder, done + 1)


def _stores(spark: Folder, done: int) -> int:
    """Return the number of state stores per level, which Spark records with each step; 0 if it cannot be read."""
    try:
        settings = json.loads((spark / "offsets" / str(done)).read_text(encoding="utf-8").splitlines()[1])
        return int(settings["conf"]["spark.sql.shuffle.partitions"])
    except (OSError, ValueError, TypeError, LookupError):
        return 0  # an unreadable file is refused where it is read


def _state_files(folder: Folder, version: int) -> Iterator[Folder]:
    """Yield the files of a state version: the last snapshot up to this version, and the changelogs after it."""
    snapshots = (int(path.stem) for path in folder.glob("*.zip") if path.stem.isdigit())
    snapshot = max((number for number in snapshots if number <= version), default=0)
    if snapshot:
        yield folder / f"{snapshot}.zip"
    yield from (folder / f"{number}.changelog" for number in range(snapshot + 1, version + 1))


def _fits(content: bytes, sums: bytes) -> bool:
    size = int.from_bytes(sums[len(_MAGIC) : _HEAD], "big")
    return sums.startswith(_MAGIC) and size > 0 and _sums(content, size) == sums[_HEAD:]
