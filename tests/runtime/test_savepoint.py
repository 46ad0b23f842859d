"""A savepoint's folder: whole or not there, and what is damaged is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.graphs import as_graph
from tests.runtime.spend import spend

from windrow.connectors.sink import Run
from windrow.engine.state.store import MemoryState
from windrow.errors import CheckpointError, InputError
from windrow.model import LogSource, SqliteSink
from windrow.runtime.savepoint import Savepoint, fingerprint

PIPELINE = replace(spend(LogSource("data/spend"), SqliteSink("spend.db", "spend")), key_groups=3)
SAVEPOINT = Savepoint(Run("user-spend", "one"), 7, {0: 12, 1: 0, 11: 5}, (0, 1), 3, fingerprint(as_graph(PIPELINE)))


def states(number: int = 3) -> Iterator[tuple[int, MemoryState]]:
    """The first group knows nothing, the others more and more."""
    for group in range(number):
        state = MemoryState()
        for bucket in range(group):
            state.set_summary(b"{}")
            state.set("panes", bucket - 1, bytes(range(256)) * group)
        yield group, state


def test_what_tells_the_log_from_another_one_is_kept(tmp_path: Path) -> None:
    told = replace(SAVEPOINT, at={"spend": {"0": 12}}, identity="the topic's id")
    told.write(tmp_path / "told", states())
    assert Savepoint.read(tmp_path / "told") == told


def known(folder: Path) -> list[tuple[int, bytes | None, dict[tuple[str, int], bytes]]]:
    return [(group, state.summary(), dict(state.items())) for group, state in Savepoint.states(folder)]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A savepoint."""
    SAVEPOINT.write(tmp_path / "kept" / "savepoint", states())
    return tmp_path / "kept" / "savepoint"


def test_what_is_written_is_read(written: Path) -> None:
    assert Savepoint.read(written) == SAVEPOINT
    assert known(written) == [(group, state.summary(), dict(state.items())) for group, state in states()]
    assert dict(Savepoint.state(written, 2).items()) == known(written)[2][2]
    assert [path.name for path in written.parent.iterdir()] == ["savepoint"]


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_is_found_wherever_it_is(data: st.DataObject, written: Path) -> None:
    path = data.draw(st.sampled_from(sorted(written.iterdir())))
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[place] ^ data.draw(st.integers(1, 255))
    damaged = data.draw(
        st.sampled_from([whole[:place], whole[:place] + bytes([changed]) + whole[place + 1 :], whole + b"\n"])
    )
    path.write_bytes(damaged)
    try:
        with pytest.raises(CheckpointError, match=path.name):
            known(written)
    finally:
        path.write_bytes(whole)
    assert len(known(written)) == 3


def test_a_file_that_is_gone_is_named(written: Path) -> None:
    (written / "group-0001.arrow").unlink()
    with pytest.raises(CheckpointError, match=r"group-0001\.arrow cannot be read"):
        known(written)
    (written / "savepoint.json").unlink()
    with pytest.raises(CheckpointError, match=r"is not a savepoint: there is no savepoint\.json"):
        Savepoint.read(written)


def test_a_folder_in_use_is_left_alone(written: Path) -> None:
    with pytest.raises(InputError, match="is not empty"):
        replace(SAVEPOINT, epoch=8).write(written, states())
    assert Savepoint.read(written).epoch == 7


def test_a_savepoint_that_cannot_be_finished_leaves_nothing(tmp_path: Path) -> None:
    def breaks() -> Iterator[tuple[int, MemoryState]]:
        yield from states(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SAVEPOINT.write(tmp_path / "savepoint", breaks())
    with pytest.raises(ValueError, match=r"3 key groups was given the states of \['0', '1'\]"):
        SAVEPOINT.write(tmp_path / "savepoint", states(2))
    assert list(tmp_path.iterdir()) == []
