"""Checks of event time: its fields, the watermark delay, idle partitions, and durations."""

from __future__ import annotations

from collections.abc import Iterator

from windrow import model as m
from windrow.authoring.checks.base import decoded_type, no_field
from windrow.declare.findings import Finding, error, too_long, warning


def time_field(node: m.SourceNode) -> Iterator[Finding]:
    """Check that the fields of event time and watermark are timestamps of the same type."""
    time = decoded_type(node, node.time.field)
    if time is None:
        yield error("time.field", no_field(node, node.time.field))
    elif not isinstance(time, m.TimestampType):
        hint = "declare it as timestamp_millis, timestamp_seconds, timestamp_micros or timestamp"
        yield error("time.field", f"{node.time.field!r} is a {time}, not a time; {hint}")
    if isinstance(node.time.watermark, m.Punctuated):
        yield from _watermark_field(node, node.time.watermark.field)


def _watermark_field(node: m.SourceNode, mark: str) -> Iterator[Finding]:
    where = "time.punctuated"
    type_, time = decoded_type(node, mark), decoded_type(node, node.time.field)
    if type_ is None:
        yield error(where, no_field(node, mark))
    elif mark == node.time.field:
        yield error(where, f"{mark!r} is the event time itself; use the field that holds the watermark")
    elif time is not None and type_ != time:
        yield error(where, f"{mark!r} is a {type_}, but {node.time.field!r} is a {time}; give both the same type")


def sent_field(node: m.SourceNode) -> Iterator[Finding]:
    """Check that the sending time is a decoded timestamp, and not the event time itself."""
    name, where = node.time.sent, "time.sent"
    if name is None:
        return
    type_ = decoded_type(node, name)
    if type_ is None:
        yield error(where, no_field(node, name))
    elif not isinstance(type_, m.TimestampType):
        yield error(where, f"{name!r} is a {type_}, not a time; declare it as timestamp_millis or another timestamp")
    elif name == node.time.field:
        yield error(where, f"{name!r} is the event time itself; use the field that holds the time of sending")


def durations(node: m.SourceNode) -> Iterator[Finding]:
    """Check that durations are not negative and at most a hundred years, and that `idle` is positive."""
    time = node.time
    lengths = {"time.future": time.future or 0, "time.jump": time.jump or 0}
    if isinstance(time.watermark, m.Delay):
        lengths["time.delay"] = time.watermark.micros
    if isinstance(time.watermark, m.DelayByPartition):
        lengths["time.delay.by_partition.default"] = time.watermark.default
        for partition, micros in time.watermark.delays:
            where = f"time.delay.by_partition.{partition}"
            lengths[where] = micros
            if not 0 <= partition < m.MAX_PARTITIONS:
                yield error(where, f"is not the number of a partition (0 to {m.MAX_PARTITIONS - 1:,})")
    for where, micros in lengths.items():
        if micros < 0:
            yield error(where, "must not be negative")
        yield from too_long(where, micros)
    if time.idle is not None:
        if time.idle <= 0:
            yield error("time.idle", "must be longer than 0: a partition is idle after this time without a record")
        yield from too_long("time.idle", time.idle)


def adaptive_delay(node: m.SourceNode) -> Iterator[Finding]:
    """The target is a fraction, and the minimum is not longer than the maximum."""
    mark = node.time.watermark
    if not isinstance(mark, m.Adaptive):
        return
    where = "time.delay.adaptive"
    if not 0 < mark.target <= 1:
        message = (
            f"must be more than 0 and at most 1, not {mark.target}: it is the share of records that should be on time"
        )
        yield error(f"{where}.target", message)
    for name, micros in (("min", mark.least), ("max", mark.most)):
        if micros < 0:
            yield error(f"{where}.{name}", "must not be negative")
        yield from too_long(f"{where}.{name}", micros)
    if mark.least > mark.most:
        yield error(f"{where}.min", f"must not be longer than max ({m.format_duration(mark.most)})")


def zero_delay(node: m.SourceNode, window: m.Window) -> Iterator[Finding]:
    """Warn about a delay of 0: any record that is out of order across the end of a window is then late."""
    if isinstance(node.source, m.FileSource) and node.time.field == m.LOG_TIME:
        return  # log timestamps of a file are in order
    if node.time.watermark == m.Delay(0) and not isinstance(window, m.Global):
        message = (
            "is 0s: any record out of order can be late; set it to how far out of order records arrive, such as 10m"
        )
        yield warning("time.delay", message)


def all_idle(node: m.SourceNode) -> Iterator[Finding]:
    """Check that `all_idle: advance` is used together with `idle`."""
    if node.time.all_idle == "advance" and node.time.idle is None:
        yield error(
            "time.all_idle", "needs `idle`, the time after which a partition without records is idle, such as idle: 1m"
        )


def jump_guard(node: m.SourceNode) -> Iterator[Finding]:
    """Check that the clock that `jump` guards follows the event times of single records."""
    where = "time.jump"
    if node.time.jump is None:
        return
    if isinstance(node.time.watermark, m.Punctuated):
        yield error(where, "does not apply with `punctuated`: the log carries its watermarks; remove one of the two")
    if node.is_by_reading:
        yield error(where, "does not apply to times of reading, which windrow sets itself; remove it")


def no_clock_guard(node: m.SourceNode) -> Iterator[Finding]:
    """Warn if event times are neither log timestamps nor checked against them, and clocks are not guarded.

    Without a guard, one wrong clock makes other records late. The records of an embedded log or of files have a log
    timestamp only if they have the field for it.
    """
    names = {field.name: field.paths for field in node.decode.fields}
    is_guarded = node.time.future is not None or node.time.jump is not None
    if is_guarded or names.get(node.time.field) == ((m.LOG_TIME,),):
        return
    has_log_time = (
        isinstance(node.source, m.KafkaSource | m.FollowedSource)
        or (m.LOG_TIME,) in (path for paths in names.values() for path in paths)
        or (isinstance(node.source.format, m.CsvFormat) and m.LOG_TIME in node.source.format.columns)
    )
    what, remedy = "has no `future`", "set it, for example to 1h"
    if not has_log_time:
        if isinstance(node.time.watermark, m.Punctuated):
            return  # the log sets its watermarks, and has nothing to check them against
        what, remedy = "has neither `future` nor `jump`", "set `jump`, for example to 1d"
    message = (
        f"{what}: a single record from a clock that is ahead makes the records after it in its partition late or "
        f"expired; {remedy}"
    )
    yield warning("time", message)
