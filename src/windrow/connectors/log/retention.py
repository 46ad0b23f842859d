"""Retention and compaction of an embedded log: its segments, plans of changes, and their execution.

A change is planned first, so that it can be shown, and checked against the offsets that runs still need. It takes
effect with one rename (`Retained.write`); blocks are freed after that. A kill before the rename leaves the old log, a
kill after it the new log, and the next command frees the blocks. One process at a time changes a log, or appends by
`LogAppender`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.segments import SEGMENT, Position, Retained, Segment, write_segment
from windrow.engine.decode.exact import KEY, VALUE, parse_object
from windrow.engine.decode.values import MalformedError, NumberText
from windrow.errors import InputError, SourceError


@dataclass(frozen=True)
class SegmentFacts:
    """A segment of a partition: `first` and `end` offsets, records, bytes, and log times (ms) or None."""

    partition: int
    kind: str
    first: int
    end: int
    records: int
    bytes: int
    first_time: int | None
    last_time: int | None


@dataclass(frozen=True)
class Change:
    """The retained part of a partition before and after a change, which removes `removed` records.

    A compaction has the offsets to `keep` before its base, which are written into a segment.
    """

    partition: int
    before: Retained
    after: Retained
    removed: int
    keep: np.ndarray | None = None

    @property
    def upto(self) -> int:
        """The offset before which records are removed."""
        return self.after.first.line if self.keep is None else self.after.base.line


def describe(folder: LogFolder) -> list[SegmentFacts]:
    """Return the segments of each partition: the compacted one, if any, and the active one."""
    found: list[SegmentFacts] = []
    for partition in folder.partitions():
        found += folder.read_stable(partition, partial(_describe, folder, partition))
    return found


def _describe(folder: LogFolder, partition: int, kept: Retained) -> list[SegmentFacts]:
    found = []
    times: tuple[int | None, int | None]
    if (segment := folder.segment(kept)) is not None and kept.segment is not None:
        count = len(segment.offsets)
        first, last = int(segment.offsets[0]), int(segment.offsets[-1])
        times = _time_of_record(segment.read(0, first + 1)), _time_of_record(segment.read(last, kept.base.line))
        size = (folder.path / kept.segment).stat().st_size
        found.append(SegmentFacts(partition, "compacted", kept.first.line, kept.base.line, count, size, *times))
    end = folder.scan(partition, kept.base)
    lines = end.line - kept.base.line
    size = folder.file(partition).stat().st_size - kept.base.byte
    times = None, None
    if lines:
        after = folder.scan(partition, kept.base, max_lines=1)
        before = _last_line(folder, partition, end, kept.base)
        times = (
            _time_of_record(folder.read(partition, kept.base, after)),
            _time_of_record(folder.read(partition, before, end)),
        )
    found.append(SegmentFacts(partition, "active", kept.base.line, end.line, lines, size, *times))
    return found


def _last_line(folder: LogFolder, partition: int, end: Position, base: Position) -> Position:
    """Return the position before the last line, searched from the end."""
    step = 1 << 16
    with folder.file(partition).open("rb") as file:
        while True:
            begin = max(base.byte, end.byte - step)
            file.seek(begin)
            at = file.read(end.byte - 1 - begin).rfind(b"\n") + 1
            if at or begin == base.byte:
                return Position(end.line - 1, begin + at)
            step *= 16


def _time_of_record(batches: Iterator[pa.RecordBatch]) -> int | None:
    """Return the log time of a single record."""
    return next((_log_time(value) for batch in batches for value in batch.column("value").to_pylist()), None)


def _log_time(value: bytes) -> int | None:
    return _time_of(_fields(value))


def _time_of(fields: Mapping[str, Any]) -> int | None:
    time = fields.get(m.LOG_TIME)
    return int(time) if isinstance(time, NumberText) and time.isdecimal() else None


def _fields(value: bytes) -> Mapping[str, Any]:
    """Return the fields of a record; empty if it is malformed."""
    try:
        return parse_object(value)
    except (MalformedError, ValueError):
        return {}


def plan_trim(
    folder: LogFolder,
    *,
    offsets: Mapping[int, int] | None = None,
    older: int | None = None,
    size: int | None = None,
) -> list[Change]:
    """Plan to remove the records before `offsets`, records from before `older` (ms), or records beyond `size` bytes.

    Records are removed from the beginning of a partition: by time up to the last that is older, before the first that
    is not. Records without a log time are removed with those around them. Raise InputError if the log has no such
    partition, or ends before an offset.
    """
    there = folder.partitions()
    if unknown := sorted(set(offsets or {}) - set(there)):
        msg = f"the log {folder.path} has no partition {unknown[0]}; it has {', '.join(map(str, there))}"
        raise InputError(msg)
    changes = []
    for partition in there:
        kept = folder.retained(partition)
        end = folder.scan(partition, kept.first)
        to = kept.first
        if offsets is not None and partition in offsets:
            if offsets[partition] > end.line:
                msg = (
                    f"partition {partition} ends at offset {end.line}, before {offsets[partition]}: name one up to that"
                )
                raise InputError(msg)
            to = max(to, folder.up_to(partition, max(offsets[partition], to.line), to))
        if older is not None:
            to = max(to, _older(folder, partition, kept.first, end, older))
        if size is not None:
            to = max(to, _beyond(folder, partition, kept, end, size))
        if to.line > kept.first.line:
            inside = to.line < kept.base.line
            after = Retained(to, kept.base, kept.segment) if inside else Retained(to, to, None)
            changes.append(Change(partition, kept, after, _count(folder, kept, kept.first, to)))
    return changes


def _count(folder: LogFolder, kept: Retained, begin: Position, end: Position) -> int:
    segment = folder.segment(kept)
    compacted = 0 if segment is None else segment.at(end.line) - segment.at(begin.line)
    return compacted + max(0, end.line - max(begin.line, kept.base.line))


def _older(folder: LogFolder, partition: int, first: Position, end: Position, bound: int) -> Position:
    """Return the position after the last record that is older, before the first that is not."""
    to = first.line
    for batch in folder.read(partition, first, end):
        for offset, value in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True):
            time = _log_time(value)
            if time is not None and time >= bound:
                return folder.up_to(partition, to, first)
            if time is not None:
                to = offset + 1
    return folder.up_to(partition, to, first)


def _beyond(folder: LogFolder, partition: int, kept: Retained, end: Position, size: int) -> Position:
    segment = 0 if kept.segment is None else (folder.path / kept.segment).stat().st_size
    if segment + end.byte - kept.base.byte <= size:
        return kept.first
    bound = max(kept.base.byte, end.byte - size)
    at = folder.scan(partition, kept.base, max_byte=bound)
    return at if at.byte >= bound else folder.scan(partition, at, max_lines=1)


def plan_compact(
    folder: LogFolder, key: Sequence[str], *, active: int, tombstones_before: int, partition: int
) -> Change | None:
    """Plan to keep the newest record of each key before the last `active` bytes; None if there is nothing to remove.

    The key is the text of the fields `key`, or of a tombstone's ``_key``. Records without a key and malformed records
    stay, and so do tombstones without a log time or from `tombstones_before` (ms) on. Memory: the keys and offsets.
    """
    kept = folder.retained(partition)
    size = folder.sizes()[partition]
    cut = kept.base
    if size - active > kept.base.byte:
        cut = folder.scan(partition, kept.base, max_byte=size - active)
    newest: dict[str, int] = {}
    keep: set[int] = set()
    drop: set[int] = set()
    total = 0
    for batch in folder.read(partition, kept.first, cut):
        for offset, value in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True):
            total += 1
            name, deletes, time = _key_of(_fields(value), key)
            if name is None:
                keep.add(offset)
                continue
            newest[name] = offset
            if deletes and time is not None and time < tombstones_before:
                drop.add(offset)
    offsets = np.array(sorted(keep | (set(newest.values()) - drop)), np.int64)
    if len(offsets) == total:
        return None
    name = f"{folder.file(partition).stem}.compacted-{cut.line}-{os.urandom(4).hex()}.arrow"
    after = Retained(kept.first, cut, name if len(offsets) else None)
    return Change(partition, kept, after, total - len(offsets), offsets)


def _key_of(fields: Mapping[str, Any], key: Sequence[str]) -> tuple[str | None, bool, int | None]:
    """Return the key of a record or None, whether the record deletes it, and its log time."""
    time = _time_of(fields)
    if len(key) == 1 and KEY in fields and fields.get(VALUE, fields) is None:
        values, deletes = [fields[KEY]], True
    else:
        values, deletes = [fields.get(name) for name in key], fields.get(m.DELETED) is True
    if not all(isinstance(value, str | bool) for value in values):
        return None, False, time
    return json.dumps(list(map(_text, values))), deletes, time


def _text(value: str | bool) -> str:  # noqa: FBT001 - a value of JSON
    """Return a value of a key as text, which is the same for 1, 1.0 and 1e0, and for the text in a tombstone."""
    if isinstance(value, NumberText) and len(value) < _DIGITS:
        number = Decimal(value)
        return format(number.normalize(), "f") if -_DIGITS < number.adjusted() < _DIGITS else str(value)
    return json.dumps(value) if isinstance(value, bool) else str(value)


_DIGITS = 28  # the precision of the decimal context


def apply(folder: LogFolder, change: Change) -> bool:
    """Execute a change; return whether the file system could free the blocks. The folder must be locked."""
    file = folder.file(change.partition)
    if folder.retained(change.partition) != change.before:
        msg = f"{file} was trimmed or compacted meanwhile: run the command again"
        raise SourceError(msg)
    after = change.after
    if change.keep is None and after.segment is not None:
        before = Segment(folder.path / after.segment)
        name = f"{file.stem}.compacted-{after.base.line}-{os.urandom(4).hex()}.arrow"
        rows = write_segment(folder.path / name, before.read(after.first.line, after.base.line))
        after = Retained(after.first, after.base, name if rows else None)
    elif after.segment is not None:
        write_segment(folder.path / after.segment, _kept_rows(folder, change))
    after.write(file)
    return after.free(file)


def _kept_rows(folder: LogFolder, change: Change) -> Iterator[pa.RecordBatch]:
    before, keep = change.before, change.keep
    if before.segment is not None:
        for batch in Segment(folder.path / before.segment).read(before.first.line, before.base.line):
            yield batch.filter(pc.is_in(batch.column("offset"), pa.array(keep)))
    at = before.base.byte
    for batch in folder.read(change.partition, before.base, change.after.base):
        values = batch.column("value")
        ends = at + np.cumsum(pc.binary_length(values).to_numpy().astype(np.int64) + 1)
        at = int(ends[-1])
        rows = pa.RecordBatch.from_arrays([batch.column("offset"), pa.array(ends), values], schema=SEGMENT)
        yield rows.filter(pc.is_in(rows.column("offset"), pa.array(keep)))


def finish(folder: LogFolder) -> None:
    """Free the blocks that an interrupted change has left. The folder must be locked."""
    for partition in folder.partitions():
        folder.retained(partition).free(folder.file(partition))
