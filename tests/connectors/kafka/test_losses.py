"""What is said to be gone is exactly what a run was to read and the topic does not have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.connectors.kafka.source import KafkaTopic, find_losses
from windrow.model import KafkaSource

OFFSETS = st.integers(0, 50)
ENDS = st.dictionaries(st.integers(0, 4), st.tuples(OFFSETS, OFFSETS).map(lambda two: (min(two), max(two))), min_size=1)
STANDS = st.dictionaries(st.integers(0, 4), OFFSETS)


def stands_at(stands: dict[int, int]) -> dict[str, dict[str, int]]:
    return {"spend": {str(partition): offset for partition, offset in stands.items()}}


@given(ends=ENDS, stands=STANDS, known=st.booleans())
def test_where_a_run_stands_is_within_what_is_there_or_something_is_lost(
    ends: dict[int, tuple[int, int]], stands: dict[int, int], *, known: bool
) -> None:
    found = find_losses("spend", stands_at(stands), ends, made_anew=False if known else None)
    lost = {loss.partition: loss for loss in found.losses}
    all_stand = dict.fromkeys(ends, 0) | stands
    within = {p for p, at in all_stand.items() if ends.get(p, (0, 0))[0] <= at <= ends.get(p, (0, 0))[1]}
    assert lost.keys() == all_stand.keys() - within
    for partition, loss in lost.items():
        assert loss.stood == all_stand[partition]
        first, end = ends.get(partition, (0, 0))
        # a partition of the same topic that was cut back has no record before its end that was not read
        assert loss.goes_on == (end if known and loss.stood > end else first)
    moved = found.offset["spend"]
    assert moved.keys() == {str(partition) for partition in ends}
    assert all(ends[int(partition)][0] <= at <= ends[int(partition)][1] for partition, at in moved.items())
    assert all(moved[str(partition)] == all_stand[partition] for partition in within & ends.keys())


@given(ends=ENDS, stands=STANDS)
def test_all_that_was_read_of_a_topic_that_was_made_anew_is_lost(
    ends: dict[int, tuple[int, int]], stands: dict[int, int]
) -> None:
    found = find_losses("spend", stands_at(stands), ends, made_anew=True)
    assert {loss.partition for loss in found.losses} >= {partition for partition, at in stands.items() if at}
    assert found.offset == {"spend": {str(partition): first for partition, (first, _) in sorted(ends.items())}}


def test_what_is_said() -> None:
    ends = {0: (45, 60), 1: (0, 7), 2: (0, 30)}
    found = find_losses("spend", stands_at({0: 40, 1: 9, 2: 12, 3: 5}), ends, made_anew=False)
    assert list(map(str, found.losses)) == [
        "partition 0: offsets 40 to 44 are gone; the next record is at offset 45",
        "partition 1: it ends at offset 7, and had been read up to 9; the next record is at offset 7",
        "partition 3: it is gone, read up to offset 5; the next record is at offset 0",
    ]
    [first, *_] = find_losses("spend", stands_at({2: 12}), ends, made_anew=True).losses[1:]
    assert str(first).startswith("partition 2: the topic was made anew, read up to offset 12 before;")


@pytest.mark.parametrize(("made_anew", "goes_on"), [(False, 7), (True, 2), (None, 2)])
def test_a_partition_that_was_cut_back_goes_on_at_its_end_if_it_is_of_the_same_topic(
    goes_on: int, *, made_anew: bool | None
) -> None:
    found = find_losses("spend", stands_at({0: 9}), {0: (2, 7)}, made_anew=made_anew)
    assert [loss.goes_on for loss in found.losses] == [goes_on]
    assert found.offset == {"spend": {"0": goes_on}}


@pytest.mark.parametrize(
    ("before", "now", "goes_on"),
    [("id", "id", 7), ("id", "another", 2), (None, "id", 2), ("A" * 22, "A" * 22, 2)],
    ids=["the same", "made anew", "not noted", "a broker without ids"],
)
def test_a_topic_is_the_same_by_its_id(
    before: str | None, now: str, goes_on: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaTopic, "identity", lambda _: now)
    monkeypatch.setattr(KafkaTopic, "ends", lambda _: {0: (2, 7)})
    found = KafkaTopic(KafkaSource("nowhere:1", "spend")).find_losses(stands_at({0: 9}), before)
    assert [loss.goes_on for loss in found.losses] == [goes_on]
