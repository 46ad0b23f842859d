"""The time zone of calendar windows."""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.model import Calendar, Pipeline


def window_zone(pipeline: Pipeline) -> Iterator[Finding]:
    """A zone is one that the time zone database knows."""
    if isinstance(pipeline.window, Calendar) and not _is_known(pipeline.window.zone):
        zone = pipeline.window.zone
        names = {name.lower(): name for name in zoneinfo.available_timezones()}
        close = difflib.get_close_matches(zone.lower().replace(" ", "_"), names, n=1)
        hint = f"did you mean {names[close[0]]!r}?" if close else "give a name such as Europe/Berlin"
        yield error("window.tumbling.zone", f"{zone!r} is no zone of the time zone database; {hint}")


def _is_known(zone: str) -> bool:
    if zone == "localtime":
        return False  # it is each machine's own
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
