"""What running a story found."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.errors import Place
from windrow.testing.transcript.story import Story


@dataclass(frozen=True)
class Difference:
    """Rows that were expected and rows that came, in the story's own form; `what` names them."""

    what: str
    place: Place
    expected: tuple[str, ...]
    actual: tuple[str, ...]


@dataclass(frozen=True)
class StoryResult:
    """A story and where it went another way than told; `runs` counts the cuts that it was run in."""

    story: Story
    host: str
    runs: int
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """Whether all came as told."""
        return not self.differences
