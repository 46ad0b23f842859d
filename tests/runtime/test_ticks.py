"""Processing time on the stream host: told by ticks, the same when a step is run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.engine.outputs import only, unchanging
from tests.graphs import as_graph, sink_spec_of
from tests.runtime.conftest import MakeLog
from tests.runtime.runs import Runner, Scene, read
from tests.runtime.spend import HOUR, Files, event, spend
from tests.runtime.test_end import Counter
from tests.runtime.test_play import PIPELINE, record, rows
from tests.runtime.test_trigger import Clock
from tests.short_forms import Pipeline

from windrow.connectors.memory import CollectSink
from windrow.connectors.open_sources import open_source
from windrow.engine.changelog import StepOutput
from windrow.engine.columns import MAX_TIME, MIN_TIME
from windrow.engine.messages import Packet
from windrow.engine.tick import PlayStep, Tick
from windrow.engine.watermarks.journal import WatermarkBounds
from windrow.errors import SinkError
from windrow.model import Every, SqliteSink
from windrow.runtime import memory
from windrow.runtime.memory import MemoryHost
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.rows import read_packets
from windrow.runtime.stream import run as stream
from windrow.runtime.stream.control import ControlReader, Planned, Ticks
from windrow.runtime.stream.run import StreamRun
from windrow.runtime.stream.steps import StepOffsets, Trigger
from windrow.telemetry.reports import StepReport

pytestmark = pytest.mark.usefixtures("spark")

SECOND = 1_000_000
NOON = 1_767_268_800 * SECOND


def idling(pipeline: Pipeline, seconds: int) -> Pipeline:
    """The pipeline with a partition idle after so many seconds."""
    return replace(pipeline, time=replace(pipeline.time, idle=seconds * SECOND))


def other(user: str, minute: int, amount: int) -> tuple[int, bytes]:
    """A record in partition 1."""
    return 1, record(user, minute, amount)[1]


def test_a_story_with_ticks_is_the_same_on_both_hosts() -> None:
    steps: list[PlayStep] = [
        Tick(NOON),
        [record("A", 0, 5), other("B", 1, 3)],
        [],
        Tick(NOON + 4 * SECOND),
        [record("A", 8, 1)],
        Tick(NOON + 8 * SECOND),
        [other("B", 2, 7), record("A", 9, 2)],
        Tick(NOON + 9 * SECOND),
    ]
    pipeline = idling(PIPELINE, 8)
    told = only(memory.play(as_graph(pipeline), steps, "fire"))
    assert rows(only(stream.play(as_graph(pipeline), steps, "fire"))) == rows(told)
    reasons = [reason for output in told for reason in output.clocks.column("reason").to_pylist()]
    assert reasons == ["idle", "active", "end", "end"]
    assert told[5].changes.num_rows == 2, "the tick at which partition 1 is idle fires both windows"


class Planner:
    """Plans steps as Spark does, at a time that a test sets, over a log of so many records."""

    def __init__(self, due: Path, every: int = SECOND, planned: Planned = None) -> None:
        self.due, self.clock, self.log = due, Clock(NOON / SECOND), Counter(0, 100)
        self.due.write_text(f"{MIN_TIME}")
        trigger = Trigger(every, self.clock)
        at = StepOffsets({"n": 0})
        self.reader = ControlReader(self.log, at, 2, trigger=trigger, ticks=Ticks(trigger, due), planned=planned)
        self.at = at.to_json()

    def step(self, seconds: float) -> int | None:
        """Plan a step so many seconds after noon; return the records that it reads, or None if there is none."""
        self.clock.seconds = NOON / SECOND + seconds
        before, self.at = self.at, self.reader.latestOffset(self.at, ReadAllAvailable())
        return None if self.at == before else self.at["at"]["n"] - before["at"]["n"]

    @property
    def tick(self) -> float:
        """The last tick, in seconds after noon."""
        return (int(self.at["tick"]) - NOON) / SECOND


def test_a_tick_is_a_whole_second_and_a_clock_that_goes_back_gives_no_new_one(tmp_path: Path) -> None:
    planner = Planner(tmp_path / "due")
    assert planner.step(0.9) == 0
    assert planner.tick == 0
    assert planner.step(-5) is None
    start = StepOffsets({"n": 0}).to_json()
    [partition] = planner.reader.partitions(start, planner.at)
    frames = (batch.to_pandas() for batch in planner.reader.read(partition))
    assert list(read_packets(frames)) == [Packet(group, Tick(NOON)) for group in range(2)]
    # a step that was planned before has the tick that it had
    begin, end = (StepOffsets({"n": 0}, tick=tick).to_json() for tick in (5, 9))
    again = Planner(tmp_path / "again", planned=(begin, end))
    again.at = begin
    assert again.step(0) == 0
    assert again.at == end
    # a bounded run has no ticks
    planner.reader.prepareForTriggerAvailableNow()
    planner.log.last = 3
    assert planner.step(9) == 3
    assert planner.tick == 0


def test_a_live_run_has_one_tick_a_turn(tmp_path: Path) -> None:
    planner = Planner(tmp_path / "due", every=10 * SECOND)
    assert [planner.step(at) for at in (0, 9.9, 10, 12.5)] == [0, None, 0, None]
    assert planner.tick == 10


def test_a_step_without_records_is_taken_only_if_its_tick_is_due(tmp_path: Path) -> None:
    planner = Planner(tmp_path / "due")
    assert planner.step(0) == 0
    planner.due.write_text(f"{NOON + 3 * SECOND + 1}")
    assert [planner.step(at) for at in (0.5, 1, 2, 3, 3.9)] == [None] * 5
    assert planner.step(4.1) == 0
    assert planner.tick == 4
    planner.due.write_text(f"{MAX_TIME}")
    assert [planner.step(at) for at in (5, 60, 3600)] == [None] * 3
    # records come with the tick of their step, and do not wait for the next turn
    planner.log.last = 2
    assert planner.step(3600.4) == 2
    assert planner.tick == 3600
    planner.log.last = 3
    assert planner.step(3600.6) is None
    assert planner.step(3601) == 1
    assert planner.tick == 3601


def test_the_first_tick_of_a_story_is_the_first_that_is_known() -> None:
    # partition 0 is silent since noon, and not since the records before it, of which no time is known
    steps: list[PlayStep] = [[record("A", 0, 5)], Tick(NOON), [other("B", 31, 1)], Tick(NOON + SECOND)]
    pipeline = idling(PIPELINE, 8)
    assert rows(only(stream.play(as_graph(pipeline), steps, "hold"))) == rows(
        only(memory.play(as_graph(pipeline), steps, "hold"))
    )


@pytest.mark.parametrize("kind", ["log", pytest.param("kafka", marks=pytest.mark.long)])
def test_a_silent_partition_does_not_hold_the_others_back(
    kind: str, make_log: MakeLog, tmp_path: Path, runner: Runner
) -> None:
    log = make_log(kind, 2)
    log.append([(0, event(0)), (0, event(60)), (1, event(1, "u2"))])
    pipeline = idling(spend(log.source, SqliteSink(str(tmp_path / "spend.db"), "spend")), 2)

    def scene() -> Scene:
        before = yield read(3)
        assert before.idle == []
        # when all are silent, time stands still
        log.append([(0, event(61))])

        def is_left_out(report: StepReport) -> bool:
            if report.idle == [1]:
                return True
            # where steps are slow, one record does not keep partition 0 awake until the next tick
            log.append([(0, event(61))])
            return False

        fallen = yield is_left_out
        assert fallen.low_watermark is not None
        assert fallen.held_back_by == [0]
        log.append([(1, event(2, "u2"))])
        back = yield lambda report: report.offsets[1] == 2
        # partition 0 may be silent by now
        assert 1 not in back.idle

    assert runner.live(pipeline, scene()) == "asked"


def test_a_quiet_run_takes_the_step_of_an_early_pane_and_none_before_it(
    files: Files, tmp_path: Path, runner: Runner
) -> None:
    pipeline = spend(files.source, SqliteSink(str(tmp_path / "spend.db"), "spend"), early=Every(3 * SECOND))
    files.append([(0, event(0))])

    def scene() -> Scene:
        for number in range(2):
            came = yield read(number + 1)
            assert came.inserts == came.revisions == 0
            shown = yield lambda report: report.inserts + report.revisions > 0
            assert shown.epoch == came.epoch + 1
            files.append([(0, event(1))])

    assert runner.live(pipeline, scene()) == "asked"


class Trying(CollectSink):
    """Notes every step it is given; refuses those that it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Callable[[StepOutput], bool] = lambda _: False
        self.refused: dict[int, StepOutput] = {}

    def commit(self, epoch: int, *outputs: StepOutput) -> None:
        if self.refuses(outputs[0]):
            self.refused[epoch] = outputs[0]
            msg = "refused"
            raise SinkError(msg)
        super().commit(epoch, *outputs)


