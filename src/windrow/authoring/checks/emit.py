"""Checks of emission: early triggers, panes by mode and kind of window, and lateness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow import model as m
from windrow.authoring.checks.time import too_long
from windrow.declare.findings import Finding, error, warning
from windrow.declare.python_code import why_not_callable
from windrow.expressions import WindowSpec
from windrow.model.triggers import counts_records, each_part, has_every

_FEWEST = 2


def triggers(spec: WindowSpec) -> Iterator[Finding]:
    """Counts and times are positive; a composite has two or more compatible triggers."""
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
    """Late records are counted from 1, in windows that do not merge."""
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
    """Sessions merge: only counts can be added then, and earlier panes change."""
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
    """The on-time pane must not depend on processing time; with counts, it depends on the order of records."""
    emit = spec.node.emit
    if emit.mode != "discard" or isinstance(spec.node.window, m.Session):
        return
    if has_every(emit.early):
        message = (
            "with mode discard the on-time pane holds the records of no early pane, so `every` would make it depend on "
            "processing time, which a replay does not repeat; use retract or accumulate, or early: {count: 100}"
        )
        yield error("emit.early", message)
    elif counts_records(emit.early):
        message = (
            "with mode discard, the pane of a record depends on the order of its key's records: "
            "a replay repeats it only if each key is in one partition"
        )
        yield warning("emit.early", message)


def lateness(spec: WindowSpec) -> Iterator[Finding]:
    """The lateness is not negative, and at most a hundred years."""
    if spec.node.emit.lateness < 0:
        yield error("emit.lateness", "must not be negative")
    yield from too_long("emit.lateness", spec.node.emit.lateness)


def no_lateness(spec: WindowSpec, sink: m.Sink) -> Iterator[Finding]:
    """Without lateness every late record goes to the late output and changes no result."""
    if spec.node.emit.lateness == 0 and not isinstance(spec.node.window, m.Global):
        late = sink.companion("late")
        message = (
            f"is 0s: every late record goes to {late} and revises no result; "
            "give the time for which windows accept late records (1h)"
        )
        yield warning("emit.lateness", message)
