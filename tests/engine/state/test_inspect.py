"""What is counted of the states that a run leaves."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.graphs import as_graph
from tests.runtime.spend import MINUTE, event, spend

from windrow.engine.schema import RAW
from windrow.engine.state.inspect import inspect_state
from windrow.model import Hopping, LogSource, Session, SqliteSink, Tumbling, Window
from windrow.runtime.memory import MemoryHost

PIPELINE = spend(LogSource("data/spend"), SqliteSink("spend.db", "spend"))


@pytest.mark.parametrize(
    ("window", "windows", "revisable"),
    [(Tumbling(5 * MINUTE), 2, 1), (Hopping(10 * MINUTE, 5 * MINUTE), 4, 1), (Session(5 * MINUTE), 2, 0)],
)
def test_windows_keys_and_bytes_are_counted(window: Window, windows: int, revisable: int) -> None:
    pipeline = replace(PIPELINE, window=window, key_groups=4)
    host = MemoryHost(as_graph(pipeline), [0])
    values = [event(minute, user) for minute, user in ((0, "a"), (1, "b"), (10, "a"), (17, "c"))]
    rows = [{"partition": 0, "offset": offset, "value": value} for offset, value in enumerate(values)]
    host.step(pa.Table.from_pylist(rows, schema=RAW))  # the watermark is at minute 7
    report = inspect_state(as_graph(pipeline), enumerate(host.states), largest=2)
    assert (report.windows, report.revisable) == (windows, revisable)
    assert sum(group.keys for group in report.groups) == 3
    assert sum(group.bytes for group in report.groups) == host.state_size
    assert sum(report.kinds.values()) < host.state_size
    assert len(report.largest) == 2
    assert report.largest == tuple(sorted(report.largest, reverse=True))
    assert report.clocks is not None
    assert report.clocks.next == {0: 4}


def test_before_the_first_step_there_is_nothing() -> None:
    report = inspect_state(as_graph(PIPELINE), enumerate(MemoryHost(as_graph(PIPELINE), [0]).states))
    assert report.clocks is None
    assert (report.windows, report.kinds, report.largest) == (0, {}, ())
