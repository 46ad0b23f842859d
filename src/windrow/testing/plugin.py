"""The pytest plugin: collects stories as tests, and provides a fixture that runs a story.

In the project's pytest settings::

    windrow_transcripts = tests/transcripts/*.yaml
    windrow_hosts = memory stream
    windrow_rebatch = 5

Each story then becomes a test on each host. Without `windrow_transcripts` nothing is collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from windrow.testing.transcript.report import StoryResult

# nothing of windrow is imported here: pytest loads this module in every project that has windrow installed


class StoryFailedError(Exception):
    """Raised if the result of a story differs. The message shows expected and actual rows side by side."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the plugin's settings."""
    parser.addini(
        "windrow_transcripts", "globs of the stories to run, relative to the root folder", type="args", default=[]
    )
    parser.addini("windrow_hosts", "hosts on which to run the stories", type="args", default=["memory"])
    parser.addini("windrow_rebatch", "number of random cuts in which to run each story", default="0")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> StoryFile | None:
    """Collect a file if it matches `windrow_transcripts`."""
    root, globs = parent.config.rootpath, parent.config.getini("windrow_transcripts")
    if file_path.suffix not in {".yaml", ".yml"} or not file_path.is_relative_to(root):
        return None
    if any(file_path in root.glob(glob) for glob in globs):
        return StoryFile.from_parent(parent, path=file_path)
    return None


class StoryFile(pytest.File):
    """A file with one story."""

    def collect(self) -> Iterable[pytest.Item]:
        """Yield one test for each host."""
        for host in self.config.getini("windrow_hosts"):
            item: StoryItem = StoryItem.from_parent(self, name=host)
            yield item


class StoryItem(pytest.Item):
    """A story on one host. The name of the test is the host."""

    def runtest(self) -> None:
        """Run the story."""
        check_story(self.path, host=self.name, rebatch=int(self.config.getini("windrow_rebatch")))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:  # noqa: ARG002 - pytest passes it
        """Show the differences, or the problems of the file, without a traceback."""
        from windrow.errors import WindrowError  # noqa: PLC0415 - see above

        if isinstance(excinfo.value, StoryFailedError | WindrowError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, the line and the name of the test."""
        return self.path, 0, f"{self.path.name}[{self.name}]"


def check_story(path: str | Path, *, host: str = "memory", rebatch: int = 0, seed: int = 0) -> StoryResult:
    """Run a story; raise StoryFailedError if the result differs, and TranscriptError if the file is not a story."""
    from windrow.testing.transcript.report import lines  # noqa: PLC0415 - see above
    from windrow.testing.transcript.run import run_story  # noqa: PLC0415 - see above

    result = run_story(path, host=host, rebatch=rebatch, seed=seed)
    if not result.ok:
        message = "\n".join(lines(result))
        raise StoryFailedError(message)
    return result


@pytest.fixture
def run_story() -> Callable[..., StoryResult]:
    """Return a function that runs a story: ``run_story(path, host="memory", rebatch=0, seed=0)``."""
    return partial(check_story)
