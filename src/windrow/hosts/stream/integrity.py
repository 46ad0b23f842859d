"""Integrity of the files that Spark keeps in a checkpoint."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from windrow.errors import CheckpointError
from windrow.hosts.folders import Folder, is_remote, matching
from windrow.hosts.stream.checkpoint import last_noted

_MAGIC = b"crc\0"
_HEAD = len(_MAGIC) + 4
"""Bytes before the checksums: the magic number and the length of the blocks that they are of."""

RESTORE = "restore the checkpoint, and the tables of the same time; or start over with --fresh"


def refuse_damaged(spark: Folder) -> None:
    """Raise CheckpointError if a file that a query would resume from is damaged or missing.

    Hadoop's local file system writes a CRC-32 of each 512 bytes beside each file, which Spark does not verify: a step
    whose offsets have a flipped bit would read other records. Of the state, the files that the query will load are
    verified, except RocksDB's own, which have checksums that RocksDB verifies (`refuse_damaged_tables`). An object
    store verifies what it keeps.
    """
    planned, done = (last_noted(spark / log) for log in ("offsets", "commits"))
    if planned is None and done is None:
        return
    # in an object store, one list takes less time than to ask for each
    there = {str(path) for path in spark.glob("**/*")} if is_remote(spark) else None
    for path in _begun_from(spark, planned, done):
        if not (path.exists() if there is None else str(path) in there):
            msg = f"{path} is gone; {RESTORE}"
            raise CheckpointError(msg)
        if there is None:
            _refuse_unfit(path)


def refuse_damaged_tables(spark: Folder) -> None:
    """Raise CheckpointError for a damaged file of RocksDB, whose own error does not name the file."""
    for path in matching(spark, "state/*/*/SSTs/*.sst"):
        _refuse_unfit(path)


def _refuse_unfit(path: Folder) -> None:
    sums = checksum(path)
    if sums.is_file() and not _fits(path.read_bytes(), sums.read_bytes()):
        msg = f"{path} is damaged: it is not what was written; {RESTORE}"
        raise CheckpointError(msg)


def is_whole(path: Folder) -> bool:
    """Return whether a file exists, is not empty, and matches its checksum if it has one."""
    if not path.is_file() or not (content := path.read_bytes()):
        return False
    sums = checksum(path)
    return not sums.is_file() or _fits(content, sums.read_bytes())


def checksum(path: Folder) -> Folder:
    """Return the file in which Hadoop keeps the checksums of a file."""
    return path.with_name(f".{path.name}.crc")


def _begun_from(spark: Folder, planned: int | None, done: int | None) -> Iterator[Folder]:
    yield spark / "metadata"
    # a step is planned and then done, so that of the last one that is done there are both
    last = max(-1 if planned is None else planned, -1 if done is None else done)
    yield spark / "offsets" / str(last)
    if (before := spark / "offsets" / str(last - 1)).exists():  # Spark reads two
        yield before
    if done is not None:
        yield from (spark / log / str(done) for log in ("offsets", "commits"))
    for pattern in ("sources/*/*", "state/*/_metadata/**/*", "state/*/_stateSchema/**/*"):
        yield from (path for path in matching(spark, pattern) if not path.name.startswith("."))
    if done is not None:
        for folder in matching(spark, "state/*/[0-9]*"):
            yield from _loaded(folder, done + 1)


def _loaded(folder: Folder, version: int) -> Iterator[Folder]:
    """Yield the files of a version of the state: the last snapshot up to it, and the changelogs since."""
    snapshots = (int(path.stem) for path in folder.glob("*.zip") if path.stem.isdigit())
    snapshot = max((number for number in snapshots if number <= version), default=0)
    if snapshot:
        yield folder / f"{snapshot}.zip"
    yield from (folder / f"{number}.changelog" for number in range(snapshot + 1, version + 1))


def _fits(content: bytes, sums: bytes) -> bool:
    size = int.from_bytes(sums[len(_MAGIC) : _HEAD], "big")
    if not sums.startswith(_MAGIC) or not size:
        return False
    found = (zlib.crc32(content[begin : begin + size]).to_bytes(4, "big") for begin in range(0, len(content), size))
    return b"".join(found) == sums[_HEAD:]
