"""State is bounded: when the windows of many keys are gone, so is what was kept for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from tests.graphs import as_graph
from tests.short_forms import AnyPipeline

import windrow as wr
from windrow.engine.schema import RAW
from windrow.runtime.memory import MemoryHost

HOUR = 3_600_000_000
STEPS = 10

Make = Callable[[], AnyPipeline]


def _timed(window: object | None) -> AnyPipeline:
    keyed = (
        wr.log("unused")
        .decode(user="string", t="timestamp_micros", amount="long")
        .event_time("t", delay="1m")
        .key_by("user")
    )
    if window is None:
        returns = {"n": "long"}
        return keyed.process(_count, state={"n": wr.value_state("long")}, ttl="10m", returns=returns).to(_SINK).graph  # type: ignore[return-value]
    return keyed.window(window).aggregate(total=wr.sum("amount")).emit(lateness="10m").to(_SINK).graph  # type: ignore[arg-type, return-value]


def _count(ctx, record):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG001 - as a user writes it
    n = (ctx.state.n.get() or 0) + 1
    ctx.state.n.set(n)
    ctx.emit(n=n)


_SINK = wr.sqlite("unused.db", table="t")
SHAPES: dict[str, Make] = {
    "tumbling": lambda: _timed(wr.tumbling("5m")),
    "hopping": lambda: _timed(wr.hopping("10m", slide="2m")),
    "session": lambda: _timed(wr.session("5m")),
    "process": lambda: _timed(None),
}


def _records(first: int, keys: np.ndarray, times: np.ndarray) -> pa.Table:
    """Records of partition 0 with the offsets that follow `first`."""
    values = [
        b'{"user": "u%d", "t": %d, "amount": 1}' % pair for pair in zip(keys.tolist(), times.tolist(), strict=True)
    ]
    rows = len(values)
    return pa.table(
        [
            pa.array(np.zeros(rows, dtype=np.int32)),
            pa.array(np.arange(first, first + rows)),
            pa.nulls(rows, RAW.field("log_time").type),
            pa.nulls(rows, pa.binary()),
            pa.array(values, pa.binary()),
        ],
        schema=RAW,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("keys", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_state_returns_to_where_it_was(shape: str, keys: int) -> None:
    host = MemoryHost(as_graph(SHAPES[shape]()), [0])
    host.step(_records(0, np.array([0]), np.array([0])))
    host.step(_records(1, np.array([0]), np.array([10 * HOUR])))
    before = host.state_size
    largest, each = 0, keys // STEPS
    for step in range(STEPS):
        times = 20 * HOUR + np.arange(each) * (HOUR // keys) + step * (HOUR // STEPS)
        host.step(_records(2 + step * each, np.arange(each) + step * each, times))
        largest = max(largest, host.state_size)
    host.step(_records(2 + keys, np.array([0]), np.array([30 * HOUR])))
    assert largest > before + each
    # the last record's own window, and at most a few bytes of numbers that have grown
    assert host.state_size <= before + 1_000
