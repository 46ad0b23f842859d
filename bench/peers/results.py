"""What a comparison found, as it lies in a file of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple


class Sums(NamedTuple):
    """Of a table of results: its rows, the sum of the totals, and of the counts."""

    rows: int
    total: str
    events: int


NOTHING = Sums(0, "0.00", 0)


@dataclass(frozen=True)
class Run:
    """One run: seconds, CPU seconds of all its processes, and MiB at the most; or why it failed.

    `kept` is how many events its table counts, if there is one.
    """

    round: int
    engine: str
    sink: str
    events: int
    seconds: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0
    kept: int = 0
    error: str = ""

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds for a million events."""
        return self.cpu / self.events * 1e6


@dataclass(frozen=True)
class Answer:
    """What an engine answers on a log without late records: in all, and of the windows that had long closed."""

    engine: str
    error: str = ""
    everything: Sums = NOTHING
    closed: Sums = NOTHING

    def beside(self, right: Answer) -> str:
        """Say how it compares to the right one."""
        if self.error:
            return f"failed: {self.error}"
        if self.everything == right.everything:
            return "the same"
        if self.closed == right.closed:
            missing = right.everything.rows - self.everything.rows
            return f"the same, except for {missing:,} rows of windows open at the end"
        return f"ANOTHER: {self.everything} and not {right.everything}"


@dataclass(frozen=True)
class Measured:
    """What was measured; `machine`, `versions` and `options` say how it came about."""

    date: str
    machine: dict[str, str]
    versions: dict[str, str]
    options: dict[str, str]

    def save(self, file: Path) -> None:
        """Write it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")


@dataclass(frozen=True)
class Results(Measured):
    """All of a comparison."""

    answers: list[Answer] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    @staticmethod
    def of(parts: Iterable[Results]) -> Results:
        """Put comparisons together that were run one after the other; the first says how, rounds count on."""
        first, *others = parts
        answers, runs = list(first.answers), list(first.runs)
        for one in others:
            before = max((run.round for run in runs), default=0)
            runs += [replace(run, round=before + run.round) for run in one.runs]
            answers += one.answers
        return replace(first, answers=list({one.engine: one for one in answers}.values()), runs=runs)

    @staticmethod
    def load(file: Path) -> Results:
        """Read what `save` wrote."""
        found = json.loads(file.read_text())
        answers = [
            Answer(**{**one, "everything": Sums(*one["everything"]), "closed": Sums(*one["closed"])})
            for one in found.pop("answers")
        ]
        runs = [Run(**one) for one in found.pop("runs")]
        return Results(**found, answers=answers, runs=runs)
