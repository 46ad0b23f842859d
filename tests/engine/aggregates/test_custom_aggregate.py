"""What aggregates in Python are given, and what becomes of their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.outputs import play
from tests.engine.pipelines import MINUTE, main, raw, record
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.engine.level import open_levels
from windrow.engine.messages import EndOfInput, Packet
from windrow.engine.operators.ingest import Ingest
from windrow.engine.state.store import MemoryState
from windrow.errors import RunError
from windrow.model import (
    Aggregate,
    Custom,
    DataType,
    Global,
    LongType,
    Session,
    StringType,
    Tumbling,
    Window,
)
from windrow.runtime.memory import MemoryHost

TEXT = StringType()


@dataclass(frozen=True)
class Written:
    """The amounts in the order in which they are given; `fails` in one of its methods."""

    fails: str = ""
    returns: DataType = TEXT

    def zero(self) -> str:
        return ""

    def step(self, state: str, columns: Mapping[str, pa.Array]) -> str:
        self._may_fail("step")
        return state + "".join(str(amount) for amount in columns["amount"].to_pylist())

    def merge(self, one: str, other: str) -> str:
        self._may_fail("merge")
        return one + other

    def finish(self, state: str) -> Any:  # noqa: ANN401 - of the type that `returns` says, or not
        self._may_fail("finish")
        return state

    def _may_fail(self, method: str) -> None:
        if self.fails == method:
            msg = f"no\nluck in {method}"
            raise LookupError(msg)


def custom(aggregate: Written) -> Pipeline:
    return main(aggregates=(Aggregate("total", Custom(aggregate, ("amount",))),), key_groups=1)


def test_records_are_in_the_order_of_the_log_in_whatever_order_the_packets_come() -> None:
    pipeline = custom(Written())
    packets: list[Packet] = []
    for partition in (0, 1):
        log = raw(partition, 0, *(record("A", 1, 10 * partition + number) for number in range(3)))
        packets += Ingest(as_graph(pipeline)).run(log.to_batches())
    packets.append(Packet(0, EndOfInput()))
    for given in (packets, packets[::-1]):
        (level,) = open_levels(as_graph(pipeline), [0, 1])
        changes = level.step(0, (packet.message for packet in given), MemoryState()).rows.changes
        assert changes.column("total").to_pylist() == ["0.001.002.0010.0011.0012.00"]


@pytest.mark.parametrize("method", ["step", "merge", "finish"])
def test_an_error_names_the_aggregate_and_the_method(method: str) -> None:
    steps = [[(0, record("A", 1))]] * 2
    said = rf"^key user='A': the aggregate 'total' failed in {method}\(\): LookupError: no luck in {method} \("
    said += r".*\.py:\d+\); what was"
    with pytest.raises(RunError, match=said):
        play(custom(Written(method)), steps, "fire")


def test_a_result_of_another_type_names_the_aggregate() -> None:
    host = MemoryHost(as_graph(custom(Written(returns=LongType()))), [0])
    host.step(raw(0, 0, record("A", 1)))
    with pytest.raises(RunError, match=r"the aggregate 'total' failed in finish\(\): TypeError: the result is '1.00' "):
        host.end()


@dataclass(frozen=True)
class Unlucky(Written):
    """Fails for amounts of 9, where it is given them, or when it merges or finishes a state with one."""

    def step(self, state: str, columns: Mapping[str, pa.Array]) -> str:
        self._refuse("step", "".join(str(amount) for amount in columns["amount"].to_pylist()))
        return super().step(state, columns)

    def merge(self, one: str, other: str) -> str:
        self._refuse("merge", one + other)
        return super().merge(one, other)

    def finish(self, state: str) -> str:
        self._refuse("finish", state)
        return state

    def _refuse(self, method: str, state: str) -> None:
        if self.fails == method and "9" in state:
            msg = "nine"
            raise ValueError(msg)

    def _may_fail(self, method: str) -> None:
        """Fail for no other reason."""


@pytest.mark.parametrize("method", ["step", "merge", "finish"])
@pytest.mark.parametrize(
    "window", [Tumbling(60 * MINUTE), Session(60 * MINUTE), Global()], ids=["tumbling", "session", "global"]
)
def test_an_error_names_the_key_of_many(window: Window, method: str) -> None:
    pipeline = replace(custom(Unlucky(method)), window=window)
    steps = [
        [(0, record(f"user {user:02}", minute, 9 if user == 37 else 1)) for user in range(60)] for minute in (1, 2)
    ]
    with pytest.raises(RunError, match=rf"^key user='user 37': the aggregate 'total' failed in {method}\(\): "):
        play(pipeline, steps, "fire")
