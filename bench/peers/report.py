"""What the runs say: tables of the main job, joins and alerts, ratios within rounds, and whether the goals are met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import median
from textwrap import wrap

from bench.peers.engines import ENGINES, Engine, engine
from bench.peers.results import AlertRun, JoinRun, Results, Run
from bench.realtime_engines import ENGINES as ALERT_ENGINES

Rates = dict[tuple[int, int], float]
"""Of the runs of an engine, by their round and events."""

BESIDE = ("flink", "pyspark", "parse")
"""What windrow's ratios are to."""

JOIN_ENGINES = {"windrow": "windrow", "spark": "PySpark", "flink": "Flink SQL"}
JOINS = {
    "interval": "two streams, inner",
    "interval-left": "two streams, left",
    "lookup": "lookup as of event time",
    "static": "lookup as of the order",
    "tables": "two tables",
}
LATENCIES = ("p50", "p99", "max")
"""The figures of alerts' latencies that the page shows."""
RECOVERY = {"worker": 3.0, "everything": 15.0}
"""The goals: seconds from a kill to the next alert."""

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

    def rates(one: str) -> Rates:
        return {(run.round, run.events if alike else 0): run.rate for run in runs_of(results, one, sink)}

    return _paired(name, other, sink, rates(name), rates(other))


def _paired(name: str, other: str, sink: str, mine: Rates, theirs: Rates) -> Ratio | None:
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
    figures = "events | events/s | of Flink's | memory, MiB | CPU s a million"
    yield f"| engine | {figures} |{kept}"
    yield f"| --- | ---: | ---: | ---: | ---: | ---: |{' --- |' if kept else ''}"
    for one in measured(results, sink):
        found = runs_of(results, one.name, sink)
        if not found:
            error = next(run.error for run in results.runs if (run.engine, run.sink) == (one.name, sink))
            yield f"| {one.title} | | failed: {error.replace('|', '/')} | | | |{' |' if kept else ''}"
            continue
        beside = ratio(results, one.name, "flink", sink)
        low, high = min(run.kept for run in found), max(run.kept for run in found)
        cells = (
            one.title,
            f"{found[0].events:,}",
            f"**{median(run.rate for run in found):,.0f}**",
            "" if beside is None else f"{beside.median:.2f}",
            f"{median(run.memory for run in found):,.0f}",
            f"{median(run.cpu_per_million for run in found):.1f}",
            *([" to ".join(f"{count:,}" for count in sorted({low, high}))] if kept else []),
        )
        yield f"| {' | '.join(cells)} |"


def engines(results: Results) -> Iterator[str]:
    """Write the memory of the engines that were run, and how their results differ from windrow's."""
    alike: dict[str, list[str]] = {}
    for one in ENGINES:
        if any(one in measured(results, sink) for sink in ("none", "postgres")):
            alike.setdefault(one.differs, []).append(f"**{one.title}** ({one.memory})")
    yield from (f"{', '.join(titles)}: {differs}" for differs, titles in alike.items())


def ratios(results: Results) -> Iterator[str]:
    """Write how windrow stands to the engines that count, and to its own first one, pair by pair."""
    for sink, title in _SINKS.items():
        ours = [one.name for one in measured(results, sink) if one.kind == "windrow"]
        for name in ours:
            for other in (*BESIDE, *ours[:1]):
                found = ratio(results, name, other, sink)
                if found is not None and name != other:
                    yield f"{name} is {found} times as fast as {other} ({title})"


def answers_alike(results: Results) -> Iterator[str]:
    """Write which engines gave the same answer as windrow's stream host, and how others differ."""
    right = next((one for one in results.answers if one.engine == "stream"), None)
    alike: dict[str, list[str]] = {}
    for one in results.answers:
        if right is not None and not right.error and one is not right:
            alike.setdefault(one.beside(right), []).append(engine(one.engine).title)
    yield from (f"{said}: {'; '.join(titles)}" for said, titles in alike.items())


def answers(results: Results) -> Iterator[str]:
    """Write what each engine answered beside windrow's stream host."""
    right = next((one for one in results.answers if one.engine == "stream"), None)
    for one in results.answers:
        if right is not None and not right.error:
            yield f"{one.engine}: {one.beside(right)}"


def joins_of(results: Results, case: str) -> dict[str, list[JoinRun]]:
    """Return the runs of a join that came to their end, by engine."""
    found: dict[str, list[JoinRun]] = {}
    for run in results.joins:
        if run.case == case and not run.error:
            found.setdefault(run.engine, []).append(run)
    return {name: found[name] for name in JOIN_ENGINES if name in found}


def join_ratio(results: Results, case: str, other: str) -> Ratio | None:
    """Return how many times as fast windrow joins as another engine, in the rounds with both, on as many records."""

    def rates(name: str) -> Rates:
        return {(run.round, run.records): run.rate for run in joins_of(results, case).get(name, [])}

    return _paired("windrow", other, case, rates("windrow"), rates(other))


