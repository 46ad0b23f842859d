"""How many hopping windows a record is in."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error, warning
from windrow.model import Hopping, Pipeline, format_duration

_MOST = 10_000


def hopping_windows(pipeline: Pipeline) -> Iterator[Finding]:
    """A record is in at most 10,000 windows, and should be in one at least."""
    window = pipeline.window
    if not isinstance(window, Hopping) or window.size <= 0 or window.slide <= 0:
        return
    windows = -(-window.size // window.slide)
    where = "window.hopping.slide"
    if windows > _MOST:
        message = (
            f"puts each record into {windows} windows, which is a revision of each for a late one; "
            f"at most {_MOST} are kept: give a slide of {format_duration(-(-window.size // _MOST))} or more"
        )
        yield error(where, message)
    if window.slide > window.size:
        gap = format_duration(window.slide - window.size)
        message = (
            f"is longer than the size, so {gap} lies between two windows: records in it are counted nowhere; "
            f"give a slide of at most {format_duration(window.size)}"
        )
        yield warning(where, message)
