"""Pipelines and steps for the tests of sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors.sink import Run
from windrow.engine import schema
from windrow.engine.changelog import StepOutput
from windrow.expressions import SinkSpec
from windrow.model import (
    Aggregate,
    Count,
    DecimalType,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    LogSource,
    Sink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
)

Model = Pipeline | SinkSpec
RUN = Run("spend", "run-1")
DAY = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FIELDS = (
    Field("user", StringType()),
    Field("t", TimestampType("millis")),
    Field("amount", DecimalType(12, 2)),
)


def pipeline(sink: Sink, **changed: Any) -> Pipeline:  # noqa: ANN401 - any part of a pipeline
    """A pipeline that sums and counts amounts per user in 5 minutes, with parts of it changed."""
    plain = Pipeline(
        name=RUN.pipeline,
        source=LogSource("data/spend"),
        decode=Decode(FIELDS),
        time=EventTime("t", Delay(60_000_000)),
        key=("user",),
        window=Tumbling(300_000_000),
        aggregates=(Aggregate("total", Sum("amount")), Aggregate("events", Count())),
        emit=Emit(),
        sink=sink,
    )
    return replace(plain, **changed)


def change(op: str, minute: int, *key_and_values: Any, pane: str = "on_time", revision: int = 0) -> list[Any]:  # noqa: ANN401
    """A row of the changelog for the window that begins at that minute of the day."""
    start = DAY + minute * MINUTE
    return [op, pane, revision, start, start + 5 * MINUTE, *key_and_values]


def step(
    model: Model,
    changes: Sequence[Sequence[Any]] = (),
    *,
    late: Sequence[Sequence[Any]] = (),
    dead: Sequence[Sequence[Any]] = (),
    clocks: Sequence[Sequence[Any]] = (),
) -> StepOutput:
    """A step from rows."""
    return StepOutput(
        changes=table(schema.changes(sink_spec_of(model).rows), changes),
        late=table(schema.LATE, late),
        dead=table(schema.DEAD, dead),
        clocks=table(schema.CLOCKS, clocks),
    )


def table(form: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """An Arrow table from rows."""
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [() for _ in form]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, form, strict=True)]
    return pa.Table.from_arrays(arrays, schema=form)


def edges(model: Pipeline) -> StepOutput:
    """A step with a window that begins before the year 1, and one that ends after the year 9999."""
    empty = step(model, [change("insert", 0, "A", Decimal(1), 1), change("insert", 0, "B", Decimal(1), 1)])
    changes = empty.changes
    for name, micros in (
        ("window_start", [-62_135_596_920_000_000, 253_402_300_620_000_000]),
        ("window_end", [-62_135_596_620_000_000, 253_402_300_920_000_000]),
    ):
        at = changes.schema.get_field_index(name)
        times = pa.array(micros).cast(schema.MICROS)
        changes = changes.set_column(at, changes.schema.field(at), times)
    return StepOutput(changes, empty.late, empty.dead, empty.clocks)
