"""Runs of rows: what a process keeps of them, and that nothing depends on it."""

from __future__ import annotations

from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from windrow.engine.columns import MAX_TIME
from windrow.engine.schema import TIME
from windrow.engine.state import runs
from windrow.engine.state.runs import Runs
from windrow.engine.state.store import MemoryState

SCHEMA = pa.schema([(TIME, pa.int64()), ("value", pa.int64())])


def rows(*times: int, value: int = 0) -> pa.Table:
    return pa.table({TIME: times, "value": [value] * len(times)}, schema=SCHEMA)


class Worker:
    """A process that takes steps: it has a cache of its own."""

    def __init__(self) -> None:
        self.cache = runs._Cache()  # noqa: SLF001 - what is looked at

    def step(self, group: KeyGroup, made: pa.Table, after: int = -MAX_TIME) -> pa.Table:
        """Add rows, and return all."""
        with mock.patch.object(runs, "_cache", self.cache):
            found = Runs.decode("rows", group.summary)
            found.add(made, after, group.state)
            group.summary = found.encode()
            return found.table(SCHEMA, group.state)

    @property
    def digests(self) -> set[str]:
        return set(self.cache._tables)  # noqa: SLF001 - the same


class KeyGroup:
    """The state of a key group."""

    def __init__(self) -> None:
        self.state = MemoryState()
        self.summary: object = None

    @property
    def digests(self) -> set[str]:
        return set(Runs.decode("rows", self.summary)._digests)  # noqa: SLF001 - the same


def test_what_others_have_dropped_is_dropped_when_the_state_is_seen_again() -> None:
    one, other, group = Worker(), Worker(), KeyGroup()
    one.step(group, rows(*range(64)))
    for number in range(6):
        one.step(group, rows(100 + number))
    assert group.digests == one.digests
    for number in range(12):
        other.step(group, rows(200 + number))
    assert not one.digests <= group.digests
    one.step(group, rows(300))
    assert one.digests == group.digests
    assert len(one.cache._lists) == 1  # noqa: SLF001 - what is looked at


def test_what_another_has_merged_into_one_run_is_dropped() -> None:
    one, other, group = Worker(), Worker(), KeyGroup()
    one.step(group, rows(1))
    other.step(group, rows(*range(9)))
    assert len(group.digests) == 1
    one.step(group, rows(2))
    assert one.digests == group.digests


def test_what_is_not_seen_any_more_is_forgotten() -> None:
    worker, gone, group = Worker(), KeyGroup(), KeyGroup()
    worker.step(gone, rows(1, 2, 3))
    with mock.patch.object(runs, "_UNSEEN", 20):
        for number in range(20):
            worker.step(group, rows(number))
    assert worker.digests == group.digests
    assert worker.cache._bytes == sum(table.nbytes for table in worker.cache._tables.values())  # noqa: SLF001


def test_the_bytes_that_are_kept_are_bounded() -> None:
    worker = Worker()
    with mock.patch.object(runs, "_CACHED_BYTES", 1_000):
        for number in range(10):
            group = KeyGroup()
            assert worker.step(group, rows(*range(40), value=number)).num_rows == 40
            assert worker.cache._bytes <= 1_000  # noqa: SLF001 - what is looked at


@examples(30)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 9), st.booleans()), max_size=40))
def test_no_result_depends_on_what_is_kept(steps: list[tuple[int, int, int, bool]]) -> None:
    """Whichever process takes a step, and with equal rows in several key groups."""
    workers, groups, alone = (
        [Worker() for _ in range(3)],
        [KeyGroup() for _ in range(3)],
        [KeyGroup() for _ in range(3)],
    )
    with mock.patch.object(runs, "_UNSEEN", 5), mock.patch.object(runs, "_CACHED_BYTES", 200):
        for number, (worker, group, count, is_past) in enumerate(steps):
            made = rows(*range(number, number + count))
            after = number - 5 if is_past else -MAX_TIME
            found = workers[worker].step(groups[group], made, after)
            assert found == Worker().step(alone[group], made, after)
            assert groups[group].summary == alone[group].summary
