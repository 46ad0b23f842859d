"""What `event_time` takes as `delay`, beside a duration."""

from __future__ import annotations

from windrow.api.fluent.length import Length, micros
from windrow.model import Adaptive


def adaptive(target: float, *, min: Length, max: Length) -> Adaptive:  # noqa: A002 the words of the YAML
    """Follow the lateness that each partition has shown so far.

    Args:
        target: the part of the records that is to be on time, such as 0.999.
        min: the least delay.
        max: the greatest, and the one to begin with.
    """
    return Adaptive(target, micros(min, "time.delay.adaptive.min"), micros(max, "time.delay.adaptive.max"))
