"""Retention and compaction of an embedded log: describing its segments, and planning and applying changes.

A change is planned before it is applied, so that it can be displayed and checked against the offsets that runs still
need. It takes effect with one rename (`Retained.write`), and disk blocks are freed after that. If the process is killed
before the rename, the old log remains. If it is killed after the rename, the new log is in effect, and the next command
frees the blocks. Only one process at a time may change a log or append to it with `LogAppender`.
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
from windrow.engine.decode.json_text import parse_object
from windrow.engine.decode.record_key import key_of_line
from windrow.engine.decode.values import MalformedError, NumberText
from windrow.errors import InputError, SourceError


@dataclass(frozen=True)
class SegmentFacts:
    """A segment of a partition: its range of offsets, number of records, bytes, and first and last log times.

    `end` is the offset after the last record. Times are in milliseconds, None if a record has no log time.
    """

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
    """The retained part of a partition before and after a change that removes `removed` records.

    For a compaction, `keep` has the offsets before the new base that are copied into a segment.
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
    """Return the segments of each partition: the compacted segment, if there is one, and the active segment."""
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
    """Return the position before the last line, searching backwards from the end."""
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
    return next((_log_time(value) for batch in batches for value in batch.column("value").to_pylist()), None)


def _log_time(value: bytes) -> int | None:
    return _time_of(_fields(value))


def _time_of(fields: Mapping[str, Any]) -> int | None:
    time = fields.get(m.LOG_TIME)
    return int(time) if isinstance(time, NumberText) and time.isdecimal() else None


def _fields(value: bytes) -> Mapping[str, Any]:
    """Return the fields of a record, empty if the record is malformed."""
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
    """Plan to remove records before `offsets`, with log times before `older` (ms), or in excess of `size` bytes.

    Records are always removed from the start of a partition. Trimming by time stops at the first record that is not
    older; records without a log time are removed if an older record follows them. Raise InputError if the log does not
    have a given partition, or ends before its offset.
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
                    f"partition {partition} ends at offset {end.line}, before {offsets[partition]}: "
                    f"give an offset up to that"
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
    """Return the position after the last older record that comes before the first record that is not older."""
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
    """Plan to keep only the newest record of each key, except in the last `active` bytes, which stay unchanged.

    Return None if there is nothing to remove. The key is the text of the fields `key`, or the ``_key`` of a tombstone,
    which is a single value or has these fields. Malformed records and records without a key are kept. Tombstones are
    kept if they have no log time or were written at or after `tombstones_before` (ms). Memory holds the keys and their
    offsets.
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
    """Return the key of a record or None, whether the record deletes the key, and its log time."""
    time = _time_of(fields)
    values: list[Any]
    if m.KEY in fields and fields.get(m.VALUE, fields) is None:
        inside: Any = key_of_line(fields[m.KEY])
        deletes = True
        values = [inside.get(name) for name in key] if isinstance(inside, dict) else [inside]
        if len(values) != len(key):
            return None, False, time
    else:
        values, deletes = [fields.get(name) for name in key], fields.get(m.DELETED) is True
    if not all(isinstance(value, str | bool) for value in values):
        return None, False, time
    return json.dumps(list(map(_text, values))), deletes, time


def _text(value: str | bool) -> str:  # noqa: FBT001 - a value of JSON
    """Convert a key value to text that is the same for 1, 1.0 and 1e0, and for the text in a tombstone."""
    if isinstance(value, NumberText) and len(value) < _DIGITS:
        number = Decimal(value)
        return format(number.normalize(), "f") if -_DIGITS < number.adjusted() < _DIGITS else str(value)
    return json.dumps(value) if isinstance(value, bool) else str(value)


_DIGITS = 28  # the precision of the decimal context


def refuse_unread(readers: Mapping[str, Mapping[int, int]], changes: Sequence[Change], log: str) -> None:
    """Raise InputError if a change removes records that a run has not read yet."""
    for folder, offsets in readers.items():
        for change in changes:
            at = offsets.get(change.partition, change.before.first.line)
            if at < change.upto:
                msg = (
                    f"the run of the checkpoint {folder} has read partition {change.partition} of {log} only up to "
                    f"offset {at:,}, and records before {change.upto:,} would be removed: let it catch up first, "
                    "remove less, or use --force"
                )
                raise InputError(msg)


def apply(folder: LogFolder, change: Change) -> bool:
    """Apply a change to a locked log folder; return whether the file system was able to free the blocks."""
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
    """Free the blocks left over by an interrupted change. The log folder must be locked."""
    for partition in folder.partitions():
        folder.retained(partition).free(folder.file(partition))
