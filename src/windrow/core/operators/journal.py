"""The clock journal's rows of a step."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from windrow.core import schema
from windrow.core.clocks import Clocks, Lost, Raised
from windrow.core.floors import LOST
from windrow.core.micros import BEFORE_ALL
from windrow.model import AnyPipeline

Row = tuple[int, int, int | None, int | None, str]


def journal(
    pipeline: AnyPipeline,
    clocks: Clocks,
    lost: Iterable[Lost],
    raised: Iterable[Raised],
    fallen: Iterable[int],
    *,
    end: bool,
) -> pa.Table:
    """Return the moves of the clocks that the records do not explain, as they stand after the step.

    There is a row for each partition that lost records, that joined late or came back, and that fell idle, and for each
    at the end of the input. A row holds the first offset that it is true of, the partition's clock there,
    and the low watermark, at which a partition joins or comes back (of one that lost records, its own watermark); both
    are null where no record has set them yet.
    """
    rows: list[Row] = [
        (one.partition, one.first, _time(one.clock), _time(one.watermark), f"{LOST}{one.what}") for one in lost
    ]
    rows += [
        (one.partition, one.first, _time(one.clock), _time(one.low), one.reason)
        for one in raised
        # before there is a low watermark, who joins is as who was there from the start
        if one.reason == "active" or one.low != BEFORE_ALL
    ]
    now = [(partition, "idle") for partition in fallen]
    if end:
        now += [(partition, "end") for partition in sorted(clocks.watermarks)]
    low = _time(clocks.low)
    for partition, reason in now:
        clock = clocks.clock(pipeline.time.watermark, partition)
        rows.append((partition, clocks.next.get(partition, 0), _time(clock), low, reason))
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return pa.table([[pipeline.source.label] * len(rows), *columns], schema=schema.CLOCKS)


def _time(micros: int) -> int | None:
    return None if micros == BEFORE_ALL else micros
