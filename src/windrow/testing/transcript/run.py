"""Runs a story on a host and compares the output with its expectations, for the steps as written and for other cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import assert_never

from windrow.engine.changelog import StepOutput
from windrow.engine.tick import Crash, PlayStep, Tick
from windrow.errors import Place
from windrow.expressions import stream_of
from windrow.testing.transcript import story as s
from windrow.testing.transcript.changelog_check import fold_changelog, table_rows
from windrow.testing.transcript.reader import read_story
from windrow.testing.transcript.report import Difference, StoryResult
from windrow.testing.transcript.rows import change_text, dead_text, late_text, table_text
from windrow.testing.transcript.story import ChangeRow, DeadRow, LateRow, Story, Tabled
from windrow.testing.transcript.views import Observed, by_log, observe, repeated, views


def run_story(path: str | Path, *, host: str = "memory", rebatch: int = 0, seed: int = 0) -> StoryResult:
    """Read a story from a file and run it; raise TranscriptError if the file is not a story."""
    return check_story(read_story(path), s.load_play(host), host=host, rebatch=rebatch, seed=seed)


def check_story(story: Story, play: s.Play, *, host: str, rebatch: int = 0, seed: int = 0) -> StoryResult:
    """Run a story as written.

    If it passes and `rebatch` is not 0, run it again with its log cut into steps in other ways: `rebatch` random cuts,
    a single step, and one record per step. The on-time panes, the late output, the dead letters and the final table
    must be the same. With one partition and ``late: each``, so must the changelog (`windrow.testing.transcript.views`).
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
    """Return the output of some steps for each stream."""
    graph = story.pipeline
    return {
        stream: observe(
            pipeline,
            [output[s.sink_of(stream)] for output in outputs],
            has_sources=len(graph.sources) > 1,
            is_of_tables=stream_of(graph, pipeline.node.input).rows_of == "tables",
        )
        for stream, pipeline in story.streams.items()
    }


@dataclass
class _Since:
    """The output since the last expectation."""

    changes: list[ChangeRow] = field(default_factory=list)
    late: list[LateRow] = field(default_factory=list)
    dead: list[DeadRow] = field(default_factory=list)

    def add(self, observed: Observed) -> None:
        self.changes += [entry.row for entry in observed.changes]
        self.late += observed.late
        self.dead += observed.dead


def _as_written(story: Story, outputs: Sequence[Mapping[str, StepOutput]]) -> list[Difference]:
    """Compare the expectations of a story with the outputs of its steps."""
    coming, streams = iter(outputs), story.streams
    since = {stream: _Since() for stream in streams}
    found: list[Difference | None] = []
    for step in story.steps:
        match step:
            case s.RecordStep() | s.MarkWatermark() | s.TellTime() | s.KillRun() | s.End():
                for stream, observed in _observed(story, [next(coming)]).items():
                    since[stream].add(observed)
            case s.Expect(rows, place, stream):
                found.append(_changes(streams[stream], place, rows, since[stream].changes))
                since[stream].changes = []
            case s.ExpectLate(rows, place, stream):
                found.append(_late(streams[stream], place, rows, since[stream].late))
                since[stream].late = []
            case s.ExpectDead(rows, place, stream):
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
    """Compare the output for another cut of the log with the output as written."""
    pipeline, place = story.streams[stream], story.final[stream].place
    found = [
        _difference(f"{what}, {cut}", place, view(pipeline, expected), view(pipeline, actual))
        for what, view in views(story, pipeline)
    ]
    found.append(_consistent(pipeline, place, actual, f", {cut}"))
    return [difference for difference in found if difference]


def _difference(what: str, place: Place, expected: Iterable[str], actual: Iterable[str]) -> Difference | None:
    """Return the difference between two lists of rows, or None if they are equal."""
    wanted, found = tuple(expected), tuple(actual)
    return None if wanted == found else Difference(what, place, wanted, found)


def _changes(
    pipeline: Tabled, place: Place, expected: Iterable[ChangeRow], actual: Iterable[ChangeRow]
) -> Difference | None:
    """Compare changes ordered by window and key. Changes of the same window and key keep their order."""
    texts = (
        [change_text(pipeline, row) for row in sorted(rows, key=lambda row: (row.window, row.key))]
        for rows in (expected, actual)
    )
    return _difference("expect", place, *texts)


