"""What holds for every follower of a system that sends its changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.connectors.postgres.cdc.test_crashes import Killed, killed_at
from tests.connectors.postgres.cdc.test_follow import following
from tests.contracts.systems import Script, System, Table
from tests.examples import examples

from windrow.connectors import follower
from windrow.connectors.log.store import LogStore
from windrow.connectors.open_sources import open_source
from windrow.errors import InputError, SourceError, SourceUnavailableError
from windrow.model import LogSource


@pytest.fixture(params=["script", pytest.param("table", marks=pytest.mark.service)])
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[System]:
    """A system that nobody has followed."""
    is_script = request.param == "script"
    made = Script(tmp_path) if is_script else Table(request.getfixturevalue("database"), tmp_path)
    yield made
    made.close()


def points_of(system: System) -> list[tuple[Any, str]]:
    """Return all calls that leave something behind in the log or the system."""
    return [
        (os, "pwrite"),
        (os, "fsync"),
        (Path, "rename"),
        (LogStore, "note"),
        (LogStore, "append"),
        (system.feed, "acknowledge"),
    ]


def killed(system: System, point: int, *, is_after: bool) -> bool:
    """Append all changes; return whether the process was killed at a call of `points_of` before that was done."""
    with killed_at(point, is_after=is_after, points=points_of(system)):
        try:
            system.follower().update()
        except Killed:
            return True
    return False


def test_each_change_is_appended_once_in_the_order_of_the_system(system: System) -> None:
    system.change(5, 4)
    system.follower().update()
    system.follower().update()
    assert sorted(system.numbers()) == [4, 5]
    copied = system.numbers()
    system.change(3)
    system.change(9, 1)
    system.follower().update()
    system.change(2)
    for _ in range(2):
        system.follower().update()
    assert system.numbers() == [*copied, 3, 9, 1, 2]
    source = open_source(LogSource(str(system.log)))
    assert source.ends() == {0: (0, 6)}


def test_an_empty_system_has_an_empty_log(system: System) -> None:
    system.follower().preflight()
    assert not system.log.exists()
    system.follower().update()
    assert open_source(LogSource(str(system.log))).ends() == {0: (0, 0)}


@pytest.mark.parametrize("is_after", [False, True])
def test_a_process_is_killed_at_every_point(system: System, *, is_after: bool) -> None:
    made = count(1)
    system.follower().update()
    expected = list[int]()
    for point in count():
        first, second, third = (next(made) for _ in range(3))
        system.change(first, second)
        system.change(third)
        expected += first, second, third
        was_killed = killed(system, point, is_after=is_after)
        before = system.lines()
        system.follower().update()
        assert system.numbers() == expected, point
        assert system.lines()[: len(before)] == before
        if not was_killed:
            assert point > 5
            return


@pytest.mark.parametrize("is_after", [False, True])
def test_a_process_is_killed_while_it_copies(system: System, *, is_after: bool) -> None:
    system.change(1, 2)
    for point in count():
        was_killed = killed(system, point, is_after=is_after)
        if system.lines():
            assert len(system.lines()) == 2
        system.follower().update()
        assert sorted(system.numbers()) == [1, 2], point
        if not was_killed:
            return


@examples(40)
@given(
    messages=st.lists(st.lists(st.none(), max_size=3), max_size=6),
    points=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=8),
)
def test_a_system_without_places_repeats_only_what_was_not_acknowledged(
    messages: list[list[None]], points: list[tuple[int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    system, made = Script(tmp_path_factory.mktemp("queue"), has_places=False), count()
    system.follower().update()
    sent = list[int]()
    for message in messages:
        numbers = [next(made) for _ in message]
        system.change(*numbers)
        sent += numbers
        for point, is_after in points[::2]:
            acknowledged = system.acknowledged
            known = {number for message in system.messages[:acknowledged] for number in message}
            before = system.numbers()
            killed(system, point, is_after=is_after)
            assert not known.intersection(system.numbers()[len(before) :])
    system.follower().update()
    assert list(dict.fromkeys(system.numbers())) == sent


def test_changes_are_appended_as_they_occur(system: System) -> None:
    system.follower().update()
    follow = system.follower()
    assert follow.lag is None
    with following(follow) as wait:
        for number in range(1, 4):
            system.change(number)
            wait(lambda number=number: system.numbers()[-1:] == [number])  # type: ignore[misc]
        wait(lambda: follow.lag is not None and follow.lag.bytes == 0)
    assert follow.lag is not None
    assert follow.lag.bytes is None
    assert system.numbers() == [1, 2, 3]


def test_only_one_process_appends(system: System) -> None:
    system.follower().update()
    follow = system.follower()
    with following(follow) as wait:
        wait(lambda: follow.lag is not None)
        with pytest.raises(SourceUnavailableError, match=r"another run follows the (script|table orders) into the log"):
            system.follower().update()
        system.change(1)
        wait(lambda: system.numbers() == [1])


def test_an_incomplete_line_is_removed(system: System) -> None:
    system.change(1)
    system.follower().update()
    with (system.log / "partition-0.jsonl").open("ab") as file:
        file.write(system.lines()[0][:-2])
    system.change(2)
    system.follower().update()
    assert system.numbers() == [1, 2]
    assert (system.log / "partition-0.jsonl").read_bytes().endswith(b"\n")


def test_lines_that_were_lost_before_they_were_acknowledged_are_written_again(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "ACKNOWLEDGE_SECONDS", 1e9)  # nothing is recorded before all has come
    system.follower().update()
    system.change(1)
    system.change(2, 3)
    records = [(LogStore, "note")]
    with killed_at(0, is_after=False, points=records), pytest.raises(Killed):
        system.follower().update()
    written = (system.log / "partition-0.jsonl").read_bytes()
    os.truncate(system.log / "partition-0.jsonl", len(system.lines()[0]) + 3)
    system.follower().update()
    assert (system.log / "partition-0.jsonl").read_bytes() == written


def test_a_log_that_is_older_than_what_was_acknowledged_is_refused(system: System, tmp_path: Path) -> None:
    system.change(1)
    system.follower().update()
    shutil.copytree(system.log, tmp_path / "older")
    system.change(2)
    system.follower().update()
    shutil.rmtree(system.log)
    shutil.copytree(tmp_path / "older", system.log)
    with pytest.raises(SourceError, match=r"is older than .*, so changes are lost"):
        system.follower().update()
    assert system.numbers() == [1]


@pytest.mark.parametrize("line", [b"{}\n", b"\n", b"\xff\n"])
def test_the_log_of_something_else_is_refused(system: System, line: bytes) -> None:
    system.log.mkdir()
    (system.log / "partition-0.jsonl").write_bytes(line)
    with pytest.raises(InputError, match=r"does not contain the changes of the (script|table orders): use another"):
        system.follower().update()
    assert system.lines() == [line]


@pytest.mark.parametrize("line", [b"{}\n", b"[1]\n", b"\xff\n"])
def test_a_record_of_another_program_is_refused(system: System, line: bytes) -> None:
    system.change(1)
    system.follower().update()
    with (system.log / "partition-0.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(SourceError, match=r"the last record of .* is not a change of the (script|table orders)"):
        system.follower().update()


def test_a_damaged_state_is_refused(system: System) -> None:
    system.follower().update()
    [state] = system.log.glob("*.json")
    state.write_text("[]")
    with pytest.raises(SourceError, match="is damaged: restore it, or remove the log"):
        system.follower().update()


def test_a_system_that_no_longer_answers_is_an_error_that_passes(system: System) -> None:
    system.change(1)
    system.follower().update()
    with system.silent():
        follow = system.follower()
        with pytest.raises(SourceUnavailableError) as caught, following(follow) as wait:
            wait(lambda: False)
    assert caught.value.passes
    system.change(2)
    system.follower().update()
    assert system.numbers() == [1, 2]
