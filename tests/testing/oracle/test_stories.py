"""The oracle over the logs of the stories: it must come to what they tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.expressions import WindowSpec, is_window_spec
from windrow.model.triggers import has_every
from windrow.testing.oracle import Answer, Journal, LogRecord, run
from windrow.testing.oracle.answer import WindowedSource
from windrow.testing.transcript import Story, read_story
from windrow.testing.transcript.rows import table_text
from windrow.testing.transcript.story import Expect, ExpectDead, ExpectLate, TableRow

STORIES = [
    path
    for path in sorted((Path(__file__).parents[2] / "transcripts").glob("*.yaml"))
    if not path.stem.startswith(("graph_", "rules_"))
]
"""Graphs and rules have oracles of their own, in `tests/properties`."""

JOURNALS = {
    # what the ticks of these stories do to the clocks: partition 1 comes back at 10:06
    "idle_hold": Journal(floors={1: ((1, 1_767_261_960_000_000),)}),
    # the only partition comes back at 10:05:30, and then at 10:06
    "idle_advance": Journal(floors={0: ((1, 1_767_261_930_000_000), (3, 1_767_261_960_000_000))}),
    # partition 1 is left out of the low watermark
    "idle_silent": Journal(low=1_767_262_020_000_000),
}


@pytest.fixture(params=STORIES, ids=lambda path: path.stem)
def story(request: pytest.FixtureRequest) -> Story:
    return read_story(request.param)


def rows(spec: WindowSpec, table: Answer) -> list[str]:
    """Return the oracle's table as a story writes it, without early panes that ticks make."""
    keys = len(spec.key)
    found = [
        TableRow((int(str(start)), int(str(end))), tuple(key[:keys]), row[:-2])
        for (start, end, *key), row in table.table.items()
        if not (has_every(spec.node.emit.early) and row[-2] == "early")
    ]
    return sorted(table_text(spec, row) for row in found)


def test_oracle_comes_to_what_the_story_tells(story: Story) -> None:
    spec, final = story.streams[""], story.final[""]
    assert is_window_spec(spec)
    log = {
        partition: [LogRecord(offset, None, value) for offset, value in enumerate(values)]
        for partition, values in story.log.items()
    }
    answer = run(WindowedSource.of(story.pipeline), log, JOURNALS.get(Path(story.file).stem, Journal()))
    if (spec.node.emit.mode, spec.node.emit.late) != ("discard", "batch"):
        assert rows(spec, answer) == sorted(table_text(spec, row) for row in final.rows)
    late = {
        (row.partition, row.offset, *(row.window or ()))
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
        if row.partition is not None
    }
    assert answer.dead == dead
    dead_rows = [
        row for step in story.steps if isinstance(step, ExpectDead) for row in step.rows if row.partition is None
    ]
    assert sum(answer.dead_rows.values()) == len(dead_rows)
    told = [row for step in story.steps if isinstance(step, Expect) for row in step.rows if row.pane == "on_time"]
    for row in told:
        if row.op in {"insert", "update_after"}:
            mine = TableRow(row.window, row.key, answer.on_time[*row.window, *row.key])
            theirs = TableRow(row.window, row.key, row.values)
            assert table_text(spec, mine) == table_text(spec, theirs)
