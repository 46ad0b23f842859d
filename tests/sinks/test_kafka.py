"""Records of a Kafka topic."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pyarrow as pa
import pytest

import windrow as wr
from windrow.core import schema
from windrow.core.changelog import StepOutput
from windrow.expressions import sink_views
from windrow.model import as_graph
from windrow.sinks.kafka import KafkaRecords


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_null(number: float) -> None:
    pipeline = (
        wr.kafka("sales", servers="unused:9092")
        .decode(shop="string", t="timestamp", amount="double")
        .event_time("t", delay="1m")
        .key_by("shop")
        .window(wr.tumbling("1m"))
        .aggregate(total=wr.sum("amount"))
        .to(wr.kafka_sink("totals", servers="unused:9092"), mode="realtime")
    )
    (view,) = sink_views(as_graph(pipeline)).values()
    fields = schema.changes(view)
    row = {field.name: number if field.name == "total" else None for field in fields}
    rows = pa.Table.from_pylist([row | {"op": "insert"}], schema=pa.schema([(one.name, one.type) for one in fields]))
    (record,) = KafkaRecords(view).of(replace(StepOutput.empty(view), changes=rows))
    assert record.value is not None
    assert json.loads(record.value, parse_constant=pytest.fail)["total"] is None
