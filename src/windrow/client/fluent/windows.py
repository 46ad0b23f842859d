"""Windows, triggers and delays: the arguments of stages that concern time.

A trigger is the argument `early` of `emit`. It counts a window's on-time records or the processing time since the last
pane, and starts again with each pane. `every_event_time` measures event time since the start of the window instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date

from windrow import model as m
from windrow.client.arguments import checked
from windrow.declare.arguments import Duration, duration_micros
from windrow.errors import PipelineError
from windrow.model.windows import parse_calendar_size, parse_day


@checked
def tumbling(
    size: Duration, *, offset: Duration = "0s", zone: str | None = None, origin: date | str | None = None
) -> m.Tumbling | m.Calendar:
    """Divide event time into windows of one size that do not overlap.

    Args:
        size: a duration, or a number of calendar hours, days, weeks or months: ``"6 hours"``, ``"1 day"``. (``"1d"`` is
            24 hours; a day in a time zone can be longer or shorter.)
        offset: how far window starts are shifted, relative to the epoch or on the local clock of the zone.
        zone: only for a calendar size, the time zone; by default, UTC.
        origin: only for a calendar size, a day on which a window begins, as a date or ``"2026-04-01"``; by default,
            1970-01-01, or for weeks Monday 1969-12-29.
    """
    calendar = parse_calendar_size(size) if isinstance(size, str) else None
    shift = duration_micros(offset, "window.tumbling.offset")
    if calendar:
        day = parse_day(origin) if isinstance(origin, str) else origin
        return m.Calendar(*calendar, zone=m.Calendar.zone if zone is None else zone, offset=shift, origin=day)
    length = duration_micros(size, "window.tumbling.size")
    if zone is not None or origin is not None:
        msg = (
            f"window.tumbling: {'an origin' if zone is None else 'a zone'} needs a number of hours, days, weeks or "
            f"months, such as '1 day'; {size!r} has the same length in every zone"
        )
        raise PipelineError(msg)
    return m.Tumbling(length, shift)


@checked
def hopping(size: Duration, *, slide: Duration, offset: Duration = "0s") -> m.Hopping:
    """Divide event time into overlapping windows [k * slide + offset, k * slide + offset + size)."""
    return m.Hopping(
        duration_micros(size, "window.hopping.size"),
        duration_micros(slide, "window.hopping.slide"),
        duration_micros(offset, "window.hopping.offset"),
    )


@checked
def cumulate(size: Duration, step: Duration, *, offset: Duration = "0s") -> m.Cumulate:
    """Divide event time into windows [k * size + offset, k * size + offset + i * step), which grow up to `size`."""
    return m.Cumulate(
        duration_micros(size, "window.cumulate.size"),
        duration_micros(step, "window.cumulate.step"),
        duration_micros(offset, "window.cumulate.offset"),
    )


@checked
def session(gap: Duration, *, max: Duration | None = None) -> m.Session:  # noqa: A002 - as in YAML
    """Put records of a key that are less than `gap` apart into one window, [first, last + gap).

    Args:
        gap: a duration; or an SQL expression over the fields of a record that computes its own gap in seconds. Records
            whose intervals [time, time + gap) overlap are then in one window.
        max: the longest gap, which only an expression has and needs; a record with a longer gap is a dead letter.
    """
    where = "window.session"
    if max is None:
        return m.Session(duration_micros(gap, where))
    if not isinstance(gap, str) or _is_duration(gap):
        msg = f"{where} has a max, but the same gap for all records; leave the max out, or give an SQL expression"
        raise PipelineError(msg)
    return m.Session(duration_micros(max, f"{where}.max"), gap)


def _is_duration(text: str) -> bool:
    try:
        m.parse_duration(text)
    except PipelineError:
        return False
    return True


@checked
def global_window() -> m.Global:
    """Put all records of a key into one window without an end, so `emit` needs `early`."""
    return m.Global()


@checked
def every(length: Duration) -> m.Every:
    """Fire when this much processing time has passed since the first record after the last pane.

    Replays do not reproduce these panes.
    """
    return m.Every(duration_micros(length, "emit.early.every"))


@checked
def every_event_time(length: Duration) -> m.EveryEventTime:
    """Fire each time the watermark has advanced by this length within the window; in YAML, `event_time`.

    It cannot be combined with other triggers.
    """
    return m.EveryEventTime(duration_micros(length, "emit.early.event_time"))


@checked
def every_count(number: int) -> m.Records:
    """Fire after every `number`-th on-time record; in YAML, `count`."""
    return m.Records(number)


@checked
def any_of(*triggers: m.Trigger) -> m.AnyOf:
    """Fire as soon as one of the triggers does."""
    return m.AnyOf(triggers)


@checked
def all_of(*triggers: m.Trigger) -> m.AllOf:
    """Fire once all triggers have fired since the last pane."""
    return m.AllOf(triggers)


@checked
def repeat(trigger: m.Trigger, *, times: int) -> m.Repeat:
    """Fire when a trigger fires, at most `times` times for a window and key."""
    return m.Repeat(trigger, times)


@checked
def when(predicate: Callable[[m.PaneSoFar], bool]) -> m.When:
    """Fire after each on-time record for which a function of a `windrow.PaneSoFar` is true; not available in YAML."""
    return m.When(predicate)


@checked
def adaptive(target: float, *, min: Duration, max: Duration) -> m.Adaptive:  # noqa: A002 the words of the YAML
    """Adapt the delay to the lateness that each partition has shown so far; it begins at `max`.

    `target` is the share of the records that should be on time, such as 0.999.
    """
    return m.Adaptive(
        target, duration_micros(min, "time.delay.adaptive.min"), duration_micros(max, "time.delay.adaptive.max")
    )


@checked
def delay_by_partition(delays: Mapping[int, Duration], *, default: Duration) -> m.DelayByPartition:
    """Set separate delays for some partitions: ``delay_by_partition({3: "30m"}, default="5m")``."""
    for partition in delays:
        if not isinstance(partition, int):
            msg = f"time.delay.by_partition: {partition!r} is not the number of a partition, such as 3"
            raise PipelineError(msg)
    found = [
        (partition, duration_micros(delay, f"time.delay.by_partition.{partition}"))
        for partition, delay in sorted(delays.items())
    ]
    return m.DelayByPartition(duration_micros(default, "time.delay.by_partition.default"), tuple(found))
