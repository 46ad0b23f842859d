"""What `window` takes."""

from __future__ import annotations

from windrow.api.calendar_size import parse_calendar_size
from windrow.api.fluent.length import Length, micros
from windrow.errors import PipelineError
from windrow.model import Calendar, Global, Hopping, Session, Tumbling


def tumbling(size: Length, *, offset: Length = "0s", zone: str | None = None) -> Tumbling | Calendar:
    """Cut time into windows of one size, one after the other.

    Args:
        size: a duration, or so many days, weeks or months of the calendar: ``"1 day"``, ``"2 weeks"``, ``"1 month"``.
            (``"1d"`` is 24 hours, which not every day in a zone has.)
        offset: how far from the epoch, or on the local clock of the zone, windows begin.
        zone: for days, weeks and months, the time zone; left out, UTC.

    Raises:
        PipelineError: size or offset is none, or a zone is given with a duration.
    """
    calendar = parse_calendar_size(size) if isinstance(size, str) else None
    shift = micros(offset, "window.tumbling.offset")
    if calendar:
        return Calendar(*calendar, zone=Calendar.zone if zone is None else zone, offset=shift)
    length = micros(size, "window.tumbling.size")
    if zone is not None:
        msg = (
            "window.tumbling: a zone goes with a number of days, weeks or months, such as '1 day', "
            f"and {size!r} has the same length in every zone"
        )
        raise PipelineError(msg)
    return Tumbling(length, shift)


def hopping(size: Length, *, slide: Length, offset: Length = "0s") -> Hopping:
    """Cut time into windows [k * slide + offset, k * slide + offset + size): a record is in several."""
    return Hopping(
        micros(size, "window.hopping.size"),
        micros(slide, "window.hopping.slide"),
        micros(offset, "window.hopping.offset"),
    )


def session(gap: Length) -> Session:
    """Put records of a key that are less than `gap` apart into one window, [first, last + gap)."""
    return Session(micros(gap, "window.session"))


def global_window() -> Global:
    """Put all records of a key into one window; `emit` needs `early`, as it has no end."""
    return Global()
