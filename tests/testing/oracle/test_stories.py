"""The oracle over the logs of the stories: it must come to what they tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.testing.oracle import LogRecord, run
from windrow.testing.transcript import Story, read_story
from windrow.testing.transcript.story import Expect, ExpectDead, ExpectLate

STORIES = sorted((Path(__file__).parents[2] / "transcripts").glob("*.yaml"))


@pytest.fixture(params=STORIES, ids=lambda path: path.stem)
def story(request: pytest.FixtureRequest) -> Story:
    return read_story(request.param)


def test_oracle_comes_to_what_the_story_tells(story: Story) -> None:
    log = {
        partition: [LogRecord(offset, None, value) for offset, value in enumerate(values)]
        for partition, values in story.log.items()
    }
    answer = run(story.pipeline, log)
    assert {key: row[:-2] for key, row in answer.table.items()} == {
        (*row.window, *row.key): row.values for row in story.final.rows
    }
    late = {
        (row.partition, row.offset, *row.window)
        for step in story.steps
        if isinstance(step, ExpectLate)
        for row in step.rows
    }
    assert {missed[:4] for missed in answer.late} == late
    dead = {
        (row.partition, row.offset): row.reason.partition(":")[0]
        for step in story.steps
        if isinstance(step, ExpectDead)
        for row in step.rows
    }
    assert answer.dead == dead
    told = [row for step in story.steps if isinstance(step, Expect) for row in step.rows if row.pane == "on_time"]
    for row in told:
        assert answer.on_time[*row.window, *row.key] == row.values
