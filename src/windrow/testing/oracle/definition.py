"""The definition: clocks, verdicts, panes, revisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windrow.model import Delay, Pipeline
from windrow.testing.oracle.answer import Answer, Change, LogRecord, Missed, Value, WindowKey
from windrow.testing.oracle.reading import read
from windrow.testing.oracle.totals import results
from windrow.testing.oracle.values import DeadLetterError

BEFORE_ALL = float("-inf")

Fields = dict[str, Value]


@dataclass
class _Window:
    """The records of a window and key: those on time, and the late ones in (partition, offset) order."""

    on_time: list[Fields] = field(default_factory=list)
    late: list[Fields] = field(default_factory=list)


@dataclass
class _Log:
    """What the whole log holds."""

    windows: dict[WindowKey, _Window] = field(default_factory=dict)
    expired: set[Missed] = field(default_factory=set)
    dead: dict[tuple[int, int], str] = field(default_factory=dict)


def run(pipeline: Pipeline, log: Mapping[int, Sequence[LogRecord]]) -> Answer:
    """Answer for a log that is read to its end; the partitions are the mapping's keys, records in offset order.

    ``at_end: fire`` fires every window; ``hold`` only those that the low watermark has passed.
    """
    found = _Log()
    watermarks = [_read_partition(pipeline, partition, log[partition], found) for partition in sorted(log)]
    low = min(watermarks, default=BEFORE_ALL)

    answer = Answer(table={}, on_time={}, late=found.expired, dead=found.dead, changelog={})
    for window_key, window in found.windows.items():
        if pipeline.emit.at_end == "hold" and _end(window_key) > low:
            continue
        changelog = _changelog(pipeline, window)
        last = changelog[-1]
        answer.changelog[window_key] = changelog
        answer.table[window_key] = (*last.values, last.pane, last.revision)
        if window.on_time:
            answer.on_time[window_key] = changelog[0].values
    return answer


def _read_partition(pipeline: Pipeline, partition: int, records: Sequence[LogRecord], found: _Log) -> float:
    """Judge the records of one partition; return its watermark after the last."""
    watermark = BEFORE_ALL
    for record in records:
        try:
            reading = read(pipeline, record)
        except DeadLetterError as exc:
            found.dead[partition, record.offset] = str(exc)
            continue
        if reading.fields is not None:
            start = _window_start(pipeline, reading.time)
            end = start + pipeline.window.size
            if watermark >= end + pipeline.emit.lateness:
                lateness_ms = (int(watermark) - end) // 1000
                found.expired.add(Missed(partition, record.offset, start, end, lateness_ms))
            else:
                window_key = (start, end, *(reading.fields[name] for name in pipeline.key))
                window = found.windows.setdefault(window_key, _Window())
                (window.on_time if watermark < end else window.late).append(reading.fields)
        # a record does not make itself late: its own time counts only from here on
        if isinstance(pipeline.time.watermark, Delay):
            watermark = max(watermark, reading.time - pipeline.time.watermark.micros)
        elif reading.mark is not None:
            watermark = max(watermark, reading.mark)
    return watermark


def _window_start(pipeline: Pipeline, time: int) -> int:
    """Return the greatest k * size + offset that is not after the time."""
    return time - (time - pipeline.window.offset) % pipeline.window.size


def _end(window_key: WindowKey) -> float:
    end = window_key[1]
    if not isinstance(end, int):
        msg = "a window's end is a time"
        raise TypeError(msg)
    return end


def _changelog(pipeline: Pipeline, window: _Window) -> list[Change]:
    """Return the on-time pane, if any record was on time, and one revision for each late record."""
    changes = []
    records = list(window.on_time)
    if records:
        changes.append(Change("insert", "on_time", 0, results(pipeline, records)))
    for late in window.late:
        records.append(late)
        values = results(pipeline, records)
        if changes:
            before = changes[-1]
            changes.append(Change("update_before", "late", before.revision, before.values))
            changes.append(Change("update_after", "late", before.revision + 1, values))
        else:
            changes.append(Change("insert", "late", 0, values))
    return changes
