"""The `window` section."""

from __future__ import annotations

from collections.abc import Callable

from windrow.api.calendar_size import parse_calendar_size
from windrow.api.yaml.fields import Fields, Read, read_one_of
from windrow.api.yaml.spot import Spot
from windrow.errors import PipelineError
from windrow.model import Calendar, CalendarUnit, Global, Hopping, Session, Tumbling, Window


def read_window(spot: Spot) -> Window:
    """Read ``{tumbling: 5m}``, ``{hopping: {size: 1h, slide: 1m}}``, ``{session: 30m}`` or ``{global: {}}``."""
    return read_one_of(spot, "kind of window", _KINDS)


def _tumbling(spot: Spot) -> Tumbling | Calendar:
    if spot.is_scalar:
        size = _size(spot)
        return Tumbling(size) if isinstance(size, int) else Calendar(*size)
    fields = Fields(spot, ("size", "zone", "offset"))
    read: Read[int | tuple[int, CalendarUnit]] = fields.required("size", _size)
    offset = fields.optional("offset", Spot.duration, 0)
    zone = fields.optional("zone", Spot.text, None)
    if "zone" in fields and isinstance(read.result, int):
        msg = (
            f"{spot.called} has a zone, and a size of always the same length, which no zone changes; "
            "leave the zone out, or give a number of days, weeks or months, such as 1 day"
        )
        fields.problem(spot.error(msg))
    fields.check()
    size = read.value
    if isinstance(size, int):
        return Tumbling(size, offset.value)
    return Calendar(*size, zone=zone.value or Calendar.zone, offset=offset.value)


def _size(spot: Spot) -> int | tuple[int, CalendarUnit]:
    """Read a duration, or so many days, weeks or months."""
    calendar = parse_calendar_size(spot.text())
    if calendar:
        return calendar
    try:
        return spot.duration()
    except PipelineError as exc:
        msg = f"{exc.message}; or so many days, weeks or months, such as 1 day"
        raise spot.error(msg) from exc


def _hopping(spot: Spot) -> Hopping:
    fields = Fields(spot, ("size", "slide", "offset"))
    size = fields.required("size", Spot.duration)
    slide = fields.required("slide", Spot.duration)
    offset = fields.optional("offset", Spot.duration, 0)
    fields.check()
    return Hopping(size.value, slide.value, offset.value)


def _session(spot: Spot) -> Session:
    return Session(spot.duration())


def _global(spot: Spot) -> Global:
    Fields(spot, ()).check()
    return Global()


_KINDS: dict[str, Callable[[Spot], Window]] = {
    "tumbling": _tumbling,
    "hopping": _hopping,
    "session": _session,
    "global": _global,
}
