"""The clock journal's rows of a step."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from windrow.core import schema
from windrow.core.clocks import Clocks
from windrow.core.micros import BEFORE_ALL
from windrow.core.packet import Packet
from windrow.core.watermark import clock_of
from windrow.model import Pipeline


def journal(pipeline: Pipeline, clocks: Clocks, joined: Iterable[tuple[Packet, int]], *, end: bool) -> pa.Table:
    """Return a row for each partition that joined late, and for each at the end of the input.

    A row holds the first offset that it is true of, the partition's clock there, and the low watermark at which a
    partition joined; both are null where no record has set them yet.
    """
    rows = [
        (packet.partition, packet.first, _time(clock_of(pipeline.time.watermark, low)), _time(low), "joined")
        for packet, low in joined
        if low != BEFORE_ALL
    ]
    if end:
        rows += [
            (
                partition,
                clocks.next[partition],
                _time(clock_of(pipeline.time.watermark, watermark)),
                _time(clocks.low),
                "end",
            )
            for partition, watermark in sorted(clocks.watermarks.items())
        ]
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return pa.table([[pipeline.source.label] * len(rows), *columns], schema=schema.CLOCKS)


def _time(watermark: int) -> int | None:
    return None if watermark == BEFORE_ALL else watermark
