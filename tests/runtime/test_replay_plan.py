"""What a replay says before it begins: where it reads, what it repeats, and what it may lack."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.graphs import as_graph
from tests.runtime.spend import spend
from tests.short_forms import Pipeline

from windrow.errors import InputError
from windrow.model import Every, KafkaSource, SqliteSink
from windrow.runtime.replay import ReplayOptions, plan_replay
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.runtime.stream.steps import StepOffsets

THERE = {0: (5, 10), 1: (0, 7), 2: (3, 3)}


@dataclass(frozen=True)
class _Topic:
    """A topic with these first and next offsets."""

    def ends(self) -> dict[int, tuple[int, int]]:
        return THERE


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """From a topic that no longer has its beginning."""
    monkeypatch.setattr("windrow.runtime.replay.open_sources", lambda _: _Topic())
    return spend(KafkaSource("localhost:1", "spend"), SqliteSink(str(tmp_path / "spend.db"), "spend"))


def test_a_topic_without_its_beginning_is_said_to_be_so(pipeline: Pipeline, tmp_path: Path) -> None:
    replay = plan_replay(as_graph(pipeline), ReplayOptions(tmp_path / "none"))
    assert replay.end == {0: 10, 1: 7, 2: 3}
    assert any("(its first offsets are 5 of partition 0, 3 of partition 2)" in note for note in replay.notes)
    assert replay.settings.at_end is None
    # else Spark writes its log to the terminal
    assert replay.settings.log == tmp_path / "none" / "spark.log"
    assert as_graph(replay.pipeline).sinks[0].sink.table == "spend_shadow"
    assert replay.tables == (("spend", "spend_shadow"),)


def test_partitions_that_the_live_run_has_not_met_do_not_hold_it_back(pipeline: Pipeline, tmp_path: Path) -> None:
    made = Checkpoint.new(tmp_path / "live", as_graph(pipeline), [0])
    made.write()
    note = StepOffsets({"spend": {"0": 8, "1": 0}})
    for part in ("offsets", "commits"):
        (made.spark / part).mkdir(parents=True)
        (made.spark / part / "3").write_text(f"v1\n{{}}\n{json.dumps(note.to_json())}\n")
    replay = plan_replay(as_graph(pipeline), ReplayOptions(tmp_path / "live", default=False))
    assert replay.end == {0: 8, 1: 0, 2: 3}
    # 1 and 2 are there, but nothing was read of them when the live run stood there
    assert replay.settings.idle_at_end.partitions == (1, 2)
    assert replay.settings.at_end == "hold"
    assert replay.notes[0] == f"up to the position of the live table: epoch 3 of the checkpoint {tmp_path / 'live'}"


def test_a_live_run_without_a_step_is_at_its_beginning(pipeline: Pipeline, tmp_path: Path) -> None:
    Checkpoint.new(tmp_path / "live", as_graph(pipeline), [0]).write()
    replay = plan_replay(as_graph(pipeline), ReplayOptions(tmp_path / "live", default=False))
    assert (
        replay.notes[0] == f"up to the position of the live table: the beginning of the checkpoint {tmp_path / 'live'}"
    )


def test_a_pipeline_from_the_latest_records_must_be_told_where_it_began(pipeline: Pipeline, tmp_path: Path) -> None:
    latest = replace(pipeline, source=KafkaSource("localhost:1", "spend", start="latest"))
    with pytest.raises(InputError, match=r"starts at the latest records: say at which offsets it started"):
        plan_replay(as_graph(latest), ReplayOptions(tmp_path / "none"))
    replay = plan_replay(as_graph(latest), ReplayOptions(tmp_path / "none", begin={0: 6, 1: 2, 2: 3}))
    assert as_graph(replay.pipeline).sources[0].source == KafkaSource("localhost:1", "spend", start="earliest")


def test_early_panes_by_processing_time_are_not_promised(pipeline: Pipeline, tmp_path: Path) -> None:
    early = replace(pipeline, emit=replace(pipeline.emit, early=Every(1_000_000)))
    notes = plan_replay(as_graph(early), ReplayOptions(tmp_path / "none")).notes
    assert any("early panes by processing time are not repeated" in note for note in notes)
    assert not any(
        "early panes" in note for note in plan_replay(as_graph(pipeline), ReplayOptions(tmp_path / "none")).notes
    )
