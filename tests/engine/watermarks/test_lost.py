"""After records are gone, what is there and the journal say where the watermark is, as they did in the run itself."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, main, record
from tests.engine.watermarks.clocked import Clocked
from tests.examples import examples

from windrow.engine.watermarks.journal import JournalReplay, WatermarkBounds
from windrow.model import Adaptive, Delay, EventTime, Watermark


def records(chance: random.Random, count: int, hour: int) -> list[tuple[int, bytes]]:
    return [
        (chance.randint(0, 2), record("a", 60 * hour + chance.uniform(0, 60) - chance.choice([0, 0, 50])))
        for _ in range(count)
    ]


def fed(clocked: Clocked, values: list[tuple[int, bytes]], chance: random.Random) -> None:
    while values:
        size = chance.randint(1, len(values))
        clocked.feed(values[:size])
        del values[:size]


@given(
    begins=st.sampled_from(["further on", "anew"]),
    delay=st.sampled_from([Delay(MINUTE), Adaptive(0.5, MINUTE, 40 * MINUTE)]),
    jump=st.sampled_from([None, 0, 10 * MINUTE]),
    chance=st.randoms(use_true_random=False),
)
@examples(25)
def test_what_is_there_and_the_journal_say_where_the_watermark_is(
    begins: str, delay: Watermark, jump: int | None, chance: random.Random
) -> None:
    pipeline = main(time=EventTime("t", delay, jump=jump), key_groups=2)
    run = Clocked(pipeline, range(2))  # the third partition joins
    before = records(chance, chance.randint(1, 12), 1)
    after = records(chance, chance.randint(1, 12), chance.choice([0, 2]))
    stood = [sum(number == partition for number, _ in before) for partition in range(3)]
    fed(run, list(before), chance)
    run.watermarks.clear()
    goes_on = [0 if begins == "anew" else at + chance.choice([0, 5, 300]) for at in stood]
    for partition in range(3):
        if goes_on[partition] != stood[partition]:
            run.lose(partition, goes_on[partition])
    fed(run, list(after), chance)
    again = Clocked(pipeline, range(3), WatermarkBounds.of(pa.concat_tables(run.journal)))
    again.offsets = dict(enumerate(goes_on))
    fed(again, list(_shuffled(after, chance)), chance)
    lost = {partition for partition in range(3) if goes_on[partition] != stood[partition]}
    expected = {at: value for at, value in run.watermarks.items() if at[0] in lost}
    assert {at: value for at, value in again.watermarks.items() if at[0] in lost} == expected


def _shuffled(values: list[tuple[int, bytes]], chance: random.Random) -> Iterable[tuple[int, bytes]]:
    """The same partitions with the same records in them, in another order among them."""
    each = {partition: iter([one for one in values if one[0] == partition]) for partition in range(3)}
    turns = [partition for partition, _ in values]
    chance.shuffle(turns)
    return (next(each[partition]) for partition in turns)


def test_the_row_of_a_loss() -> None:
    delays: list[Watermark] = [Delay(MINUTE), Adaptive(0.9, MINUTE // 2, 3 * MINUTE)]
    for watermark in delays:
        run = Clocked(main(time=EventTime("t", watermark)), range(2))
        run.lose(1, 3)  # of what was never read, no clock is known
        run.feed([(0, record("a", 10)), (1, record("a", 20))])
        step = run.lose(0, 40)
        assert run.clocks.next == {0: 40, 1: 4}
        [row] = step.journal.to_pylist()
        assert (row["partition"], row["offset"], row["reason"]) == (0, 40, "lost: they are gone")
        assert row["clock"] - row["low_watermark"] >= row["clock"].resolution
        [first] = run.journal[0].to_pylist()
        assert (first["partition"], first["offset"], first["clock"], first["low_watermark"]) == (1, 3, None, None)


def test_who_is_idle_and_has_lost_records_is_still_idle() -> None:
    run = Clocked(main(time=EventTime("t", Delay(MINUTE), idle=MINUTE)), range(2))
    run.feed([(0, record("a", 10)), (1, record("a", 20))], tick=0)
    run.feed([(1, record("a", 30))], tick=2 * MINUTE)
    run.lose(0, 9)
    journal = pa.concat_tables(run.journal)
    assert journal.column("reason").to_pylist() == ["idle", "lost: they are gone"]
    assert JournalReplay.of(journal).idle_at_end.partitions == (0,)
