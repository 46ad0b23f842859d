"""Run a story on a host: its expectations beside the host's output, as written and in other cuts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from windrow.core.changelog import StepOutput
from windrow.errors import Place
from windrow.model import Pipeline
from windrow.testing.transcript.changelog_check import apply_changelog, table_rows
from windrow.testing.transcript.hosts import Play, load_play
from windrow.testing.transcript.reader import read_story
from windrow.testing.transcript.rebatch import cuts
from windrow.testing.transcript.report import Difference, StoryResult
from windrow.testing.transcript.rows import change_text, dead_text, late_text, table_text
from windrow.testing.transcript.story import (
    ChangeRow,
    DeadRow,
    End,
    Expect,
    ExpectDead,
    ExpectLate,
    LateRow,
    MarkWatermark,
    RecordStep,
    Story,
    TellTime,
)
from windrow.testing.transcript.views import Observed, by_log, observe, repeated, views


def run_story(path: str | Path, *, host: str = "memory", rebatch: int = 0, seed: int = 0) -> StoryResult:
    """Read a story and run it; raise TranscriptError if it is none."""
    return check_story(read_story(path), load_play(host), host=host, rebatch=rebatch, seed=seed)


def check_story(story: Story, play: Play, *, host: str, rebatch: int = 0, seed: int = 0) -> StoryResult:
    """Run a story as written.

    If that went well and `rebatch` is not 0, run it in so many random cuts, all in one step, and one record a step: the
    on-time panes, the late output, the dead letters and the final table must be the same, and with one partition and
    ``late: each`` the changelog too (`windrow.testing.transcript.views`).
    """
    outputs = play(story.pipeline, story.feed, story.pipeline.emit.at_end)
    differences = _as_written(story, outputs)
    runs = 1
    if rebatch and not differences:
        as_written = observe(story.pipeline, outputs)
        for cut in cuts(story.feed, rebatch, seed):
            outputs = play(story.pipeline, cut.steps, story.pipeline.emit.at_end)
            differences += _as_cut(story, cut.name, as_written, observe(story.pipeline, outputs))
            runs += 1
    return StoryResult(story, host, runs, tuple(differences))


@dataclass
class _Since:
    """The output since it was last read."""

    changes: list[ChangeRow] = field(default_factory=list)
    late: list[LateRow] = field(default_factory=list)
    dead: list[DeadRow] = field(default_factory=list)

    def add(self, observed: Observed) -> None:
        self.changes += [entry.row for entry in observed.changes]
        self.late += observed.late
        self.dead += observed.dead


def _as_written(story: Story, outputs: Sequence[StepOutput]) -> list[Difference]:
    """Go through the story beside the outputs of its steps."""
    coming = iter(outputs)
    since = _Since()
    found: list[Difference | None] = []
    for step in story.steps:
        match step:
            case RecordStep() | MarkWatermark() | TellTime() | End():
                since.add(observe(story.pipeline, [next(coming)]))
            case Expect(rows, place):
                found.append(_changes(story.pipeline, place, rows, since.changes))
                since.changes = []
            case ExpectLate(rows, place):
                found.append(_late(story.pipeline, place, rows, since.late))
                since.late = []
            case ExpectDead(rows, place):
                found.append(_dead(place, rows, since.dead))
                since.dead = []
            case _:
                assert_never(step)
    found.append(_dead(story.final.place, (), since.dead))
    everything = observe(story.pipeline, outputs)
    found.append(_final(story, everything))
    found.append(_consistent(story, everything))
    return [difference for difference in found if difference]


def _as_cut(story: Story, cut: str, expected: Observed, actual: Observed) -> list[Difference]:
    """Compare another cut of the log with the run as written."""
    found = [
        _difference(f"{what}, {cut}", story.final.place, view(story.pipeline, expected), view(story.pipeline, actual))
        for what, view in views(story)
    ]
    found.append(_consistent(story, actual, f", {cut}"))
    return [difference for difference in found if difference]


def _difference(what: str, place: Place, expected: Iterable[str], actual: Iterable[str]) -> Difference | None:
    """Return the difference of two lists of rows; None if there is none."""
    one, other = tuple(expected), tuple(actual)
    return None if one == other else Difference(what, place, one, other)


def _changes(
    pipeline: Pipeline, place: Place, expected: Iterable[ChangeRow], actual: Iterable[ChangeRow]
) -> Difference | None:
    """Compare changes in (window, key) order; those of one window and key stay in their own."""
    one, other = (
        [change_text(pipeline, row) for row in sorted(rows, key=lambda row: (row.window, row.key))]
        for rows in (expected, actual)
    )
    return _difference("expect", place, one, other)


def _late(
    pipeline: Pipeline, place: Place, expected: Sequence[LateRow], actual: Sequence[LateRow]
) -> Difference | None:
    one, other = ([late_text(pipeline, row) for row in by_log(rows)] for rows in (expected, actual))
    return _difference("late", place, one, other)


def _dead(place: Place, expected: Sequence[DeadRow], actual: Sequence[DeadRow]) -> Difference | None:
    """Compare dead letters; an expected reason is how the actual one begins."""
    begins = {(row.partition, row.offset): row.reason for row in expected}
    cut = [
        DeadRow(row.partition, row.offset, begins.get((row.partition, row.offset), ""))
        if begins.get((row.partition, row.offset)) and row.reason.startswith(begins[row.partition, row.offset])
        else row
        for row in actual
    ]
    return _difference("dead", place, map(dead_text, by_log(expected)), map(dead_text, by_log(cut)))


def _final(story: Story, observed: Observed) -> Difference | None:
    """Compare the table that the changelog makes."""
    expected = sorted(story.final.rows, key=lambda row: (row.window, row.key))
    return _difference(
        "final",
        story.final.place,
        [table_text(story.pipeline, row) for row in expected],
        [
            table_text(story.pipeline, row)
            for row in table_rows(apply_changelog(observed.changes, story.pipeline.emit.mode))
        ],
    )


def _consistent(story: Story, observed: Observed, where: str = "") -> Difference | None:
    """Find what no changelog may have, whatever a story expects."""
    misfits = [
        f"{change_text(story.pipeline, entry.row)}  # revision {entry.revision} does not fit what was there"
        for entry in apply_changelog(observed.changes, story.pipeline.emit.mode).misfits
    ]
    return _difference(f"consistency{where}", story.final.place, [], [*misfits, *repeated(observed)])