def joins(results: Results) -> Iterator[str]:
    """Write the lines of the table of joins in Markdown: an engine in a case a line."""
    figures = "records | records/s | windrow / this engine | memory, MiB | CPU s a million"
    yield f"| join | engine | {figures} |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for case, title in JOINS.items():
        for run in results.joins:
            if run.case == case and run.error:
                error = f"failed in round {run.round}: {run.error.replace('|', '/')}"
                yield f"| {title} | {JOIN_ENGINES[run.engine]} | {run.records:,} | {error} | | | |"
        for name, runs in joins_of(results, case).items():
            beside = None if name == "windrow" else join_ratio(results, case, name)
            cells = (
                title,
                JOIN_ENGINES[name],
                f"{runs[0].records:,}",
                f"**{median(run.rate for run in runs):,.0f}**",
                "" if beside is None else f"{beside.median:.2f}",
                f"{median(run.memory for run in runs):,.0f}",
                f"{median(run.cpu / run.records * 1e6 for run in runs):.1f}",
            )
            yield f"| {' | '.join(cells)} |"


def unequal_joins(results: Results) -> Iterator[str]:
    """Write which joins did not find the same in all runs over as many records."""
    for case, title in JOINS.items():
        found: dict[int, set[tuple[int, int]]] = {}
        for runs in joins_of(results, case).values():
            for run in runs:
                found.setdefault(run.records, set()).add((run.rows, run.checksum))
        if any(len(answers) > 1 for answers in found.values()):
            yield f"{title}: THE ENGINES DID NOT FIND THE SAME ROWS"


def alerts(results: Results) -> Iterator[str]:
    """Write the lines of the table of alerts' latencies in Markdown: an engine at a rate a line."""
    yield f"| engine | partitions | purchases/s | alerts | {' | '.join(LATENCIES)} |"
    yield f"| --- |{' ---: |' * (len(LATENCIES) + 3)}"
    yield from map(alert_row, results.alerts)


def alert_row(run: AlertRun) -> str:
    """Write a line of that table."""
    cells = (
        ALERT_ENGINES[run.engine].title,
        str(run.partitions),
        f"{run.rate:,}",
        f"{run.alerts:,}",
        *(f"{run.milliseconds[name]:,.1f}" for name in LATENCIES),
    )
    return f"| {' | '.join(cells)} |"


def crashes(results: Results) -> Iterator[str]:
    """Write what the realtime host did after it was killed."""
    for one in results.crashes:
        for name, seconds in one.seconds.items():
            goal = Goal(
                f"`kill -9` of {'a worker' if name == 'worker' else name} at {one.rate:,} purchases/s on "
                f"{one.partitions} partitions, the next alert within {RECOVERY[name]:g} s",
                f"{seconds:.1f} s",
                seconds <= RECOVERY[name],
            )
            yield str(goal)
        yield (
            f"after both, beside the memory host's {one.alerts:,} changes of alerts: {one.missing:,} missing, "
            f"{one.repeated:,} twice, {one.others:,} others"
        )


def page(results: Results, others: Iterable[Results] = ()) -> str:
    """Write the part of docs/benchmarks.md that comes from runs; `others` are parts of the results measured elsewhere.

    That is on another day, another machine or with other versions than the first ones, which their files have.
    """
    machine = ", ".join([results.date, *results.machine.values()])
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    lines = [f"Measured on {machine}: {versions}.", ""]
    days: dict[str, list[Results]] = {}
    for one in others:
        days.setdefault(one.date, []).append(one)
    lines += [f"- {day}: {_contents(Results.of(parts))}." for day, parts in sorted(days.items())]
    lines += ["", "![Events a second of each engine](images/benchmarks.svg)", ""]
    for sink in ("none", "postgres"):
        if measured(results, sink):
            heading = "No sink" if sink == "none" else "Into PostgreSQL"
            lines += [f"### {heading}", "", *table(results, sink), ""]
    differences = [f"- {line}" for line in engines(results)]
    answered = [f"- {line}" for line in answers_alike(results)]
    if differences:
        lines += ["### Differences in meaning", "", *differences, ""]
    if answered:
        lines += ["Results in the check, compared with windrow's stream host:", "", *answered, ""]
    if results.joins or results.alerts:
        lines += ["![Records a second of joins, and latency of alerts](images/benchmarks-joins-alerts.svg)", ""]
    if results.joins:
        lines += ["### Joins", "", *joins(results), "", *(f"- {line}" for line in unequal_joins(results)), ""]
    if results.alerts:
        ended = [f"- {line}" for line in crashes(results)]
        lines += ["### Fraud alerts", "", "Latency in milliseconds.", "", *alerts(results), "", *ended, ""]
    lines = [line for before, line in pairwise(["", *lines]) if line or before]
    return "\n".join(chain.from_iterable(map(_wrapped, lines)))


def _contents(results: Results) -> str:
    """Name what was measured."""
    sinks = (
        f"{title} ({'; '.join(one.title for one in found)})"
        for sink, title in _SINKS.items()
        if (found := measured(results, sink))
    )
    more = [*(["joins"] if results.joins else []), *(["fraud alerts"] if results.alerts else [])]
    return ", ".join([*sinks, *more])


def _wrapped(line: str) -> list[str]:
    """Break a line that is too long for a page, unless it is a table's."""
    return (
        [line] if line.startswith("|") else wrap(line, 118, subsequent_indent="  " if line[:2] == "- " else "") or [""]
    )