def _late(pipeline: Tabled, place: Place, expected: Sequence[LateRow], actual: Sequence[LateRow]) -> Difference | None:
    texts = ([late_text(pipeline, row) for row in by_log(rows)] for rows in (expected, actual))
    return _difference("late", place, *texts)


def _dead(place: Place, expected: Sequence[DeadRow], actual: Sequence[DeadRow]) -> Difference | None:
    """Compare dead letters. An expected reason must be a prefix of the actual one."""

    def is_beginning(row: DeadRow, of: DeadRow) -> bool:
        same_place = (row.partition, row.offset) == (of.partition, of.offset)
        return same_place and bool(row.reason) and of.reason.startswith(row.reason)

    shortened = [next((row for row in expected if is_beginning(row, found)), found) for found in actual]
    return _difference("dead", place, map(dead_text, by_log(expected)), map(dead_text, by_log(shortened)))


def _final(pipeline: Tabled, final: s.Final, observed: Observed) -> Difference | None:
    """Compare the expected final table with the table built from the changelog."""
    expected = sorted(final.rows, key=lambda row: (row.window, row.key))
    return _difference(
        "final",
        final.place,
        [table_text(pipeline, row) for row in expected],
        [table_text(pipeline, row) for row in table_rows(fold_changelog(pipeline, observed.changes))],
    )


def _consistent(pipeline: Tabled, place: Place, observed: Observed, where: str = "") -> Difference | None:
    """Return inconsistencies in the changelog as a difference. No story may have any."""
    misfits = [
        f"{change_text(pipeline, entry.row)}  # revision {entry.revision} does not fit the row before it"
        for entry in fold_changelog(pipeline, observed.changes).misfits
    ]
    return _difference(f"consistency{where}", place, [], [*misfits, *repeated(observed)])


Record = tuple[int, bytes]


@dataclass(frozen=True)
class Cut:
    """A log cut into steps: (partition, value) pairs or ticks. `name` describes the cut."""

    name: str
    steps: tuple[PlayStep, ...]


def cuts(feed: Sequence[PlayStep | Crash], number: int, seed: int) -> Iterator[Cut]:
    """Yield the log in a single step, with one record per step, and in `number` random cuts.

    The records between two ticks are cut separately, so that ticks keep their position among the records.
    """
    rng = Random(f"{seed}")  # noqa: S311 - cuts are no secret
    yield Cut("all in one step", _recut(feed, lambda records: [tuple(sorted(records, key=lambda record: record[0]))]))
    yield Cut("one record a step", _recut(feed, lambda records: [(record,) for record in _interleave(records, rng)]))
    for count in range(1, number + 1):
        rng = Random(f"{seed}/{count}")  # noqa: S311 - the same
        yield Cut(f"cut {count} of seed {seed}", _recut(feed, partial(_cut_at_random, rng=rng)))


def _recut(
    feed: Sequence[PlayStep | Crash], cut: Callable[[list[Record]], Sequence[tuple[Record, ...]]]
) -> tuple[PlayStep, ...]:
    """Cut the records between ticks with `cut`, leaving out crashes."""
    steps: list[PlayStep] = []
    records: list[Record] = []
    for step in feed:
        if isinstance(step, Tick):
            steps += [*(cut(records) if records else []), step]
            records = []
        elif not isinstance(step, Crash):
            records += step
    return (*steps, *(cut(records) if records else []))


def _interleave(records: list[Record], rng: Random) -> list[Record]:
    """Interleave the partitions at random, keeping the order within each partition."""
    turns = sorted(partition for partition, _ in records)
    rng.shuffle(turns)
    values = {turn: iter([value for partition, value in records if partition == turn]) for turn in turns}
    return [(partition, next(values[partition])) for partition in turns]


def _cut_at_random(records: list[Record], rng: Random) -> list[tuple[Record, ...]]:
    """Interleave the partitions, and cut the result at a random number of random positions."""
    records = _interleave(records, rng)
    places = range(1, len(records))
    at = sorted(rng.sample(places, rng.randint(0, len(places))))
    return [tuple(records[start:end]) for start, end in zip([0, *at], [*at, len(records)], strict=True)]
