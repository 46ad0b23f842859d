"""Which window a time falls in."""

from __future__ import annotations

from windrow.core.micros import Micros
from windrow.model import Tumbling


def window_starts(window: Tumbling, times: Micros) -> Micros:
    """Return the start of each time's window; times before the epoch round down too."""
    return (times - window.offset) // window.size * window.size + window.offset
