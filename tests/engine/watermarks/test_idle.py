"""A run with idle partitions is repeated by its log and its clock journal, in any cut and without a tick."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.engine.outputs import unchanging
from tests.engine.pipelines import MINUTE, main, record
from tests.engine.watermarks.clocked import Clocked
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.engine.changelog import StepOutput
from windrow.engine.schema import CLOCKS, RAW
from windrow.engine.tick import PlayStep, Tick
from windrow.engine.watermarks.journal import NO_IDLE, IdleAtEnd, JournalReplay, WatermarkBounds
from windrow.model import Adaptive, Delay, Emit, EventTime, Watermark
from windrow.runtime.memory import MemoryHost

SECOND = 1_000_000
DELAYS: list[Watermark] = [Delay(1 * MINUTE), Adaptive(0.9, 30 * SECOND, 3 * MINUTE)]


@dataclass(frozen=True)
class Case:
    """A run with ticks, and the same log in other steps without them."""

    pipeline: Pipeline
    partitions: list[int]
    """Those that are there from the start; others join."""
    steps: list[PlayStep]
    recut: list[list[tuple[int, bytes]]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    time = EventTime(
        "t",
        draw(st.sampled_from(DELAYS)),
        idle=draw(st.sampled_from([2, 5])) * SECOND,
        all_idle=draw(st.sampled_from(["hold", "advance"])),
        jump=draw(st.sampled_from([None, 0, 4 * MINUTE])),
    )
    emit = Emit(lateness=draw(st.sampled_from([0, 8])) * MINUTE, late=draw(st.sampled_from(["each", "batch"])))
    chance = random.Random(draw(st.integers(0, 2**32)))
    partitions = draw(st.integers(2, 3))
    rates = [chance.choice([0.05, 0.3, 1.0]) for _ in range(partitions)]
    steps: list[PlayStep] = []
    log: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
    now = minute = 0.0
    for _ in range(draw(st.integers(2, 25))):
        now += chance.choice([0.5, 1, 3])
        if chance.random() < 0.5:
            steps.append(Tick(int(now * SECOND)))
        step = []
        for _ in range(chance.randint(0, 5)):
            minute += chance.uniform(0, 2)
            partition = chance.choices(range(partitions), rates)[0]
            value = (
                record(f"k{partition}", minute - chance.choice([0, 0, 2, 10, 30])) if chance.random() < 0.9 else b"x"
            )
            log[partition].append(value)
            step.append((partition, value))
        if step:
            steps.append(step)
    there = [partition for partition in log if partition == 0 or chance.random() < 0.4]
    return Case(main(time=time, emit=emit, key_groups=2), there, steps, list(_recut(log, chance)))


def _recut(log: dict[int, list[bytes]], chance: random.Random) -> Iterable[list[tuple[int, bytes]]]:
    """All in one step, or cut at random."""
    turns = [partition for partition in log for _ in log[partition]]
    if chance.random() < 0.7:
        chance.shuffle(turns)
    values = {partition: iter(log[partition]) for partition in log}
    size = chance.choice([1, 3, max(1, len(turns))])
    records = [(partition, next(values[partition])) for partition in turns]
    return (records[start : start + size] for start in range(0, len(records), size))


def play(
    case: Case,
    steps: Iterable[PlayStep],
    partitions: Sequence[int],
    bounds: WatermarkBounds,
    end: IdleAtEnd | None = None,
) -> StepOutput:
    """Run some steps, and then the end of the input or who is silent there; return all that came."""
    host = MemoryHost(as_graph(case.pipeline), partitions, bounds)
    offsets: dict[int, int] = {}
    outputs = []
    for step in steps:
        if isinstance(step, Tick):
            outputs += host.tick(step.micros)
            continue
        rows = []
        for partition, value in step:
            rows.append((partition, offsets.get(partition, 0), None, None, value))
            offsets[partition] = rows[-1][1] + 1
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), RAW, strict=True)]
        outputs += host.step(pa.table(columns, schema=RAW))
    outputs += host.end() if end is None else host.rest(end)
    return StepOutput.concat(output.rows for output in outputs)


def the_log_and_the_journal_give_the_same_answers(case: Case) -> None:
    told = play(case, case.steps, case.partitions, WatermarkBounds())
    reasons = told.clocks.column("reason").to_pylist()
    event(f"{'active' in reasons=}, {'joined' in reasons=}, late={told.late.num_rows > 0}")
    replayed = play(case, case.recut, range(3), WatermarkBounds.of(told.clocks))
    late = case.pipeline.emit.late
    assert unchanging(replayed, late) == unchanging(told, late)
    assert "idle" not in replayed.clocks.column("reason").to_pylist()


def test_the_log_and_the_journal_give_the_same_answers() -> None:
    examples(5)(given(cases())(the_log_and_the_journal_give_the_same_answers))()


def where_it_stands_a_replay_fires_what_the_run_has_fired(case: Case) -> None:
    told = play(case, case.steps, case.partitions, WatermarkBounds(), NO_IDLE)
    lengths = Counter(partition for step in case.steps if not isinstance(step, Tick) for partition, _ in step)
    again = JournalReplay.of(told.clocks, lengths)
    known = sorted({*case.partitions, *lengths})
    assume(case.pipeline.time.all_idle == "hold" or again.idle_at_end.partitions != tuple(known))
    event(f"{len(again.idle_at_end.partitions)} of {len(known)} are idle")
    replayed = play(case, case.recut, known, again.bounds, again.idle_at_end)
    late = case.pipeline.emit.late
    assert unchanging(replayed, late) == unchanging(told, late)
    assert WatermarkBounds.of(again.rows) == again.bounds


def test_where_it_stands_a_replay_fires_what_the_run_has_fired() -> None:
    examples(5)(given(cases())(where_it_stands_a_replay_fires_what_the_run_has_fired))()


@pytest.mark.long
def test_where_it_stands_a_replay_fires_what_the_run_has_fired_in_many_cases() -> None:
    settings(max_examples=1000)(given(cases())(where_it_stands_a_replay_fires_what_the_run_has_fired))()


@pytest.mark.long
def test_the_log_and_the_journal_give_the_same_answers_in_many_cases() -> None:
    settings(max_examples=1000)(given(cases())(the_log_and_the_journal_give_the_same_answers))()


@examples(15)
@given(cases())
def test_every_record_is_judged_by_the_same_watermark(case: Case) -> None:
    told = Clocked(case.pipeline, case.partitions)
    told.play(case.steps)
    journal = pa.concat_tables([CLOCKS.empty_table(), *told.journal])
    replayed = Clocked(case.pipeline, range(3), WatermarkBounds.of(journal))
    replayed.play(case.recut)
    assert replayed.watermarks == told.watermarks


def test_a_floor_holds_from_its_offset_on() -> None:
    rows = [
        {"source": "x", "partition": 1, "offset": offset, "clock": None, "low_watermark": low, "reason": reason}
        for offset, low, reason in [(5, 70, "active"), (3, 90, "idle"), (2, 50, "joined"), (7, None, "active")]
    ]
    bounds = WatermarkBounds.of(pa.Table.from_pylist(rows, schema=CLOCKS))
    assert bounds.rows == ((1, 2, 50), (1, 5, 70))
    run = Clocked(main(), [0, 1], bounds)
    run.feed([(1, b"x")] * 3 + [(1, record("A", 0))] * 4)
    assert [run.watermarks[1, offset] for offset in range(3, 7)] == [50, 50, 70, 70]
    # a step that ends behind a floor keeps it
    other = Clocked(main(), [1], bounds)
    other.feed([(1, b"x")] * 6)
    assert other.clocks.low() == 70
