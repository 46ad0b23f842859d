"""What the runs say: tables, ratios within rounds, and whether the goals are met."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from statistics import median
from textwrap import wrap

from bench.peers.engines import ENGINES, Engine, engine
from bench.peers.results import Results, Run

BESIDE = ("flink", "pyspark", "parse")
"""What windrow's ratios are to."""


_SINKS = {
    "none": "no sink",
    "postgres": "PostgreSQL",
    "kafka": "Kafka, exactly once",
    "delta": "Delta",
    "parquet": "Parquet",
}


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one engine is as another, in each round with both, on as many events."""

    engine: str
    other: str
    sink: str
    pairs: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of the pairs."""
        return median(self.pairs)

    def __str__(self) -> str:
        return f"{self.median:.2f} (pairs: {', '.join(f'{pair:.2f}' for pair in self.pairs)})"


@dataclass(frozen=True)
class Goal:
    """What is wanted, what was measured, and whether that is it; none if it was not measured."""

    wanted: str
    measured: str
    met: bool | None

    def __str__(self) -> str:
        verdict = {True: "met", False: "NOT MET", None: "not measured"}[self.met]
        return f"{self.wanted}: {verdict}{f', {self.measured}' if self.measured else ''}"


def runs_of(results: Results, name: str, sink: str) -> list[Run]:
    """Return the runs of an engine that came to their end."""
    return [run for run in results.runs if (run.engine, run.sink) == (name, sink) and not run.error]


def ratio(results: Results, name: str, other: str, sink: str, *, alike: bool = True) -> Ratio | None:
    """Return how many times as fast one engine is as another, in the rounds with both; none if there is no such round.

    If `alike`, only runs on as many events count.
    """

    def rates(one: str) -> dict[tuple[int, int], float]:
        return {(run.round, run.events if alike else 0): run.rate for run in runs_of(results, one, sink)}

    mine, theirs = rates(name), rates(other)
    pairs = tuple(mine[key] / theirs[key] for key in sorted(mine.keys() & theirs.keys()))
    return Ratio(name, other, sink, pairs) if pairs else None


def goals(results: Results) -> Iterator[Goal]:
    """Judge windrow by what it is meant to reach."""
    for name, other, least in (("stream", "flink", 1.25), ("stream", "pyspark", 3.0), ("batch", "flink", 1.5)):
        yield _at_least(
            f"{name} at least {least:g} times as fast as {other}", ratio(results, name, other, "none"), least
        )
    for name in ("stream", "batch"):
        best = _best_peer(results, name)
        whose = "" if best is None else f", {best.other}"
        yield _at_least(f"{name} into PostgreSQL at least 2 times as fast as the best peer{whose}", best, 2.0)
    memory = {
        name: _median(runs_of(results, name, "none"), lambda run: run.memory) for name in ("stream", "batch", "flink")
    }
    for name in ("stream", "batch"):
        wanted, mine, theirs = f"peak memory of {name} at most Flink's", memory[name], memory["flink"]
        if mine is None or theirs is None:
            yield Goal(wanted, "", None)
        else:
            yield Goal(wanted, f"{mine:,.0f} and {theirs:,.0f} MiB", mine <= theirs)
    for name, most in (("batch", 1.4), ("stream", 1.8)):
        found = ratio(results, "parse", name, "none")
        wanted = f"{name} within {most:g} times the time of Spark's parsing alone"
        yield Goal(wanted, "" if found is None else str(found), None if found is None else found.median <= most)


def _at_least(wanted: str, found: Ratio | None, least: float) -> Goal:
    return Goal(wanted, "", None) if found is None else Goal(wanted, str(found), found.median >= least)


def _best_peer(results: Results, name: str) -> Ratio | None:
    """Compare to the peer with the highest rate, on however many events: a slow one may have had fewer."""
    peers = [one.name for one in ENGINES if one.kind == "peer"]
    found = [ratio(results, name, other, "postgres", alike=False) for other in peers]
    return min((one for one in found if one is not None), key=lambda one: one.median, default=None)


def _median(runs: list[Run], figure: Callable[[Run], float]) -> float | None:
    return median(map(figure, runs)) if runs else None


def measured(results: Results, sink: str) -> list[Engine]:
    """Return the engines that were run into a sink, in their order."""
    names = dict.fromkeys(run.engine for run in results.runs if run.sink == sink)
    return [engine(name) for name in names]


def table(results: Results, sink: str) -> Iterator[str]:
    """Write the lines of a table in Markdown: an engine a line."""
    kept = " counted |" if sink == "postgres" else ""
    figures = "events | events/s (all rounds) | of Flink's | memory, MiB | CPU s a million"
    yield f"| engine | {figures} |{kept} given | meaning |"
    yield f"| --- | ---: | ---: | ---: | ---: | ---: |{' --- |' if kept else ''} --- | --- |"
    for one in measured(results, sink):
        found = runs_of(results, one.name, sink)
        if not found:
            error = next(run.error for run in results.runs if (run.engine, run.sink) == (one.name, sink))
            failed = f"| {one.title} | | failed: {error.replace('|', '/')} | | | |{' |' if kept else ''}"
            yield f"{failed} {one.memory} | {one.differs} |"
            continue
        beside = ratio(results, one.name, "flink", sink)
        cells = (
            one.title,
            f"{found[0].events:,}",
            f"**{median(run.rate for run in found):,.0f}** ({', '.join(f'{run.rate:,.0f}' for run in found)})",
            "" if beside is None else f"{beside.median:.2f}",
            f"{median(run.memory for run in found):,.0f}",
            f"{median(run.cpu_per_million for run in found):.1f}",
            *([", ".join(sorted({f"{run.kept:,}" for run in found}))] if kept else []),
            one.memory,
            one.differs,
        )
        yield f"| {' | '.join(cells)} |"


def ratios(results: Results) -> Iterator[str]:
    """Write how windrow stands to the engines that count, and to its own first one, pair by pair."""
    for sink, title in _SINKS.items():
        ours = [one.name for one in measured(results, sink) if one.kind == "windrow"]
        for name in ours:
            for other in (*BESIDE, *ours[:1]):
                found = ratio(results, name, other, sink)
                if found is not None and name != other:
                    yield f"{name} is {found} times as fast as {other} ({title})"


def answers(results: Results) -> Iterator[str]:
    """Write what each engine answered beside windrow's stream host."""
    right = next((one for one in results.answers if one.engine == "stream"), None)
    for one in results.answers:
        if right is not None and not right.error:
            yield f"{one.engine}: {one.beside(right)}"


def page(results: Results) -> str:
    """Write the part of docs/benchmarks.md that comes from a run."""
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    lines = [f"Measured on {results.date}: {', '.join(results.machine.values())}.", "", f"{versions}.", ""]
    lines += ["![Events a second of each engine](images/benchmarks.svg)", ""]
    for sink in ("none", "postgres"):
        if measured(results, sink):
            heading = "No sink" if sink == "none" else "Into PostgreSQL"
            lines += [f"### {heading}", "", *table(results, sink), ""]
    for heading, said in (("Ratios", ratios(results)), ("Goals", goals(results)), ("Answers", answers(results))):
        found = [f"- {line}" for line in said]
        lines += [f"### {heading}", "", *found, ""] if found else []
    return "\n".join(chain.from_iterable(map(_wrapped, lines)))


def _wrapped(line: str) -> list[str]:
    """Break a line that is too long for a page, unless it is a table's."""
    return (
        [line] if line.startswith("|") else wrap(line, 118, subsequent_indent="  " if line[:2] == "- " else "") or [""]
    )
