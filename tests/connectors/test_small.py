"""The sinks without a database, and the parts that sinks share."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.steps import DAY, RUN, change, pipeline, step
from tests.graphs import as_graph, sink_spec_of

from windrow.connectors.memory import CollectSink
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.postgres.sink import PostgresTables
from windrow.connectors.sink import Run
from windrow.connectors.sqlite.tables import SqliteTables
from windrow.connectors.tables import decimal_text, plain_values, quote, quote_all, significant_digits, utc_text
from windrow.errors import PipelineError, SinkError
from windrow.model import PostgresSink, SqliteSink

MODEL = pipeline(SqliteSink("spend.db", "spend"))
OUTPUT = step(MODEL, [change("insert", 0, "A", Decimal(1), 1)], clocks=[["spend", 0, 1, DAY, DAY, "end"]])


def test_the_model_says_which_sink() -> None:
    ((_, sqlite),) = open_sinks(as_graph(MODEL))
    ((_, postgres),) = open_sinks(as_graph(pipeline(PostgresSink("postgresql://", "spend"))))
    assert isinstance(sqlite, SqliteTables)
    assert isinstance(postgres, PostgresTables)
    assert sqlite.needs_rows
    assert postgres.needs_rows


def test_importing_sinks_is_cheap() -> None:
    names = "{'pyarrow', 'numpy', 'psycopg', 'sqlite3'}"
    heavy = f"import sys, windrow.connectors.open_sinks; print(*{names} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


def test_collect_keeps_steps_once() -> None:
    sink = CollectSink()
    assert sink.open(RUN) is None
    sink.commit(0, OUTPUT)
    sink.commit(0, step(MODEL))
    sink.commit(1, OUTPUT)
    sink.close()
    assert sink.open(RUN) == 1
    assert sink.steps[0] is OUTPUT
    assert sink.output(sink_spec_of(MODEL).rows).changes.num_rows == 2
    with pytest.raises(SinkError, match=r"received step 3 but expects step 2"):
        sink.commit(3, OUTPUT)
    with pytest.raises(SinkError, match="another run"):
        sink.open(Run("spend", "run-2"))
    sink.clear()
    assert sink.open(Run("spend", "run-2")) is None
    assert sink.output(sink_spec_of(MODEL).rows).changes.num_rows == 0


def test_names_are_quoted() -> None:
    assert quote_all(["a", 'b"; DROP TABLE x; --', "select"]) == '"a", "b""; DROP TABLE x; --", "select"'
    for name in ("", "a\x00b"):
        with pytest.raises(PipelineError, match="cannot name a table or a column"):
            quote(name)


def test_times_are_as_long_as_they_need() -> None:
    micros = [0, 1, 1_000, 1_500_000, None, -1, -62_135_596_920_000_000, 253_402_300_800_000_000]
    assert utc_text(pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))).to_pylist() == [
        "1970-01-01 00:00:00",
        "1970-01-01 00:00:00.000001",
        "1970-01-01 00:00:00.001",
        "1970-01-01 00:00:01.500",
        None,
        "1969-12-31 23:59:59.999999",
        "0000-12-31 23:58:00",
        "10000-01-01 00:00:00",
    ]
    assert utc_text(pa.array([], pa.timestamp("us", "UTC"))).to_pylist() == []


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1)), st.integers(0, 38), st.integers(0, 3))
def test_decimals_in_plain_notation(numbers: list[int], scale: int, skip: int) -> None:
    values = [Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)) for n in numbers]
    column = pa.array(values, pa.decimal128(38, scale)).slice(skip)
    assert decimal_text(column).to_pylist() == [f"{value:f}" if value else f"{abs(value):f}" for value in values[skip:]]
    assert significant_digits(column).to_pylist() == [len(str(abs(n)).strip("0")) for n in numbers[skip:]]


def test_values_in_values_are_json() -> None:
    element = pa.struct([("price", pa.decimal128(12, 2)), ("at", pa.timestamp("us", "UTC")), ("share", pa.float64())])
    rows = [[{"price": Decimal("1.5"), "at": 0, "share": math.nan}, None], None, []]
    made = plain_values(pa.array(rows, pa.list_(element)))
    assert made == [[{"price": "1.50", "at": "1970-01-01T00:00:00Z", "share": "nan"}, None], None, []]
    json.dumps(made, allow_nan=False)
