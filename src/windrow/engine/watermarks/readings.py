"""Readings of a file: the records of its log, and the watermark at them.

A log of readings has the rows of a file that were new, changed or deleted each time that it was read
(`windrow.connectors.file.source`), all with the time of the reading, which is later than that of the previous reading.
It is their event time if they have no time of their own. A reading is a single moment: at each of its records the
watermark is the clock before it, minus infinity at records of the first reading. So it does not matter where a step
ends within it, and a record that came before the file was read again is before the whole reading in the merged order.

A record begins a reading if its time is above all earlier times, so the log alone shows it. The clock may advance to
the time of a reading when all of its records have come: at the next reading, or at the last record of a reading, which
has `_more: false`. Old logs lack it; the next run ends their last reading.
"""

from __future__ import annotations

import json
import re
from typing import Final

import numpy as np

from windrow import model as m
from windrow.engine.columns import MIN_TIME, Micros

RECORD: Final = re.compile(
    rf'\{{"{m.LOG_TIME}": ([0-9]+), "{m.DELETED}": (true|false), (?:"{m.MORE}": (true|false), )?(.+)\}}'
)
"""A record: the time of reading (ms), whether the row was deleted, whether more of the reading follow, and the row."""
_END: Final = re.compile(rf'\{{"{m.LOG_TIME}": [0-9]+, "{m.DELETED}": (?:true|false), "{m.MORE}": false, '.encode())


def reading_record(time: int, row: str, *, deleted: bool, more: bool) -> str:
    """Return a record as a line; `row` is the text of a JSON object without the braces."""
    return f'{{"{m.LOG_TIME}": {time}, "{m.DELETED}": {json.dumps(deleted)}, "{m.MORE}": {json.dumps(more)}, {row}}}\n'


def ends_reading(value: bytes | None) -> bool:
    """Return whether a record is the last of its reading."""
    return value is not None and _END.match(value) is not None


def reading_watermarks(times: Micros, delay: int, reached: int, watermark: int) -> Micros:
    """Return the watermark at records, given their times in the order of the log.

    Before them the greatest time was `reached`, and the watermark at the last record `watermark`.
    """
    before = np.maximum.accumulate(np.concatenate(([reached], times)))[:-1]
    begins = (times > before) & (before != MIN_TIME)
    found: Micros = np.maximum.accumulate(np.where(begins, before - delay, watermark))
    return found
