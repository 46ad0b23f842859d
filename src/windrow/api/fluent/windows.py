"""What `window` takes."""

from __future__ import annotations

from windrow.api.fluent.length import Length, micros
from windrow.model import Tumbling


def tumbling(size: Length, *, offset: Length = "0s") -> Tumbling:
    """Cut time into windows [k * size + offset, (k + 1) * size + offset)."""
    return Tumbling(micros(size, "window.tumbling.size"), micros(offset, "window.tumbling.offset"))
