"""How a batch run goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from windrow.core.watermarks.journal import NO_BOUNDS, NO_IDLE, IdleAtEnd, WatermarkBounds
from windrow.sinks.base import Run
from windrow.sources import Cut

MAX_RECORDS = 1_000_000


@dataclass(frozen=True)
class BatchSettings:
    """What to read, and how: from `begin` (where the source begins) to `end` (where the log ends now).

    `floors` are what the clock journal of another run says, which this one repeats, `ends` the offsets at which that
    one was told the end of its input, in order, `silence` who was idle at the end, and `journal` the rows that are
    written again as they are. `at_end` is what the end does, if not what the pipeline says. Only windows that end after
    `since` (microseconds) are written, though all are judged.

    A step takes at most `max_records` offsets. What the key groups know at the end is written to the folder
    `savepoint`. What Spark says goes to the file `log`, or else to stderr. The rows are those of `run`, or of a new
    one.
    """

    begin: Cut | None = None
    end: Cut | None = None
    floors: WatermarkBounds = NO_BOUNDS
    ends: tuple[Cut, ...] = ()
    silence: IdleAtEnd = NO_IDLE
    journal: pa.Table | None = None
    at_end: Literal["fire", "hold"] | None = None
    since: int | None = None
    max_records: int = MAX_RECORDS
    master: str = "local[*]"
    savepoint: Path | None = None
    log: Path | None = None
    run: Run | None = None
