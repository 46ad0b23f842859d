"""Readings of a file: the records of its log, and the watermarks at these records.

Each time a file is read, its log gets the rows that were new, changed or deleted (`windrow.connectors.file.source`),
all with the time of the reading, which is later than the time of the previous reading. If the rows have no time of
their own, this is their event time. A reading is a single moment: at each of its records the watermark is the clock
before the reading, which is minus infinity for the first reading. It therefore does not matter where a step ends within
a reading, and a record that arrived before the file was read again is before the whole reading in the merged order.

A record begins a reading if its time is greater than all earlier times, so the log alone shows where readings begin.
The clock may advance to the time of a reading when all of its records have arrived: at the next reading, or at the last
record of the reading, which has `_more: false`. Old logs lack this member; the next run ends their last reading.
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
"""A record: the time of reading (ms), whether its row was deleted, whether the reading has more records, the row."""
_END: Final = re.compile(rf'\{{"{m.LOG_TIME}": [0-9]+, "{m.DELETED}": (?:true|false), "{m.MORE}": false, '.encode())


def reading_record(time: int, row: str, *, deleted: bool, more: bool) -> str:
    """Return a record as a line; `row` is the text of a JSON object without its braces."""
    return f'{{"{m.LOG_TIME}": {time}, "{m.DELETED}": {json.dumps(deleted)}, "{m.MORE}": {json.dumps(more)}, {row}}}\n'


def ends_reading(value: bytes | None) -> bool:
    """Return True if a record is the last one of its reading."""
    return value is not None and _END.match(value) is not None


def reading_watermarks(times: Micros, delay: int, reached: int, watermark: int) -> Micros:
    """Return the watermark at each record, given the times of the records in the order of the log.

    Before these records, the greatest time was `reached`, and the watermark at the last record was `watermark`.
    """
    before = np.maximum.accumulate(np.concatenate(([reached], times)))[:-1]
    begins = (times > before) & (before != MIN_TIME)
    found: Micros = np.maximum.accumulate(np.where(begins, before - delay, watermark))
    return found
