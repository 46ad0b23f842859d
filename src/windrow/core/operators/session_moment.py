"""What a step of sessions is given, beside the atoms that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from windrow.core.micros import Micros
from windrow.core.operators.session_atoms import FIRED, ON_TIME, UNSEEN, Atoms, Mask

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Moment:
    """Where a step leaves time: the low watermark `before` and after it, and whether the input has ended.

    `due` is the processing time up to which an unseen record makes an early pane due, None if none is.
    """

    before: int
    low: int
    end: bool
    due: int | None


@dataclass(frozen=True)
class Arrivals:
    """A step's records that have not expired: the number of the key, and what judges and orders them.

    `since` is the processing time at which they came.
    """

    keys: Numbers
    times: Micros
    watermarks: Micros
    late: Mask
    partitions: Numbers
    offsets: Numbers
    since: int


@dataclass(frozen=True)
class Rules:
    """What sessions are made of: gap and lateness in microseconds, and how late records are told."""

    gap: int
    lateness: int
    late: Literal["each", "batch"]

    def open(self, stored: Atoms, moment: Moment) -> Mask:
        """Return which of the stored atoms are on-time records of sessions that have not fired for good before."""
        ends = stored["closes"] + self.gap
        fired = (ends <= moment.before) | ((stored["seen"] == FIRED) & (ends <= moment.low))
        is_open: Mask = (stored["role"] == ON_TIME) & ~fired
        return is_open

    def moved(self, stored: Atoms, moment: Moment) -> Mask:
        """Return which of the stored atoms the passage of time writes."""
        seen = stored["seen"]
        passed = stored["closes"] + self.gap <= moment.low
        moved = (seen != FIRED) & (passed | moment.end)
        if moment.due is not None:
            moved |= (seen == UNSEEN) & (stored["since"] <= moment.due)
        written: Mask = moved & self.open(stored, moment)
        return written

    def gone(self, stored: Atoms, moment: Moment) -> Mask:
        """Return which of the stored atoms are in rows that nothing can touch any more but what is there."""
        gone: Mask = (stored["seen"] != UNSEEN) & (stored["end"] + self.gap + self.lateness <= moment.low)
        return gone
