"""Chooses delays and latenesses that meet goals, and computes the effect of other values on the same records.

Each delay of a pipeline is chosen from the records of its own partitions, and each lateness from the records of its own
operator. Candidates are round values (`windrow.telemetry.histogram.BOUNDS`). If counts are ranges, goals must be met by
their upper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from windrow import model as m
from windrow.errors import InputError
from windrow.telemetry.histogram import BOUNDS
from windrow.telemetry.numbers import percent
from windrow.tools.tune.disorder import Bounds, Disorder, Missed

ENOUGH: Final = 10
"""Minimum number of records that a share must comprise to be measured."""
_MINUTE: Final = 60_000_000
_QUANTILES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)


@dataclass(frozen=True)
class Goals:
    """Goals for delay and lateness. Shares are fractions, times are microseconds, and None means no goal.

    The greatest share of (record, window) pairs that may not be on time is `late`. `quantile` is the share of records
    whose distance behind the clock must not exceed the delay. `within` is the longest time from the end of a window to
    its row, in event time. `expired` is the greatest share of pairs that may be missing from the results.
    """

    late: float | None = None
    within: int | None = None
    quantile: float | None = None
    expired: float | None = None

    @property
    def choose_delay(self) -> bool:
        """True if a goal concerns the delay."""
        return (self.late, self.within, self.quantile) != (None, None, None)

    def needed(self, *, for_delay: bool) -> int:
        """Return the number of records needed to measure the smallest share among the goals."""
        tail = None if self.quantile is None else 1 - self.quantile
        shares = [share for share in ((self.late, tail) if for_delay else (self.expired,)) if share]
        return max([math.ceil(ENOUGH / share - 1e-6) for share in shares], default=1)


@dataclass(frozen=True)
class DelaySetting:
    """A delay, identified by its path in the file, and the partitions that it applies to.

    The lateness of their source, if any, is `source_lateness`.
    """

    path: str
    source: str
    delay: int
    source_lateness: int | None
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class WhatIf:
    """Counts under a delay and a lateness.

    The number of windows held at once is `held`, as a multiple of the current number.
    """

    delay: int
    lateness: int | None
    missed: Missed
    held: float


@dataclass(frozen=True)
class PartitionDisorder:
    """The disorder of a partition: quantiles of how far its records are behind, and the delay that meets the goals."""

    partition: int
    records: int
    quantiles: Mapping[float, int]
    needed: int | None


@dataclass(frozen=True)
class Choice:
    """The value chosen for a delay or lateness, which is now `now`, and the effect of other values.

    The setting is identified by its path in the file. `chosen` is None if there is no goal for it, or if no value meets
    all goals. A delay has `partitions`, and the lateness of their source. The shares of a lateness are computed under
    the chosen delays.
    """

    path: str
    now: int
    records: int
    chosen: int | None
    problem: str | None
    table: tuple[WhatIf, ...]
    partitions: tuple[PartitionDisorder, ...] = ()
    source_lateness: int | None = None


@dataclass(frozen=True)
class Tuning:
    """All choices for a pipeline. `skipped` lists the sources without a choice, with the reason.

    If `is_of_log`, the counts are of a log, otherwise of the history of a run. If `is_exact`, they are exact, otherwise
    ranges. `is_log_exact` says whether counts of the log are exact.
    """

    delays: tuple[Choice, ...]
    latenesses: tuple[Choice, ...]
    skipped: tuple[str, ...]
    is_exact: bool
    is_of_log: bool
    is_log_exact: bool

    @property
    def changes(self) -> dict[str, int]:
        """Map the path of each setting that changes to its new value."""
        choices = ((choice, choice.chosen) for choice in (*self.delays, *self.latenesses))
        return {choice.path: chosen for choice, chosen in choices if chosen is not None and chosen != choice.now}

    @property
    def problems(self) -> list[str]:
        """The reasons why goals cannot be met."""
        if not self.skipped and not any(delay.records for delay in self.delays):
            return ["there are no records to choose from: run the pipeline, or add records to its log"]
        return [choice.problem for choice in (*self.delays, *self.latenesses) if choice.problem is not None]


def tune(graph: m.Graph, disorder: Disorder, goals: Goals) -> Tuning:
    """Choose the delays and latenesses of a pipeline."""
    fitting = [source for source in graph.sources if isinstance(source.time.watermark, m.Delay | m.DelayByPartition)]
    skipped = tuple(
        f"{source.name}: its watermark is adaptive or in the log, so it has no delay to choose"
        for source in graph.sources
        if source not in fitting
    )
    settings = [setting for source in fitting for setting in _settings(graph, source, disorder.partitions)]
    now = {setting.path: setting.delay for setting in settings}
    delays = tuple(_choose_delay(setting, disorder, goals) for setting in settings)
    then = now | {delay.path: delay.chosen for delay in delays if delay.chosen is not None}
    # operators that read a skipped source have unknown verdicts
    latenesses = () if skipped else tuple(_choose_latenesses(graph, disorder, settings, then, goals))
    return Tuning(delays, latenesses, skipped, disorder.is_exact, disorder.by_operator, disorder.is_log_exact)


def what_if(graph: m.Graph, disorder: Disorder, delay: int | None = None, lateness: int | None = None) -> WhatIf:
    """Count under one delay for all sources and one lateness for all operators; None keeps their own.

    The result has the greatest of these delays and latenesses. Raise InputError if the watermark of a source is
    adaptive or in the log, so that the source has no delay.
    """
    settings = [setting for source in graph.sources for setting in _settings(graph, source, disorder.partitions)]
    if len({setting.source for setting in settings}) < len(graph.sources):
        msg = "the watermark of a source is adaptive or in the log, so other delays cannot be tried"
        raise InputError(msg)
    own = {operator.path: operator.lateness for operator in disorder.operators if operator.path is not None}
    changed = own if lateness is None else dict.fromkeys(own, lateness)
    tried = settings if delay is None else [replace(setting, delay=delay) for setting in settings]
    parts = [(disorder.of(setting.partitions), setting) for setting in tried if setting.partitions]
    missed = Missed.sum([part.missed(setting.delay, setting.source_lateness, changed) for part, setting in parts])
    longest, then = (max((setting.delay for setting in some), default=0) for some in (settings, tried))
    held = _ratio(_held(disorder, then, changed), _held(disorder, longest, {}))
    return WhatIf(then, max(changed.values(), default=None), missed, held)


def _settings(graph: m.Graph, source: m.SourceNode, partitions: list[int]) -> Iterator[DelaySetting]:
    prefix = "" if graph.is_short else f"sources.{source.name}."
    delays: dict[int | None, int] = {}
    match source.time.watermark:
        case m.Delay(micros):
            delays[None] = micros
        case m.DelayByPartition(default, by_partition):
            delays = {None: default, **dict(by_partition)}
        case _:
            return
    is_by_partition = isinstance(source.time.watermark, m.DelayByPartition)
    own = {number: number % m.MAX_PARTITIONS for number in partitions if graph.source_of(number) == source}
    for place, micros in delays.items():
        path = f".by_partition.{'default' if place is None else place}" if is_by_partition else ""
        numbers = tuple(number for number, at in own.items() if (at if at in delays else None) == place)
        yield DelaySetting(f"{prefix}time.delay{path}", source.name, micros, source.lateness, numbers)


def _choose_delay(setting: DelaySetting, disorder: Disorder, goals: Goals) -> Choice:
    own = disorder.of(setting.partitions)
    found: int | str | None = None
    if own.records and goals.choose_delay:
        found = _needed_delay(own, setting.source_lateness, goals)
    chosen, problem = _split(found, setting.path)
    candidates = {setting.delay, *_nice_quantiles(own), *([] if chosen is None else [chosen])}
    held = _held(own, setting.delay, {})
    table = tuple(
        WhatIf(delay, None, own.missed(delay, setting.source_lateness, {}), _ratio(_held(own, delay, {}), held))
        for delay in sorted(candidates)
    )
    partitions = tuple(_partitions(own, setting, goals))
    lateness = setting.source_lateness
    return Choice(setting.path, setting.delay, own.records, chosen, problem, table, partitions, lateness)


def _needed_delay(own: Disorder, source_lateness: int | None, goals: Goals) -> int | str:
    """Return the lowest delay that meets the goals, or the reason why no delay does."""
    if own.records < goals.needed(for_delay=True):
        return _too_few(own.records, goals.needed(for_delay=True))

    def meets(delay: int) -> bool:
        missed = own.missed(delay, source_lateness, {})
        return (goals.late is None or _share(missed.late.most, missed.pairs) <= goals.late) and (
            goals.quantile is None or own.high.out(delay + 1) <= (1 - goals.quantile) * own.records * (1 + 1e-12)
        )

    needed = _least(meets)
    if needed is None:
        return f"no delay up to {m.format_duration(BOUNDS[-1])} meets the goals"
    within, has_others = goals.within, (goals.late, goals.quantile) != (None, None)
    if within is None or (has_others and needed <= within):
        return needed
    missed = own.missed(within, source_lateness, {})
    if has_others:
        return (
            f"rows within {m.format_duration(within)} and the other goals exclude each other: the others need a delay "
            f"of {m.format_duration(needed)}, and a delay of {m.format_duration(within)} leaves "
            f"{percent(_share(missed.late.most, missed.pairs))} not on time"
        )
    fewest = missed.late.most
    return (
        _least(lambda delay: delay <= within and own.missed(delay, source_lateness, {}).late.most == fewest) or within
    )


def _too_few(records: int, needed: int) -> str:
    return f"{records:,} records are too few: measuring a share as small as the goal takes {needed:,}"


def _partitions(own: Disorder, setting: DelaySetting, goals: Goals) -> Iterator[PartitionDisorder]:
    for number in setting.partitions:
        part = own.of([number])
        needed = _needed_delay(part, setting.source_lateness, goals) if goals.choose_delay else None
        quantiles = {share: part.high.quantile(share) for share in (0.5, 0.99, 0.999, 1.0)}
        yield PartitionDisorder(number, part.records, quantiles, needed if isinstance(needed, int) else None)


def _choose_latenesses(
    graph: m.Graph, disorder: Disorder, settings: list[DelaySetting], delays: Mapping[str, int], goals: Goals
) -> Iterator[Choice]:
    """Choose the latenesses of sources, then those of operators, each independently of the others."""
    for source in graph.sources:
        own = [setting for setting in settings if setting.source == source.name]
        if source.lateness is not None:
            path, now = f"sources.{source.name}.lateness", source.lateness

            def count(lateness: int, own: list[DelaySetting] = own) -> Missed:
                parts = [(disorder.of(setting.partitions), delays[setting.path] + lateness) for setting in own]
                out = Bounds.sum(Bounds(part.low.out(limit), part.high.out(limit)) for part, limit in parts)
                return Missed(sum(part.records for part, _ in parts), out, out)

            yield _choose_lateness(path, now, count, float, goals)
    longest = max(delays.values(), default=0)
    for operator in disorder.operators:
        if operator.path is None:
            continue
        path = operator.path

        def misses(lateness: int, path: str = path) -> Missed:
            changed = {path: lateness}
            own = [(delays[setting.path], disorder.of(setting.partitions, path)) for setting in settings]
            return Missed.sum([part.missed(delay, None, changed) for delay, part in own])

        yield _choose_lateness(path, operator.lateness, misses, partial(operator.held, longest), goals)


def _choose_lateness(
    path: str, now: int, count: Callable[[int], Missed], held: Callable[[int], float], goals: Goals
) -> Choice:
    pairs, wanted = count(now).pairs, goals.expired
    found: int | str | None = None
    if pairs and wanted is not None:
        if pairs < goals.needed(for_delay=False):
            found = _too_few(pairs, goals.needed(for_delay=False))
        else:
            least = _least(lambda lateness: _share(count(lateness).expired.most, pairs) <= wanted)
            found = f"no lateness up to {m.format_duration(BOUNDS[-1])} meets the goal" if least is None else least
    chosen, problem = _split(found, path)
    candidates = {0, now, *([] if chosen is None else [chosen])}
    some = sorted(candidates | {bound for bound in BOUNDS if _MINUTE <= bound <= 2 * max(candidates)})
    table: list[WhatIf] = []
    for lateness in some:
        missed = count(lateness)
        if lateness in candidates or not table or missed.expired != table[-1].missed.expired:
            table.append(WhatIf(0, lateness, missed, _ratio(held(lateness), held(now))))
    return Choice(path, now, pairs, chosen, problem, tuple(table))


def _split(found: int | str | None, path: str) -> tuple[int | None, str | None]:
    return (None, f"{path}: {found}") if isinstance(found, str) else (found, None)


def _least(meets: Callable[[int], bool]) -> int | None:
    return next((bound for bound in BOUNDS if meets(bound)), None)


def _nice_quantiles(own: Disorder) -> Iterator[int]:
    """Yield some quantiles of how far records are behind, rounded up to values in `BOUNDS`."""
    for share in _QUANTILES:
        value = own.high.quantile(share)
        yield next((bound for bound in BOUNDS if bound >= value), BOUNDS[-1])


def _held(own: Disorder, delay: int, changed: Mapping[str, int]) -> float:
    return sum(
        operator.held(delay, changed.get(operator.path or "", operator.lateness))
        for operator in own.operators
        if operator.judges
    )


def _ratio(then: float, now: float) -> float:
    return then / now if now else 1.0


def _share(number: int, total: int) -> float:
    return number / total if total else 0.0


def with_settings(graph: m.Graph, changes: Mapping[str, int]) -> m.Graph:
    """Return a copy of a pipeline in which delays and latenesses have new values, given by path."""
    return graph.map_nodes(lambda node: _change_node(node, changes, is_short=graph.is_short))


def _change_node(node: m.Node, changes: Mapping[str, int], *, is_short: bool) -> m.Node:
    path = "" if is_short else f"{'sources' if isinstance(node, m.SourceNode) else 'streams'}.{node.name}."
    match node:
        case m.SourceNode(time=time, lateness=lateness):
            changed = changes.get(f"{path}lateness", lateness)
            return replace(node, time=_change_time(time, path, changes), lateness=changed)
        case m.WindowNode(emit=emit):
            lateness = changes.get(f"{path}emit.lateness", emit.lateness)
            return replace(node, emit=replace(emit, lateness=lateness))
        case m.RulesNode(rules=rules):
            lateness = changes.get(f"{path}emit.lateness", rules.lateness)
            return replace(node, rules=replace(rules, lateness=lateness))
        case _:
            return node


def _change_time(time: m.EventTime, prefix: str, changes: Mapping[str, int]) -> m.EventTime:
    path = f"{prefix}time.delay"
    match time.watermark:
        case m.Delay(micros):
            return replace(time, watermark=m.Delay(changes.get(path, micros)))
        case m.DelayByPartition(default, delays):
            own = tuple((number, changes.get(f"{path}.by_partition.{number}", micros)) for number, micros in delays)
            return replace(
                time, watermark=m.DelayByPartition(changes.get(f"{path}.by_partition.default", default), own)
            )
        case _:
            return time
