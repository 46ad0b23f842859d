"""Writes generated logs to folders, as ``partition-N.jsonl``, with fraud labels beside them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import InputError, SourceError
from windrow.tools.generate.columns import Portion
from windrow.tools.generate.events import portions
from windrow.tools.generate.fraud import BLOCKED_LIST
from windrow.tools.generate.spec import AnySpec, FraudSpec, LivePace, LogCounts, Progress

BLOCKED, LABELS = "blocked.csv", "labels.jsonl"
"""The files that accompany a log of card purchases."""
_PARTITION = re.compile(r"partition-(0|[1-9][0-9]*)\.(jsonl|kept\.json|compacted-.*\.arrow)")
"""Matches the files of a log, which may have been trimmed or compacted."""


def write_log(
    spec: AnySpec,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    pace: LivePace | None = None,
    progress: Progress = None,
) -> LogCounts:
    """Write the log to a folder and return the record counts; `progress` is called with them after each portion.

    If the spec has several logs, each has a subfolder with its name. The log appears only when it is complete, in a new
    or empty folder, or with `overwrite` in place of an existing log. With `pace`, the folder may already hold a log,
    and live events are appended to it. Raise InputError if the folder holds something else, and SourceError if it
    cannot be written.
    """
    path, feed = Path(folder), portions(spec, pace)
    with _translate_errors(path):
        beside = (BLOCKED, LABELS) if isinstance(spec, FraudSpec) else ()
        found = [name for log in spec.logs for name in _names(path / log) if name not in beside]
        other = [] if spec.logs == ("",) else set(_names(path)) - set(spec.logs)
        if other or not all(_PARTITION.fullmatch(name) for name in found):
            msg = f"{path} is not empty and is not a log: choose another folder"
            raise InputError(msg)
        if pace is not None:
            return _write(spec, path, feed, progress)
        if found and not overwrite:
            msg = f"{path} already holds a log: choose another folder, or overwrite it (--overwrite)"
            raise InputError(msg)
        return _replace(spec, path, feed, progress)


def _names(path: Path) -> list[str]:
    if not path.exists():
        return []
    if not path.is_dir():
        msg = f"{path} is a file, but a log is a folder: choose another path"
        raise InputError(msg)
    return sorted(entry.name for entry in path.iterdir())


def _replace(spec: AnySpec, path: Path, feed: Iterator[Portion], progress: Progress) -> LogCounts:
    """Write the log to a folder beside its path, then move it into place."""
    beside = path.parent / f".{path.name}.{os.getpid()}.partial"
    beside.mkdir(parents=True)
    try:
        counts = _write(spec, beside, feed, progress)
        if path.exists():
            shutil.rmtree(path)
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return counts


def _write(spec: AnySpec, path: Path, feed: Iterator[Portion], progress: Progress) -> LogCounts:
    total = LogCounts()
    for name in spec.logs:
        (path / name).mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        files = [
            [
                stack.enter_context((path / name / f"partition-{partition}.jsonl").open("ab"))
                for partition in range(spec.partitions)
            ]
            for name in spec.logs
        ]
        for file in chain.from_iterable(files):
            _end_line(file)
        write_labels = stack.enter_context(labels_beside(spec, path))
        for batches, counts, labels in feed:
            write_labels(labels)
            for log, batch in zip(files, batches, strict=True):
                partitions = batch.column("partition").to_numpy()
                for partition, file in enumerate(log):
                    values = batch.column("value").take(pa.array(np.flatnonzero(partitions == partition)))
                    if len(values):
                        file.write(_lines(values))
                        file.flush()
            total += counts
            if progress is not None:
                progress(total)
    return total


@contextmanager
def labels_beside(spec: AnySpec, folder: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Write the list of blocked merchants to a folder, and yield a function that appends labels to a file there.

    Nothing is written if no folder is given or the spec has no labels.
    """
    if folder is None or not isinstance(spec, FraudSpec):
        yield lambda _: None
        return
    with _translate_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / BLOCKED).write_bytes(BLOCKED_LIST)
        with (folder / LABELS).open("ab") as file:
            _end_line(file)

            def append(lines: bytes) -> None:
                file.write(lines)
                file.flush()

            yield append


def _lines(values: pa.Array) -> bytes:
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    lines: bytes = pc.binary_join(whole, pa.scalar(b"\n", pa.binary()))[0].as_py()
    return lines + b"\n"


def _end_line(file: BinaryIO) -> None:
    """End the line that an earlier writer left unfinished, if any, so that new lines start on their own."""
    size = file.seek(0, os.SEEK_END)
    if size:
        with Path(file.name).open("rb") as reader:
            reader.seek(size - 1)
            if reader.read(1) != b"\n":
                file.write(b"\n")


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        msg = f"cannot write the log {path}: {exc.strerror or exc}"
        raise SourceError(msg) from exc
