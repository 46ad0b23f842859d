"""Defines the results of a pipeline (clocks, verdicts, panes and revisions), and compares two answers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeVar

from windrow import model as m
from windrow.testing.oracle.answer import (
    Answer,
    Change,
    Failed,
    Journal,
    JudgedRecord,
    LogRecord,
    Missed,
    Value,
    WindowedSource,
    WindowKey,
)
from windrow.testing.oracle.clock import BEFORE_ALL, Clock
from windrow.testing.oracle.expressions import fields_of
from windrow.testing.oracle.panes import Pane, changelog
from windrow.testing.oracle.reading import DeadLetterError, read
from windrow.testing.oracle.sessions import changelog as session_changelog
from windrow.testing.oracle.totals import EPOCH
from windrow.testing.oracle.windows import windows_of


@dataclass
class _Log:
    """The outcome of reading a whole log.

    `judged` are the records that have not expired, each with its window and key, in log order.
    """

    judged: list[tuple[WindowKey, JudgedRecord]] = field(default_factory=list)
    expired: set[Missed] = field(default_factory=set)
    dead: dict[tuple[int, int], str] = field(default_factory=dict)


def run(
    pipeline: WindowedSource,
    log: Mapping[int, Sequence[LogRecord]],
    journal: Journal = Journal(),  # noqa: B008 - it is frozen
) -> Answer:
    """Return the answer for a log that is read to its end. Each partition's records are in order of offsets.

    With ``at_end: fire`` every window fires, with ``hold`` only those that the low watermark has passed.
    """
    found = _Log()
    watermarks = [_read_partition(pipeline, partition, log[partition], journal, found) for partition in sorted(log)]
    low = min(watermarks, default=BEFORE_ALL) if journal.low is None else journal.low

    answer = Answer(table={}, on_time={}, late=found.expired, dead=found.dead, changelog={})
    if isinstance(pipeline.node.window, m.Session):
        changelogs = session_changelog(pipeline, found.judged, low, alone=len(log) == 1)
    else:
        changelogs = _changelog(pipeline, found.judged, low)
    for window_key, changes in changelogs.items():
        if failed := sum(change.op in PUTS and _fails(change) for change in changes):
            answer.dead_rows[_row_name(pipeline, window_key)] = failed
        if left := _without_failed(pipeline, changes):
            answer.changelog[window_key] = left
            _apply(pipeline, window_key, left, answer)
    return answer


def _read_partition(
    pipeline: WindowedSource, partition: int, records: Sequence[LogRecord], journal: Journal, found: _Log
) -> float:
    """Judge the records of a partition and return its final watermark."""
    time = pipeline.source.time
    clock = Clock(time.watermark, journal.floors.get(partition, ()), partition, time.jump)
    watermark = BEFORE_ALL
    for entry in records:
        watermark = clock.at(entry.offset)
        try:
            reading = read(pipeline, entry)
        except DeadLetterError as exc:
            found.dead[partition, entry.offset] = str(exc)
        else:
            if reading.fields is not None:
                record = JudgedRecord(
                    partition,
                    entry.offset,
                    reading.time,
                    clock.at(entry.offset, reading.time),
                    reading.fields,
                    reading.inputs,
                    reading.time + reading.gap,
                )
                _judge(pipeline, record, found)
                clock.data(entry.offset, reading.time, is_checked=reading.is_checked)
            if reading.mark is not None:
                clock.mark(reading.mark)
        # a record does not make itself late: what it moves counts for the next offset
        watermark = clock.at(entry.offset + 1)
    return watermark


def _judge(pipeline: WindowedSource, record: JudgedRecord, found: _Log) -> None:
    """Put a record into each of its windows, or note that it missed the window."""
    key = tuple(record.fields[name] for name in pipeline.node.key)
    is_session = isinstance(pipeline.node.window, m.Session)
    windows = [(record.time, record.end)] if is_session else windows_of(pipeline.node.window, record.time)
    for start, end in windows:
        if record.watermark >= end + pipeline.node.emit.lateness and not isinstance(pipeline.node.window, m.Global):
            lateness_ms = (int(record.watermark) - end) // 1000
            found.expired.add(Missed(record.partition, record.offset, start, end, lateness_ms))
        else:
            found.judged.append(((start, end, *key), record))


def _changelog(
    pipeline: WindowedSource, judged: Sequence[tuple[WindowKey, JudgedRecord]], low: float
) -> dict[WindowKey, list[Change]]:
    """Return the changes of each window and key that has any."""
    is_global, fires_all = isinstance(pipeline.node.window, m.Global), pipeline.node.emit.at_end == "fire"
    panes: dict[WindowKey, Pane] = {}
    for window_key, record in judged:
        start, end = bounds_of(window_key)
        pane = panes.setdefault(window_key, Pane(start, end))
        on_time = is_global or record.watermark < end
        (pane.on_time if on_time else pane.late).append(record)
    reached = float("inf") if fires_all else low
    changes = {
        window_key: changelog(pipeline, pane, fired=fires_all or (pane.end <= low and not is_global), reached=reached)
        for window_key, pane in panes.items()
    }
    return {window_key: rows for window_key, rows in changes.items() if rows}


def bounds_of(window_key: WindowKey) -> tuple[int, int]:
    """Return the start and end of the window in a window key; raise TypeError if they are not times."""
    start, end = window_key[:2]
    if not isinstance(start, int) or not isinstance(end, int):
        msg = "a window is two times"
        raise TypeError(msg)
    return start, end


def _fails(change: Change) -> bool:
    """Return True if a formula fails for the row of a change."""
    return any(isinstance(value, Failed) for value in change.values)


def _without_failed(pipeline: WindowedSource, changes: Sequence[Change]) -> list[Change]:
    """Omit rows for which a formula fails: the previous row is deleted, and the next one is inserted."""
    left: list[Change] = []
    there: Change | None = None
    for change in changes:
        if change.op == "update_before":
            continue
        if change.op in PUTS and not _fails(change):
            if there is None:
                left.append(change._replace(op="insert"))
            else:
                before = Change("update_before", change.pane, there.revision, there.values)
                left += [before, change] if pipeline.node.emit.mode == "retract" else [change]
            there = None if pipeline.node.emit.mode == "discard" else change
        elif there is not None:
            left.append(Change("delete", change.pane, there.revision, there.values))
            there = None
    return left


def _row_name(pipeline: WindowedSource, window_key: WindowKey) -> str:
    """Format the window and the key as in the reason of a dead letter."""
    start, end = bounds_of(window_key)
    types = fields_of(pipeline)
    keys = [
        f"{name}={_plain_text(value, types[name])}"
        for name, value in zip(pipeline.node.key, window_key[2:], strict=True)
    ]
    return ", ".join(
        [
            f"window {_plain_text(start, m.TimestampType('micros'))} to {_plain_text(end, m.TimestampType('micros'))}",
            *keys,
        ]
    )


def _plain_text(value: Value, type_: m.DataType) -> str:
    match type_:
        case m.TimestampType() if isinstance(value, int):
            return f"{(EPOCH + dt.timedelta(microseconds=value)).replace(tzinfo=None).isoformat()}Z"
        case m.DecimalType(_, scale) if isinstance(value, Decimal):
            return f"{value:.{scale}f}"
        case m.BooleanType():
            return str(value).lower()
        case _:
            return str(value)


def _apply(pipeline: WindowedSource, window_key: WindowKey, changes: Sequence[Change], answer: Answer) -> None:
    """Apply the changes of a window and key to the table, and record its on-time pane."""
    for change in changes:
        if change.pane == "on_time" and change.op in PUTS:
            answer.on_time[window_key] = change.values
        if pipeline.node.emit.mode == "discard":
            answer.table[*window_key, change.revision] = (*change.values, change.pane, change.revision)
        elif change.op == "delete":
            answer.table.pop(window_key, None)
        else:
            answer.table[window_key] = (*change.values, change.pane, change.revision)


K = TypeVar("K")
PUTS = frozenset({"insert", "update_after"})
"""The operations that put a row into the table."""
SHOWN = 5


def differences(
    expected: Answer,
    actual: Answer,
    *,
    revisions: bool = True,
    changelog: bool = True,
    early: bool = True,
    table: bool = True,
) -> list[str]:
    """Return a line for each difference, at most `SHOWN` of each kind.

    With ``late: batch``, the number of revisions depends on the steps, so set `revisions` to False. The order of the
    `changelog`, and rows of the pane `early`, are only defined for ``late: each`` with every key in one partition. In
    mode discard, the same applies to the `table`, as it has single panes.
    """
    lines = [
        *_mapping("on-time pane", expected.on_time, actual.on_time),
        *_mapping("late output", dict.fromkeys(expected.late, "expired"), dict.fromkeys(actual.late, "expired")),
        *_mapping("dead letter", expected.dead, actual.dead),
    ]
    if table:
        tables = (
            {key: row if revisions else row[:-1] for key, row in answer.table.items() if early or row[-2] != "early"}
            for answer in (expected, actual)
        )
        lines += _mapping("table", *tables)
    if changelog and revisions:
        lines += _mapping("changelog", expected.changelog, actual.changelog)
        lines += _mapping("dead letters of", expected.dead_rows, actual.dead_rows)
    return lines


def _mapping(what: str, expected: Mapping[K, object], actual: Mapping[K, object]) -> list[str]:
    lines = []
    for key in [*expected, *(key for key in actual if key not in expected)]:
        if key not in actual:
            lines.append(f"{what} {key!r} is missing: {expected[key]!r}")
        elif key not in expected:
            lines.append(f"{what} {key!r} should not be there: {actual[key]!r}")
        elif expected[key] != actual[key]:
            lines.append(f"{what} {key!r} is {actual[key]!r}, not {expected[key]!r}")
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"{what}: {len(lines) - SHOWN} more differences"]
    return lines
