"""Integrity of the files that Spark keeps in a checkpoint, and the translation of errors that Spark raises."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException

from windrow import errors
from windrow.errors import CheckpointError, EngineError, WindrowError, WorkerLostError
from windrow.hosts.stream.checkpoint import last_noted

_MAGIC = b"crc\0"
_HEAD = len(_MAGIC) + 4
"""Before the sums, and how many bytes each is of."""

RESTORE = "restore the checkpoint, and the tables of the same time; or start over with --fresh"


def refuse_damaged(spark: Path) -> None:
    """Raise CheckpointError for a note that a query would begin from and that is damaged, or gone.

    Beside each file is what Hadoop's local file system writes, a CRC-32 of each 512 bytes of it, which Spark does not
    look at: a step whose offsets have a bit turned would read other records. Of the state, what the query will load is
    read, but for RocksDB's own files, which have sums within that RocksDB looks at (`refuse_damaged_tables`).
    """
    planned, done = (last_noted(spark / log) for log in ("offsets", "commits"))
    if planned is None and done is None:
        return
    for path in _begun_from(spark, planned, done):
        if not path.exists():
            msg = f"{path} is gone; {RESTORE}"
            raise CheckpointError(msg)
        _refuse_unfit(path)


def refuse_damaged_tables(spark: Path) -> None:
    """Raise CheckpointError for a file of RocksDB's that is damaged: it says that it cannot load, and not why."""
    for path in sorted(spark.glob("state/*/*/SSTs/*.sst")):
        _refuse_unfit(path)


def _refuse_unfit(path: Path) -> None:
    sums = checksum(path)
    if sums.is_file() and not _fits(path.read_bytes(), sums.read_bytes()):
        msg = f"{path} is damaged: it is not what was written; {RESTORE}"
        raise CheckpointError(msg)


def is_whole(path: Path) -> bool:
    """Return whether a file is there, has content, and is what was written as far as its checksum tells."""
    if not path.is_file() or not (content := path.read_bytes()):
        return False
    sums = checksum(path)
    return not sums.is_file() or _fits(content, sums.read_bytes())


def checksum(path: Path) -> Path:
    """Return the file in which Hadoop keeps what a file's bytes should be."""
    return path.with_name(f".{path.name}.crc")


def _begun_from(spark: Path, planned: int | None, done: int | None) -> Iterator[Path]:
    yield spark / "metadata"
    # a step is planned and then done, so that of the last one that is done there are both
    last = max(-1 if planned is None else planned, -1 if done is None else done)
    yield spark / "offsets" / str(last)
    if (before := spark / "offsets" / str(last - 1)).exists():  # Spark reads two
        yield before
    if done is not None:
        yield from (spark / log / str(done) for log in ("offsets", "commits"))
    for pattern in ("sources/*/*", "state/*/_metadata/**/*", "state/*/_stateSchema/**/*"):
        yield from (path for path in sorted(spark.glob(pattern)) if not path.name.startswith("."))
    if done is not None:
        for folder in sorted(spark.glob("state/*/[0-9]*")):
            yield from _loaded(folder, done + 1)


def _loaded(folder: Path, version: int) -> Iterator[Path]:
    """Go through what is loaded for a version of the state: the last snapshot up to it, and the changes since."""
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


SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
"""What a call to Spark raises: its own errors, py4j's, and those of a connection to a JVM that is gone."""

_DAMAGED = re.compile(
    r"(?:ChecksumException: Checksum error: |Corruption: [^\n]*? in )(?:file:)?(\S+)|(?:FileNotFoundException: "
    r"(?:File )?(?:file:)?|No such file or directory: [^\n]*?)(\S+/state/\S+)"
)
_LOST_WORKER = re.compile(
    r"Python worker (?:failed to connect back|exited unexpectedly)|Failed to connect to the state server"
)
_GO_ON = "\nwhat was committed stays; start again to continue from there"
_APPENDIX = "\n=== Streaming Query ==="
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_WRAPPING = re.compile(r"^(?:\[STREAM_FAILED\] )?Query \[id = [^\]]*\] terminated with exception: ")
_OURS = re.compile(r"^windrow\.errors\.(\w+): (.+?)(?=\n\s*at |\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_RAISED = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception))(?:: (.+))?$", re.MULTILINE)


def translate(exc: Exception, what: str = "the stream", then: str = _GO_ON) -> WindrowError:
    """Return the error that a failure means: ours if a Python worker raised one, else what Spark or Python says.

    That is said to have stopped `what`; `then` says what is to be done.
    """
    text = _STATE.sub("", str(exc).partition(_APPENDIX)[0]).strip()
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        kind = getattr(errors, name, EngineError)
        if not (isinstance(kind, type) and issubclass(kind, WindrowError)):
            kind = EngineError
        return kind(message.strip())
    if damaged := _DAMAGED.search(str(exc)):
        return CheckpointError(f"{damaged[1] or damaged[2]} is damaged or gone; {RESTORE}")
    # a process that did not start in ten seconds, as on a busy machine, or that was killed
    kind = WorkerLostError if _LOST_WORKER.search(str(exc)) else EngineError
    return kind(f"{what} stopped: {_said(exc, text)}{then}")


def _said(exc: Exception, text: str) -> str:
    if isinstance(exc, Py4JJavaError):
        text = str(exc.java_exception.getMessage())
    elif isinstance(exc, (Py4JError, ConnectionError)):
        return "Spark's Java process has ended"
    elif not isinstance(exc, SPARK_ERRORS):
        return f"{type(exc).__name__}: {text}"
    unwrapped = _WRAPPING.sub("", text)
    raised = _CAUSE.findall(unwrapped) or _RAISED.findall(unwrapped)
    return ": ".join(filter(None, raised[-1])) if raised else unwrapped.split("\n", 1)[0]
