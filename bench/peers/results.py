"""What comparisons of the main job, of joins and of the fraud rules found, as it lies in a file of JSON."""

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
class JoinRun:
    """One run of a join over so many records of both sides; its figures are those of `Run`.

    `rows` is how many rows it found, `checksum` a sum over them.
    """

    round: int
    case: str
    engine: str
    records: int
    seconds: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0
    rows: int = 0
    checksum: int = 0
    error: str = ""

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds


@dataclass(frozen=True)
class AlertRun:
    """An engine at a rate: quantiles and maximum of its alerts' latency, and of how late sleeps were, in ms."""

    engine: str
    partitions: int
    rate: int
    alerts: int
    milliseconds: dict[str, float]
    sleep: dict[str, float]


@dataclass(frozen=True)
class Crashes:
    """Seconds from each kill to the next alert; and alerts at the end beside those of the memory host."""

    partitions: int
    rate: int
    seconds: dict[str, float]
    alerts: int
    missing: int
    repeated: int
    others: int


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
    """All that was measured in one go, or in several."""

    answers: list[Answer] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    joins: list[JoinRun] = field(default_factory=list)
    alerts: list[AlertRun] = field(default_factory=list)
    crashes: list[Crashes] = field(default_factory=list)

    @staticmethod
    def of(parts: Iterable[Results]) -> Results:
        """Put together what was measured one after the other; the first says how, rounds count on."""
        first, *others = parts
        answers, runs, joins = list(first.answers), list(first.runs), list(first.joins)
        alerts, crashes = list(first.alerts), list(first.crashes)
        for one in others:
            before = max([0, *(run.round for run in runs), *(run.round for run in joins)])
            runs += [replace(run, round=before + run.round) for run in one.runs]
            joins += [replace(run, round=before + run.round) for run in one.joins]
            answers += one.answers
            alerts += one.alerts
            crashes += one.crashes
        answers = list({one.engine: one for one in answers}.values())
        return replace(first, answers=answers, runs=runs, joins=joins, alerts=alerts, crashes=crashes)

    @staticmethod
    def load(file: Path) -> Results:
        """Read what `save` wrote, by this version or an older one."""
        found = json.loads(file.read_text())
        answers = [
            Answer(**{**one, "everything": Sums(*one["everything"]), "closed": Sums(*one["closed"])})
            for one in found.pop("answers", [])
        ]
        runs = [Run(**one) for one in found.pop("runs", [])]
        joins = [JoinRun(**one) for one in found.pop("joins", [])]
        alerts = [AlertRun(**one) for one in found.pop("alerts", [])]
        crashes = [Crashes(**one) for one in found.pop("crashes", [])]
        return Results(**found, answers=answers, runs=runs, joins=joins, alerts=alerts, crashes=crashes)