def test_a_step_that_is_run_again_sees_the_same_ticks_and_the_journal_gives_a_replay_the_same_answers(
    files: Files, tmp_path: Path
) -> None:
    hold = idling(spend(files.source, SqliteSink("unused.db", "spend"), lateness=10 * HOUR, at_end="hold"), 2)
    pipeline = replace(hold, emit=replace(hold.emit, at_end="fire"))
    sink = Trying()
    settings = RunSettings(tmp_path / "checkpoint", every=50_000)
    minutes = iter(range(60, 10_000))

    def go_on(report: StepReport) -> None:
        del report
        files.append([(0, event(next(minutes)))])

    def refused(reason: str) -> None:
        sink.refuses = lambda output: reason in output.clocks.column("reason").to_pylist()
        with pytest.raises(SinkError, match="refused"):
            StreamRun(as_graph(hold), sink, settings).run(go_on)
        sink.refuses = lambda _: False

    def bounded(pipeline: Pipeline) -> None:
        StreamRun(as_graph(pipeline), sink, replace(settings, until_end=True)).run(lambda _: None)

    files.append([(0, event(0)), (1, event(1, "u2")), (1, event(7, "u2"))])
    refused("idle")
    # a bounded run, which has no ticks of its own, takes up the step at which two partitions fell idle
    bounded(hold)
    files.append([(1, event(2, "u2")), (2, event(3, "u3")), (1, event(59, "u2")), (0, event(next(minutes)))])
    refused("active")
    bounded(pipeline)

    assert len(sink.refused) == 2
    for epoch, output in sink.refused.items():
        assert rows([sink.steps[epoch]]) == rows([output])
    told = sink.output(sink_spec_of(pipeline).rows)
    assert told.clocks.column("reason").to_pylist() == ["idle"] * 2 + ["active"] * 2 + ["end"] * 3
    assert {"on_time", "late"} == set(told.changes.column("pane").to_pylist())
    source = open_source(pipeline.source)
    host = MemoryHost(as_graph(pipeline), source.partitions(), WatermarkBounds.of(told.clocks))
    outputs = [*host.step(pa.Table.from_batches(source.read_all())), *host.end()]
    assert unchanging(StepOutput.concat(output.rows for output in outputs), "each") == unchanging(told, "each")
    replay = RunSettings(tmp_path / "replay", until_end=True)
    again = CollectSink()
    StreamRun(as_graph(pipeline), again, replay, bounds=WatermarkBounds.of(told.clocks)).run(lambda _: None)
    assert unchanging(again.output(sink_spec_of(pipeline).rows), "each") == unchanging(told, "each")
