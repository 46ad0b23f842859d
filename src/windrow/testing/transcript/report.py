"""Results of stories as text and JSON, with expected and actual rows side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from windrow.errors import Place
from windrow.testing.transcript.story import Story


def lines(result: StoryResult) -> Iterator[str]:
    """Yield a line for the story, followed by its differences."""
    runs = f", {result.runs} cuts" if result.runs > 1 else ""
    yield f"{'ok    ' if result.ok else 'FAILED'}  {result.story.name}  ({result.story.file}, {result.host}{runs})"
    for difference in result.differences:
        yield from _difference(difference)


def to_json(results: Iterable[StoryResult]) -> dict[str, Any]:
    """Return the results as plain JSON values."""
    stories = [
        {
            "name": result.story.name,
            "file": result.story.file,
            "host": result.host,
            "cuts": result.runs,
            "ok": result.ok,
            "differences": [
                {
                    "what": difference.what,
                    "file": difference.place.file,
                    "line": difference.place.line,
                    "expected": list(difference.expected),
                    "actual": list(difference.actual),
                }
                for difference in result.differences
            ],
        }
        for result in results
    ]
    return {"ok": all(story["ok"] for story in stories), "stories": stories}


def _difference(difference: Difference) -> Iterator[str]:
    """Yield both lists side by side, marking the rows that differ."""
    yield f"  {difference.place}: {difference.what}"
    width = max(map(len, ("expected", *difference.expected)))
    yield f"      {'expected':{width}}   actual"
    matcher = SequenceMatcher(None, difference.expected, difference.actual, autojunk=False)
    for tag, first, last, other_first, other_last in matcher.get_opcodes():
        pairs = zip_longest(
            difference.expected[first:last], difference.actual[other_first:other_last], fillvalue="(none)"
        )
        for expected, actual in pairs:
            yield f"    {' ' if tag == 'equal' else '!'} {expected:{width}}   {actual}"


@dataclass(frozen=True)
class Difference:
    """Expected and actual rows, written as in the story. `what` says what they are."""

    what: str
    place: Place
    expected: tuple[str, ...]
    actual: tuple[str, ...]


@dataclass(frozen=True)
class StoryResult:
    """A story and the differences in its result. `runs` is the number of ways in which the log was cut into steps."""

    story: Story
    host: str
    runs: int
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """True if the result is as expected."""
        return not self.differences
