"""Checks of windows and emission: lengths, offsets and time zones; early triggers, panes and lateness."""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Iterator
from typing import assert_never

from windrow import model as m
from windrow.declare.findings import Finding, error, too_long, warning
from windrow.declare.python_code import why_not_callable
from windrow.errors import PipelineError
from windrow.expressions import WindowSpec, constant_failure, own_gap, record_fields
from windrow.model.triggers import counts_records, each_part, has_every

_DAY = 86_400_000_000
_EVERY_MONTH = 28
_LEAST_UNIT = {"hour": _DAY // 24, "day": _DAY, "week": 7 * _DAY, "month": 28 * _DAY}
_MOST_UNITS = {"hour": 876_000, "day": 36_500, "week": 5_214, "month": 1_200}


def window_lengths(spec: WindowSpec) -> Iterator[Finding]:
    """Check that windows are at most a hundred years long, and offsets shorter than the interval between windows."""
    match spec.node.window:
        case m.Tumbling(size, offset):
            yield from _length("window.tumbling.size", size)
            yield from _offset("window.tumbling.offset", offset, size, "the window")
        case m.Calendar() as window:
            yield from _calendar(window)
        case m.Hopping(size, slide, offset):
            yield from _length("window.hopping.size", size)
            yield from _length("window.hopping.slide", slide)
            yield from _offset("window.hopping.offset", offset, slide, "the slide")
        case m.Cumulate(size, step, offset):
            yield from _length("window.cumulate.size", size)
            yield from _length("window.cumulate.step", step)
            yield from _offset("window.cumulate.offset", offset, size, "the window")
        case m.Session(0, str(by)):
            yield error(
                "window.session",
                f"{by!r} is not a duration such as 30m; an SQL expression for the gap of each record in seconds needs "
                "`max`, the longest gap: {gap: ..., max: 2h}",
            )
        case m.Session(gap, by):
            yield from _length("window.session" if by is None else "window.session.max", gap)
        case m.Global():
            return
        case _:
            assert_never(spec.node.window)


def _length(where: str, micros: int) -> Iterator[Finding]:
    if micros <= 0:
        yield error(where, "must be longer than 0, such as 5m")
    yield from too_long(where, micros)


def _offset(where: str, offset: int, distance: int, what: str) -> Iterator[Finding]:
    if distance > 0 and not 0 <= offset < distance:
        yield error(where, f"must be shorter than {what} ({m.format_duration(distance)}) and not negative")


def _calendar(window: m.Calendar) -> Iterator[Finding]:
    where = "window.tumbling.size"
    if window.count < 1:
        yield error(where, f"must be 1 {window.unit} or more")
    elif window.count > _MOST_UNITS[window.unit]:
        yield error(where, f"is longer than a hundred years ({_MOST_UNITS[window.unit]} {window.unit}s)")
    yield from _offset("window.tumbling.offset", window.offset, window.count * _LEAST_UNIT[window.unit], "the window")
    if window.unit == "month" and window.begins_at.day > _EVERY_MONTH:
        yield error("window.tumbling.origin", f"must be one of the first {_EVERY_MONTH} days, which every month has")


def session_gap(spec: WindowSpec) -> Iterator[Finding]:
    """Check that the expression for the gap of each record is a valid number."""
    if isinstance(spec.node.window, m.Session) and spec.node.window.by is not None and spec.node.window.gap > 0:
        try:
            gaps = own_gap(spec)
        except PipelineError as exc:
            yield error("window.session.gap", exc.message)
        else:
            fails = constant_failure(gaps[0].expression, record_fields(spec))
            if fails is not None:
                yield error(
                    "window.session.gap", f"{spec.node.window.by!r} fails for all values of its fields: {fails}"
                )


def window_zone(spec: WindowSpec) -> Iterator[Finding]:
    """Check that the time zone is in the time zone database."""
    if isinstance(spec.node.window, m.Calendar) and not _is_known(spec.node.window.zone):
        zone = spec.node.window.zone
        names = {name.lower(): name for name in zoneinfo.available_timezones() - {"localtime"}}
        close = difflib.get_close_matches(zone.lower().replace(" ", "_"), names, n=1)
        hint = f"did you mean {names[close[0]]!r}?" if close else "give a name such as Europe/Berlin"
        yield error("window.tumbling.zone", f"unknown time zone {zone!r}; {hint}")


def _is_known(zone: str) -> bool:
    if zone == "localtime":
        return False  # it differs between machines
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


_MOST_HOPS = 10_000


def hopping_windows(spec: WindowSpec) -> Iterator[Finding]:
    """Check that a record is in at most 10,000 windows; warn if it may be in no window at all."""
    window = spec.node.window
    if not isinstance(window, m.Hopping) or window.size <= 0 or window.slide <= 0:
        return
    windows = -(-window.size // window.slide)
    where = "window.hopping.slide"
    if windows > _MOST_HOPS:
        message = (
            f"puts each record into {windows} windows, and a late record revises all of them; "
            f"at most {_MOST_HOPS} are allowed: slide by {m.format_duration(-(-window.size // _MOST_HOPS))} or more"
        )
        yield error(where, message)
    if window.slide > window.size:
        gap = m.format_duration(window.slide - window.size)
        message = (
            f"is longer than the size, which leaves gaps of {gap} between windows: records in them are in no window; "
            f"give a slide of at most {m.format_duration(window.size)}"
        )
        yield warning(where, message)


def cumulate_windows(spec: WindowSpec) -> Iterator[Finding]:
    """Check that the size is a multiple of the step, and at most 10,000 times as long."""
    window = spec.node.window
    if not isinstance(window, m.Cumulate) or window.size <= 0 or window.step <= 0:
        return
    where, size = "window.cumulate.step", m.format_duration(window.size)
    steps = -(-window.size // window.step)
    if window.size % window.step:
        yield error(where, f"{m.format_duration(window.step)} does not divide the size, {size}, into whole steps")
    elif steps > _MOST_HOPS:
        message = (
            f"puts a record into up to {steps} windows, and a late record revises all of them; "
            f"at most {_MOST_HOPS} are allowed: "
            f"give a step of {m.format_duration(-(-window.size // _MOST_HOPS))} or more"
        )
        yield error(where, message)


def global_window(spec: WindowSpec) -> Iterator[Finding]:
    """Check that a global window has early panes and no settings for late records, because it never ends."""
    if not isinstance(spec.node.window, m.Global):
        return
    emit = spec.node.emit
    if emit.early is None:
        example = "give emit.early, such as early: {count: 100}"
        yield error("window.global", f"has no end: {example}, or nothing is written before the end of the input")
    message = "does not apply to a global window, which never ends, so no record is late for it; remove it"
    if emit.lateness:
        yield error("emit.lateness", message)
    if emit.late != "each":
        yield error("emit.late", message)


_FEWEST = 2


def triggers(spec: WindowSpec) -> Iterator[Finding]:
    """Check that counts and times are positive, and that a composite trigger has two or more compatible parts."""
    early = spec.node.emit.early
    if early is None:
        return
    yield from _trigger("emit.early", early)
    parts = list(each_part(early))
    if len(parts) > 1 and any(isinstance(part, m.EveryEventTime) for part in parts):
        message = (
            "event_time cannot be combined: its panes are at fixed times, and no other pane resets them; use it alone"
        )
        yield error("emit.early", message)


def late_panes(spec: WindowSpec) -> Iterator[Finding]:
    """Check that counts of late records are at least 1, and that they are not used with sessions, which can merge."""
    late = spec.node.emit.late
    if not isinstance(late, m.Records):
        return
    if late.number < 1:
        yield error("emit.late.count", f"must be 1 or more, not {late.number}")
    if isinstance(spec.node.window, m.Session):
        yield error("emit.late", "counts start over whenever two sessions merge; use each or batch")


def _trigger(where: str, trigger: m.Trigger) -> Iterator[Finding]:  # noqa: C901 - a case for each trigger
    match trigger:
        case m.Every(micros):
            yield from _period(f"{where}.every", micros)
        case m.EveryEventTime(micros):
            yield from _period(f"{where}.event_time", micros)
        case m.Records(number):
            if number < 1:
                yield error(f"{where}.count", f"must be 1 or more, not {number}")
        case m.AnyOf(parts):
            yield from _parts(f"{where}.any_of", parts)
        case m.AllOf(parts):
            yield from _parts(f"{where}.all_of", parts)
        case m.Repeat(part, times):
            yield from _trigger(f"{where}.repeat.trigger", part)
            if times < 1:
                yield error(f"{where}.repeat.times", f"must be 1 or more, not {times}")
        case m.When(predicate):
            if why := why_not_callable(predicate):
                yield error(f"{where}.when", f"{why}; it returns whether a pane is due")
        case _:
            assert_never(trigger)


def _period(where: str, micros: int) -> Iterator[Finding]:
    if micros <= 0:
        yield error(where, "must be longer than 0, such as 30s")
    yield from too_long(where, micros)


def _parts(where: str, parts: tuple[m.Trigger, ...]) -> Iterator[Finding]:
    if len(parts) < _FEWEST:
        yield error(where, f"has {len(parts)} trigger{'' if len(parts) == 1 else 's'}; give {_FEWEST} or more")
    for index, part in enumerate(parts):
        yield from _trigger(f"{where}.{index}", part)


def session_panes(spec: WindowSpec) -> Iterator[Finding]:
    """Check triggers and mode of a session window.

    When sessions merge, only counts of records can be added up, and the rows of earlier panes change.
    """
    if not isinstance(spec.node.window, m.Session):
        return
    emit = spec.node.emit
    if not all(isinstance(part, m.Every | m.Records | m.AnyOf) for part in each_part(emit.early)):
        message = (
            "sessions merge, but the state of all_of, repeat, event_time or a function cannot be merged; use count, "
            "every, or any_of them"
        )
        yield error("emit.early", message)
    if emit.mode == "discard":
        message = (
            "discard does not work with sessions: when two of them merge, the rows of earlier panes change; use retract"
        )
        yield error("emit.mode", message)


def discard_panes(spec: WindowSpec) -> Iterator[Finding]:
    """Check that the on-time pane of mode `discard` does not depend on processing time.

    With count triggers, the pane depends on the order of records, which is a warning.
    """
    emit = spec.node.emit
    if emit.mode != "discard" or isinstance(spec.node.window, m.Session):
        return
    if has_every(emit.early):
        message = (
            "with mode discard the on-time pane holds only records that were in no early pane, so `every` would make "
            "it depend on processing time, which a replay does not repeat; use retract or accumulate, or early: "
            "{count: 100}"
        )
        yield error("emit.early", message)
    elif counts_records(emit.early):
        message = (
            "with mode discard, the pane of a record depends on the order of its key's records: "
            "a replay repeats it only if each key is in one partition"
        )
        yield warning("emit.early", message)


def lateness(spec: WindowSpec) -> Iterator[Finding]:
    """Check that the lateness is not negative, and at most a hundred years."""
    if spec.node.emit.lateness < 0:
        yield error("emit.lateness", "must not be negative")
    yield from too_long("emit.lateness", spec.node.emit.lateness)


def no_lateness(spec: WindowSpec, sink: m.Sink) -> Iterator[Finding]:
    """Warn about a lateness of 0: every late record goes to the late output and changes no result."""
    if spec.node.emit.lateness == 0 and not isinstance(spec.node.window, m.Global):
        late = sink.companion("late")
        message = (
            f"is 0s: every late record goes to {late} and revises no result; "
            "set it to the time for which windows accept late records, such as 1h"
        )
        yield warning("emit.lateness", message)
