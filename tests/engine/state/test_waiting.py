"""Late records that wait for their window to fire, where the pipeline becomes another meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.engine.state.test_migrate import PLAIN, rows
from tests.graphs import as_graph
from tests.runtime.spend import event
from tests.short_forms import Pipeline

from windrow.engine.changelog import StepOutput
from windrow.engine.level import migrate
from windrow.engine.schema import RAW
from windrow.engine.state.widening import StateChange
from windrow.model import Aggregate, Count, DecimalType, Decode, Field, Max
from windrow.runtime.memory import MemoryHost

WIDER = Decode((*PLAIN.decode.fields[:2], Field("amount", DecimalType(16, 4), optional=True)))
MORE = (Aggregate("total", PLAIN.aggregates[0].function), Aggregate("most", Max("amount * 2")), Aggregate("n", Count()))


def step(host: MemoryHost, *records: tuple[int, int, float, str]) -> StepOutput:
    """Take records of (partition, offset, minute, amount)."""
    given = [
        {"partition": partition, "offset": offset, "value": event(minute, "a", amount)}
        for partition, offset, minute, amount in records
    ]
    return StepOutput.concat(group.rows for group in host.step(pa.Table.from_pylist(given, schema=RAW)))


@pytest.mark.parametrize(
    ("after", "plan"),
    [
        (replace(PLAIN, aggregates=MORE), StateChange((0, None, None), PLAIN.emit.lateness, same_records=False)),
        (
            replace(PLAIN, decode=WIDER),
            StateChange((0,), PLAIN.emit.lateness, same_records=False, were=(PLAIN.decode.fields[2],)),
        ),
        (
            replace(PLAIN, decode=WIDER, aggregates=MORE),
            StateChange((0, None, None), PLAIN.emit.lateness, same_records=False, were=(PLAIN.decode.fields[2],)),
        ),
    ],
    ids=["a new aggregate", "a wider type", "both"],
)
def test_more_can_wait_with_those_that_wait(after: Pipeline, plan: StateChange) -> None:
    host = MemoryHost(as_graph(PLAIN), [0, 1])
    # partition 1 holds the low watermark at 1, where partition 0 is at 7: what comes there for [0, 5) is late
    step(host, (0, 0, 2, "1.00"), (1, 0, 1, "1.00"), (0, 1, 7, "1.00"), (0, 2, 3, "9999999999.00"))
    states = host.states
    host = MemoryHost(as_graph(after), [0, 1])
    host.begin(migrate(as_graph(after), {"": plan}, states))
    assert step(host, (0, 3, 4, "100.00")).changes.num_rows == 0
    fired = step(host, (1, 1, 7, "1.00"))
    assert [(pane, float(total)) for pane, total in sorted(rows(fired, "pane", "total"))] == [
        ("late", 10_000_000_001.0),
        ("late", 10_000_000_101.0),
        ("on_time", 2.0),
    ]
    if len(after.aggregates) > 1:
        found = [float(most) for (most,) in rows(fired, "most") if most != "None"]
        assert max(found) == 19_999_999_998.0
