"""Rows that fail are found by halves; what the machine causes is never a row's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.graphs import as_graph

from windrow.authoring.pipeline_file import read_document
from windrow.engine.decode.decoder import Decoder
from windrow.engine.decode.evaluation import Evaluator
from windrow.engine.duckdb_sql import Connection, Projection, query
from windrow.engine.halving import compute_rows
from windrow.engine.operators.route import _FlatMap, _Route
from windrow.errors import RunError, SourceUnavailableError
from windrow.runtime.memory import play

PIPELINE = """
name: k
sources:
  s:
    source: {log: {path: unused}}
    decode: {id: long, t: timestamp_seconds, c: string, list: "array<string>?"}
    time: {field: t, delay: 0s}
streams:
  y: {from: s, derive: {v: "length(c)"}, where: "id > 0", select: [id, c, v, list]}
  z: {from: y, flat_map: list, element: one}
  x: {from: z, key: [c], window: {tumbling: 1h}, aggregate: {n: count()}}
sinks: {to_x: {from: x, sink: {sqlite: {path: unused.db, table: r}}}}
"""


def parts(numbers: list[int], bad: set[int], error: type[BaseException] = ValueError) -> list[object]:
    """Return what comes of numbers of which some fail: sums of parts, and the reasons."""
    failure = error("no")

    def compute(some: pa.Array) -> object:
        if bad.intersection(some.to_pylist()):
            raise failure
        return sum(some.to_pylist())

    return compute_rows("add", compute, pa.array(numbers, pa.int64()), lambda row, why: (row.to_pylist(), why))


@examples(30)
@given(st.lists(st.integers(0, 30), max_size=40), st.sets(st.integers(0, 30)))
def test_exactly_the_rows_that_fail_alone_are_dead(numbers: list[int], bad: set[int]) -> None:
    found = parts(numbers, bad)
    dead = [one for one in found if isinstance(one, tuple)]
    assert dead == [([number], "internal: add: ValueError: no") for number in numbers if number in bad]
    assert sum(one for one in found if isinstance(one, int)) == sum(number for number in numbers if number not in bad)


def test_rows_that_fail_only_together_are_not_dead() -> None:
    def compute(some: pa.Array) -> int:
        if len(some) > 3:
            raise pa.ArrowInvalid
        return len(some)

    assert compute_rows("add", compute, pa.array(range(10)), lambda *_: -1) == [2, 3, 2, 3]


def test_a_row_is_computed_once_more_with_new_connections() -> None:
    tries: list[duckdb.DuckDBPyConnection] = []
    duck = Connection()

    def compute(some: pa.Array) -> int:
        tries.append(duck.cursor)
        if len(tries) < 3:
            raise RuntimeError
        return len(some)

    assert compute_rows("add", compute, pa.array([1]), lambda *_: -1) == [-1]
    tries.clear()
    tries.append(duck.cursor)
    assert compute_rows("add", compute, pa.array([1]), lambda *_: -1) == [1]
    assert tries[-1] is not tries[0]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError(f"at 0x{id(parts):x} in /usr/lib/x.so, C:\\a\\b"), "RuntimeError: at ... in ..., ..."),
        (
            duckdb.InternalException("INTERNAL Error: index 5\nStack Trace:\n0xff"),
            "InternalException: INTERNAL Error: index 5",
        ),
        (ValueError("a\0b" + "x" * 500), f"ValueError: a\ufffdb{'x' * 185}..."),
        (SystemError(), "SystemError"),
    ],
)
def test_a_reason_is_a_function_of_the_record(error: Exception, text: str) -> None:
    def compute(_: pa.Array) -> str:
        raise error

    assert compute_rows("add", compute, pa.array([1]), lambda _, why: why) == [f"internal: add: {text}"]


def test_a_query_that_fails_for_a_row_is_a_failure_of_the_row() -> None:
    duck = Connection()

    def compute(rows: pa.Table) -> Any:  # noqa: ANN401
        return query(duck, "SELECT CAST(c AS BIGINT) AS n FROM t", t=rows).column("n").to_pylist()

    found = compute_rows("add", compute, pa.table({"c": ["1", "2", "x", "4"]}), lambda _, why: why)
    assert found[:1] + found[2:] == [[1, 2], [4]]
    assert str(found[1]).startswith("internal: add: ConversionException: ")


FAULTS = [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 64 failed"),
    OSError(28, "No space left on device"),
    ConnectionResetError(),
    TimeoutError(),
    ImportError("no module"),
    duckdb.OutOfMemoryException("failed to allocate"),
    duckdb.IOException("no space"),
    duckdb.ConnectionException("closed"),
    duckdb.InterruptException("interrupted"),
    duckdb.TransactionException("aborted"),
    SourceUnavailableError("the registry does not answer"),
    RunError("the user's code failed"),
    KeyboardInterrupt(),
    SystemExit(),
]
STEPS: dict[str, Callable[[pytest.MonkeyPatch, Callable[..., Any]], None]] = {
    "decode": lambda patch, fail: patch.setattr(Decoder, "_decode", fail),
    "derive": lambda patch, fail: patch.setattr(Evaluator, "_compute", fail),
    "flat_map": lambda patch, fail: patch.setattr(_FlatMap, "run", fail),
    "key": lambda patch, fail: patch.setattr(_Route, "_select", fail),
    "exchange": lambda patch, fail: patch.setattr(_Route, "_pack", fail),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_what_the_machine_causes_ends_the_step(
    step: str, fault: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = as_graph(read_document(PIPELINE, "k.yaml").pipeline)

    def fail(*_: object) -> None:
        raise fault

    STEPS[step](monkeypatch, fail)
    with pytest.raises(type(fault)) as raised:
        play(graph, [[(0, b'{"id": 1, "t": 1767261600, "c": "a", "list": ["x"]}')] * 2], "fire")
    assert raised.value is fault


@pytest.mark.parametrize("error", [duckdb.OutOfMemoryException, duckdb.IOException, duckdb.ConnectionException])
def test_lack_of_memory_in_a_query_is_no_failure_of_a_row(
    error: type[duckdb.Error], monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = error("no more")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr("windrow.engine.duckdb_sql._run_over", fail)
    monkeypatch.setattr("windrow.engine.duckdb_sql._Plan.run", fail)
    for compute in (
        lambda rows: query(Connection(), "SELECT * FROM t", t=rows),
        lambda rows: Projection.of(["n"], ["n"]).table(rows),
    ):
        with pytest.raises(RunError, match="no more"):
            compute_rows("add", compute, pa.table({"n": [1, 2]}), lambda _, why: why)
