"""Run a story on a host: its expectations beside the host's output, as written and in other cuts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from windrow.engine.changelog import StepOutput
from windrow.errors import Place
from windrow.testing.transcript.changelog_check import fold_changelog, table_rows
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
    Final,
    KillRun,
    LateRow,
    MarkWatermark,
    RecordStep,
    Story,
    Tabled,
    TellTime,
    sink_of,
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
    at_end = story.pipeline.at_end
    outputs = play(story.pipeline, story.feed, at_end)
    differences = _as_written(story, outputs)
    runs = 1
    if rebatch and not differences:
        as_written = _observed(story, outputs)
        for cut in cuts(story.feed, rebatch, seed):
            seen = _observed(story, play(story.pipeline, cut.steps, at_end))
            differences += [
                difference
                for stream, expected in as_written.items()
                for difference in _as_cut(story, stream, cut.name, expected, seen[stream])
            ]
            runs += 1
    return StoryResult(story, host, runs, tuple(differences))


def _observed(story: Story, outputs: Sequence[Mapping[str, StepOutput]]) -> dict[str, Observed]:
    """Return the output of some steps by stream."""
    has_sources = len(story.pipeline.sources) > 1
    return {
        stream: observe(pipeline, [output[sink_of(stream)] for output in outputs], has_sources=has_sources)
        for stream, pipeline in story.streams.items()
    }


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


def _as_written(story: Story, outputs: Sequence[Mapping[str, StepOutput]]) -> list[Difference]:
    """Go through the story beside the outputs of its steps."""
    coming, streams = iter(outputs), story.streams
    since = {stream: _Since() for stream in streams}
    found: list[Difference | None] = []
    for step in story.steps:
        match step:
            case RecordStep() | MarkWatermark() | TellTime() | KillRun() | End():
                for stream, observed in _observed(story, [next(coming)]).items():
                    since[stream].add(observed)
            case Expect(rows, place, stream):
                found.append(_changes(streams[stream], place, rows, since[stream].changes))
                since[stream].changes = []
            case ExpectLate(rows, place, stream):
                found.append(_late(streams[stream], place, rows, since[stream].late))
                since[stream].late = []
            case ExpectDead(rows, place, stream):
                found.append(_dead(place, rows, since[stream].dead))
                since[stream].dead = []
            case _:
                assert_never(step)
    for stream, everything in _observed(story, outputs).items():
        found.append(_dead(story.final[stream].place, (), since[stream].dead))
        found.append(_final(streams[stream], story.final[stream], everything))
        found.append(_consistent(streams[stream], story.final[stream].place, everything))
    return [difference for difference in found if difference]


def _as_cut(story: Story, stream: str, cut: str, expected: Observed, actual: Observed) -> list[Difference]:
    """Compare another cut of the log with the run as written."""
    pipeline, place = story.streams[stream], story.final[stream].place
    found = [
        _difference(f"{what}, {cut}", place, view(pipeline, expected), view(pipeline, actual))
        for what, view in views(story, pipeline)
    ]
    found.append(_consistent(pipeline, place, actual, f", {cut}"))
    return [difference for difference in found if difference]


def _difference(what: str, place: Place, expected: Iterable[str], actual: Iterable[str]) -> Difference | None:
    """Return the difference of two lists of rows; None if there is none."""
    one, other = tuple(expected), tuple(actual)
    return None if one == other else Difference(what, place, one, other)


def _changes(
    pipeline: Tabled, place: Place, expected: Iterable[ChangeRow], actual: Iterable[ChangeRow]
) -> Difference | None:
    """Compare changes in (window, key) order; those of one window and key stay in their own."""
    one, other = (
        [change_text(pipeline, row) for row in sorted(rows, key=lambda row: (row.window, row.key))]
        for rows in (expected, actual)
    )
    return _difference("expect", place, one, other)


def _late(pipeline: Tabled, place: Place, expected: Sequence[LateRow], actual: Sequence[LateRow]) -> Difference | None:
    one, other = ([late_text(pipeline, row) for row in by_log(rows)] for rows in (expected, actual))
    return _difference("late", place, one, other)


def _dead(place: Place, expected: Sequence[DeadRow], actual: Sequence[DeadRow]) -> Difference | None:
    """Compare dead letters; an expected reason is how the actual one begins."""
    begun: defaultdict[tuple[int | str | None, int | None], list[DeadRow]] = defaultdict(list)
    for row in expected:
        begun[row.partition, row.offset].append(row)
    cut = [
        next((one for one in begun[row.partition, row.offset] if one.reason and row.reason.startswith(one.reason)), row)
        for row in actual
    ]
    return _difference("dead", place, map(dead_text, by_log(expected)), map(dead_text, by_log(cut)))


def _final(pipeline: Tabled, final: Final, observed: Observed) -> Difference | None:
    """Compare the table that the changelog makes."""
    expected = sorted(final.rows, key=lambda row: (row.window, row.key))
    return _difference(
        "final",
        final.place,
        [table_text(pipeline, row) for row in expected],
        [table_text(pipeline, row) for row in table_rows(fold_changelog(pipeline, observed.changes))],
    )


def _consistent(pipeline: Tabled, place: Place, observed: Observed, where: str = "") -> Difference | None:
    """Find what no changelog may have, whatever a story expects."""
    misfits = [
        f"{change_text(pipeline, entry.row)}  # revision {entry.revision} does not fit what was there"
        for entry in fold_changelog(pipeline, observed.changes).misfits
    ]
    return _difference(f"consistency{where}", place, [], [*misfits, *repeated(observed)])
