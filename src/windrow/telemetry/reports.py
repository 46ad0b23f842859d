"""Reports of a run: what each committed step did, and the totals.

Reports are for people only: they contain wall-clock times and durations, and no computed result depends on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, ParamSpec, Self, get_args

from windrow import model as m
from windrow.connectors.follower import SlotLag
from windrow.errors import TRUNCATION, RecordsLostError, SinkError, SourceError, WindrowError
from windrow.telemetry import facts
from windrow.telemetry.facts import Count, CountsByName, CountsBySink, PartitionName, Seconds, SecondsByName
from windrow.telemetry.health import runbook_of
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.hot_keys import HotKeys
from windrow.telemetry.part_times import PartTime, join_part_times
from windrow.telemetry.samples import RecordSample, least, with_verdicts
from windrow.telemetry.window_counts import WindowCounts

if TYPE_CHECKING:
    from windrow.engine.operators.base import GroupOutput

P = ParamSpec("P")

NOTHING_REFUSED: Mapping[str, Mapping[str, int]] = {}
"""The counts for a step all of whose rows fit into the tables of its sinks."""

FaultReason = Literal["source", "sink", "engine", "lost"]
"""Where a fault occurred: the log, the database or Spark. `lost` means that records were deleted before being read."""
FAULT_REASONS: tuple[FaultReason, ...] = get_args(FaultReason)


class Fault(str):
    """The message of a fault after which a run continues: `what` went wrong, and `then`, what the run does now.

    `then` describes only the current moment, so stored faults omit it.
    """

    __slots__ = ("reason", "then", "what")
    what: str
    reason: FaultReason
    then: str

    def __new__(cls, what: str, reason: FaultReason, then: str = "") -> Self:
        """Join both parts into one message."""
        fault = super().__new__(cls, f"{what}; {then}" if then else what)
        fault.what, fault.reason, fault.then = what, reason, then
        return fault

    def __getnewargs__(self) -> tuple[str, FaultReason, str]:  # type: ignore[override] # a str has no reason
        """Return the arguments from which a copy is created."""
        return self.what, self.reason, self.then

    @staticmethod
    def of(error: WindrowError, what: str, then: str = "") -> Fault:
        """Return the fault for an error; the class of the error determines the reason."""
        match error:
            case RecordsLostError():
                return Fault(what, "lost", then)
            case SourceError():
                return Fault(what, "source", then)
            case SinkError():
                return Fault(what, "sink", then)
            case _:
                return Fault(what, "engine", then)


@dataclass(frozen=True)
class Lag:
    """How far a run was behind the end of its log at the time `asked` (microseconds), at or between steps.

    `records` is the number of offsets that each partition is behind. `seconds` is the age of the last record that was
    read: 0 if nothing is left to read, and missing if the log has no timestamps. `slots` are the replication slots from
    which the logs of tables are written, with how far they are behind the tables.
    """

    asked: int
    records: dict[PartitionName, int]
    seconds: dict[PartitionName, float] | None = None
    slots: tuple[SlotLag, ...] = ()

    @property
    def behind(self) -> int:
        """The lag of all partitions together, in offsets."""
        return sum(self.records.values())

    @property
    def longest(self) -> float | None:
        """Lag of the slowest partition in seconds, or None if unknown."""
        if not self.behind:
            return 0.0
        known = self.seconds or {}
        return max((known[name] for name, offsets in self.records.items() if offsets and name in known), default=None)

    def plain(self) -> dict[str, Any]:
        """Return the lag as plain JSON."""
        slots = {"slots": [asdict(slot) for slot in self.slots]} if self.slots else {}
        return {"asked": self.asked, "records": self.records, "seconds": self.seconds, **slots}

    def rename_partitions(self, name: Callable[[PartitionName], PartitionName]) -> Lag:
        """Return a copy of the lag in which `name` has renamed the partitions."""
        seconds = self.seconds and {name(partition): value for partition, value in self.seconds.items()}
        return replace(self, records={name(key): value for key, value in self.records.items()}, seconds=seconds)

    def with_slots_of(self, other: Lag | None) -> Lag:
        """Return a copy of the lag with the replication slots of another lag."""
        return self if other is None else replace(self, slots=other.slots)

    @staticmethod
    def of_plain(made: Mapping[str, Any]) -> Lag:
        """Parse the result of `plain`, in which partition numbers may be strings."""
        records, seconds = (made[name] and facts.parse_partitions(made[name]) for name in ("records", "seconds"))
        return Lag(made["asked"], records, seconds, tuple(SlotLag(**slot) for slot in made.get("slots", ())))


@dataclass(frozen=True)
class Alert:
    """An alert of a run. `message` says what is wrong, since when, and what to do. Times are microseconds.

    The condition has held since `since`; the alert was `raised` later and is active until `resolved`. `figures` are the
    numbers in the message as plain JSON.
    """

    pipeline: str
    name: m.AlertName
    message: str
    since: int
    raised: int
    resolved: int | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """True if the alert has not been resolved."""
        return self.resolved is None

    @property
    def state(self) -> Literal["raised", "resolved"]:
        """The last change of the alert."""
        return "raised" if self.resolved is None else "resolved"

    @property
    def runbook(self) -> str:
        """The documentation page with the alert's meaning, and how to find and correct its cause."""
        return runbook_of(self.name)

    def plain(self) -> dict[str, Any]:
        """Return the alert as plain JSON."""
        return {**asdict(self), "state": self.state, "runbook": self.runbook}

    @staticmethod
    def of_plain(made: Mapping[str, Any]) -> Alert:
        """Parse the result of `plain`; raise KeyError if a field is missing."""
        return Alert(**{field.name: made[field.name] for field in fields(Alert)})


@dataclass(frozen=True)
class StepReport:
    """A committed step: its counts and timings, and the state of the partitions after it.

    The annotation of a field is its kind (`windrow.telemetry.facts`, which explains how to add a fact).

    `watermarks` are microseconds, or None before a partition's first record. `low_watermark` is the lowest of them, or
    None if there is none; `idle` lists the partitions that do not hold it back. `dead` is the number of undecodable
    records, `rejected` the number of records that one stream of a graph could not take, and `duplicates` the number of
    records that deduplications dropped. `offsets` are the next offsets to read. `seconds` is the time since the
    previous commit; this step `took` part of it. `lag` is how many offsets each partition is behind the end of the log,
    as far as known at the commit. `lag_seconds` is the age of the last record that was read, if the log has timestamps,
    or 0 if nothing is left to read.

    `committed` is the wall-clock time of the commit (microseconds). `read` is the number of good records of each
    partition, `leaps` the number of those that are too far ahead of a guarded clock, and `log_times` the newest log
    timestamp that was read (microseconds). `lateness` counts how far records were behind their partition's clock; a
    record counts once for each operator that takes it from its source. `latency` is the time from each record's log
    timestamp to the commit, rounded up to a bound. `parts` are the seconds spent on each part of the step: `plan`,
    `compute`, `collect`, `wait` (for the previous commit), `sync` (the checkpoint) and `commit` (the sink). `tasks` are
    the seconds that all tasks of `compute` together spent on `read`, `decode` and `operate`. `part_times` say when
    these parts began and ended, for all tasks together; the plain form omits them.

    `key_group_load` is the load of the busiest key group, as a multiple of the mean. `state_rows` and `state_bytes` are
    the size of the state store at about that time; `state_by_node` has the sizes for each group of nodes whose
    operators run together. `hot_keys` are estimates of the most frequent keys of each node. `samples` are a uniform
    sample of the good records (`windrow.telemetry.samples`). `dead_reasons` counts dead letters by the kind of their
    reason; `dead_by_sink` counts them for each sink if there are several. `windows` are the window counts of each node
    and key group (`windrow.telemetry.window_counts`); None in reports of older versions. Values that a host does not
    know are empty or None. If a host knows `only_offsets`, `records` is a number of offsets, and the other counts are 0
    and have no meaning.
    """

    epoch: int
    records: Count
    late: Count
    expired: Count
    dead: Count
    inserts: Count
    revisions: Count
    open_windows: int
    watermarks: Annotated[dict[PartitionName, int | None], facts.by_partition(facts.LATEST)]
    offsets: Annotated[dict[PartitionName, int], facts.by_partition(facts.LATEST)]
    low_watermark: int | None
    idle: Annotated[list[PartitionName], facts.IDLE]
    seconds: Seconds
    took: Seconds = 0.0
    rejected: Count = 0
    duplicates: Count = 0
    lag: Annotated[dict[PartitionName, int] | None, facts.by_partition(facts.LATEST)] = None
    lag_seconds: Annotated[dict[PartitionName, float] | None, facts.by_partition(facts.LATEST)] = None
    committed: int | None = None
    read: Annotated[dict[PartitionName, int], facts.by_partition(facts.COUNTS)] = field(default_factory=dict)
    leaps: Annotated[dict[PartitionName, int], facts.by_partition(facts.COUNTS)] = field(default_factory=dict)
    log_times: Annotated[dict[PartitionName, int], facts.LOG_TIMES] = field(default_factory=dict)
    lateness: Annotated[dict[PartitionName, Histogram], facts.HISTOGRAMS] = field(default_factory=dict)
    latency: Annotated[Histogram, facts.HISTOGRAM] = field(default_factory=Histogram)
    parts: SecondsByName = field(default_factory=dict)
    tasks: SecondsByName = field(default_factory=dict)
    part_times: tuple[PartTime, ...] = field(default=(), compare=False)
    key_group_load: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    state_by_node: Annotated[dict[str, tuple[int, int]], facts.STATE] = field(default_factory=dict)
    hot_keys: Annotated[dict[str, HotKeys], facts.HOT_KEYS] = field(default_factory=dict)
    samples: Annotated[tuple[RecordSample, ...], facts.SAMPLES] = ()
    dead_reasons: CountsByName = field(default_factory=dict)
    dead_by_sink: CountsBySink = field(default_factory=dict)
    windows: Annotated[dict[str, WindowCounts] | None, facts.WINDOWS] = None
    only_offsets: bool = False

    @property
    def internal(self) -> int:
        """The number of dead letters because of defects, which `dead` and `rejected` include."""
        return sum(facts.internal_of(self.dead_reasons).values())

    @property
    def watermark_lag(self) -> float | None:
        """Seconds from the low watermark to the commit, or None if either is unknown."""
        if self.low_watermark is None or self.committed is None:
            return None
        return (self.committed - self.low_watermark) / 1_000_000

    @property
    def behind(self) -> int | None:
        """The lag of all partitions together in offsets, or None if unknown."""
        return None if self.lag is None else sum(self.lag.values())

    @property
    def last_lag(self) -> Lag | None:
        """The lag at the commit, or None if unknown."""
        return None if self.lag is None or self.committed is None else Lag(self.committed, self.lag, self.lag_seconds)

    @property
    def events(self) -> int:
        """The number of records read, including dead letters."""
        return self.records + self.dead

    @property
    def held_back_by(self) -> list[PartitionName]:
        """The partitions that hold the low watermark back; empty if all are idle."""
        return [
            partition
            for partition, watermark in self.watermarks.items()
            if partition not in self.idle and (watermark is None or watermark == self.low_watermark)
        ]

    @staticmethod
    def of(
        epoch: int,
        groups: Iterable[GroupOutput],
        seconds: float,
        took: float | None = None,
        *,
        committed: int | None = None,
        parts: Sequence[PartTime] = (),
        refused: Mapping[str, Mapping[str, int]] = NOTHING_REFUSED,
    ) -> StepReport:
        """Return the report of a step that was just committed, from the outputs of its key groups and their probes.

        There is at least one key group, and the first has the clocks. `refused` counts the rows that a sink's table
        cannot hold, by sink and kind of reason.
        """
        from windrow.telemetry.probe import StepFacts  # noqa: PLC0415 - as for `_or_none`

        outputs = list(groups)
        stats = [output.stats for output in outputs]
        by_group = [StepFacts.sum(map(StepFacts.decode, output.observed)) for output in outputs]
        seen = StepFacts.sum(by_group)
        committed = now_micros() if committed is None else committed
        known: dict[str, Any] = {name: sum(getattr(stat, name) for stat in stats) for name in COUNTS}
        known |= {name: value for name, value in vars(seen).items() if name in facts.kinds_of(StepReport)}
        known |= {
            "open_windows": max(group.open_windows for group in by_group),
            "rejected": known["rejected"] + sum(sum(kinds.values()) for kinds in refused.values()),
            "read": dict(sorted(seen.read.items())),
            "lateness": dict(sorted(seen.lateness.items())),
            "part_times": (*parts, *join_part_times(seen.part_times)),
            "samples": with_verdicts(least(seen.samples), seen.verdicts),
            "dead_reasons": facts.COUNTS.sum([seen.dead_reasons, *refused.values()]),
            # the one sink of a short form has no name
            "dead_by_sink": facts.COUNTS_BY_SINK.sum(
                [seen.dead_by_sink, {sink: kinds for sink, kinds in refused.items() if sink}]
            ),
            "windows": {node: WindowCounts.of(group.windows[node] for group in by_group) for node in seen.windows},
        }
        return StepReport(
            epoch=epoch,
            watermarks={partition: _or_none(watermark) for partition, watermark in sorted(stats[0].watermarks.items())},
            offsets=dict(sorted(stats[0].offsets.items())),
            low_watermark=_or_none(stats[0].low),
            idle=list(stats[0].idle),
            seconds=seconds,
            took=seconds if took is None else took,
            committed=committed,
            log_times=dict(sorted((row.partition, row.newest) for row in seen.ages)),
            latency=Histogram.sum(row.ages.shift(committed - row.newest) for row in seen.ages),
            parts=facts.sum_by_name({part.part: part.seconds} for part in parts),
            tasks=facts.sum_by_name({time.part: time.seconds} for time in seen.part_times),
            key_group_load=_load([sum(counts.total for counts in group.lateness.values()) for group in by_group]),
            **known,
        )

    def up_to(self, reached: Mapping[int, int]) -> StepReport:
        """Return a copy with the offsets where the step ends, which may lie beyond transaction markers."""
        return replace(self, offsets=dict(sorted(reached.items())))

    def with_state(self, graph: m.Graph, levels: Sequence[tuple[int, int]]) -> StepReport:
        """Return a copy with the (rows, bytes) of the state store at each level, if they are known."""
        if len(levels) != len(graph.levels):
            return self
        names = (
            ", ".join((place.node.name or graph.name) + (" (salted)" if place.is_local else "") for place in level)
            for level in graph.levels
        )
        rows, size = map(sum, zip(*levels, strict=True))
        return replace(self, state_rows=rows, state_bytes=size, state_by_node=dict(zip(names, levels, strict=True)))

    def again(self) -> StepReport:
        """Return a copy with all counts set to zero, for a step that was already counted."""
        return replace(
            self, **{name: kind.again(getattr(self, name)) for name, kind in facts.kinds_of(StepReport).items()}
        )

    def __add__(self, later: StepReport) -> StepReport:
        """Add a later step: counts and seconds are summed, other fields are taken from the later step."""
        return StepReport(**facts.sum_facts(StepReport, [self, later]))

    def rename_partitions(self, name: Callable[[PartitionName], PartitionName]) -> StepReport:
        """Return a copy of the report in which `name` has renamed the partitions."""
        return replace(
            self, **{key: kind.rename(getattr(self, key), name) for key, kind in facts.kinds_of(StepReport).items()}
        )

    def plain(self) -> dict[str, Any]:
        """Return the report as plain JSON; a histogram becomes the list of its counts."""
        return {
            name: kind.plain(getattr(self, name))
            for name, kind in facts.kinds_of(StepReport).items()
            if name != "part_times"
        }

    @staticmethod
    def of_plain(made: Mapping[str, Any]) -> StepReport:
        """Parse the result of `plain`, in which partition numbers may be strings.

        Raise KeyError, TypeError or ValueError if it is not the JSON of a report.
        """
        return StepReport(
            **{name: kind.parse(made[name]) for name, kind in facts.kinds_of(StepReport).items() if name in made}
        )


COUNTS: Final = tuple(name for name, kind in facts.kinds_of(StepReport).items() if kind is facts.COUNT)
"""Names of the counts of records, rows and dead letters that the engine makes in each key group."""


def now_micros() -> int:
    """Return the wall-clock time in microseconds."""
    return time.time_ns() // 1_000


def _load(records: list[int]) -> float | None:
    """Return the greatest number as a multiple of the mean, or None if all are 0."""
    return max(records) * len(records) / sum(records) if any(records) else None


def _or_none(watermark: int) -> int | None:
    from windrow.engine.columns import MIN_TIME  # noqa: PLC0415 - reading reports needs no Arrow

    return None if watermark == MIN_TIME else watermark


OnStep = Callable[[StepReport], None]
OnLag = Callable[[Lag], None]
OnTrouble = Callable[[Fault], None]


@dataclass(frozen=True)
class Observer:
    """Callbacks of a run. They must not raise, and do nothing by default.

    `on_step` is called with each committed step, `on_lag` with the run's lag, and `on_trouble` with each fault after
    which the run continues. `on_ready` is called when the run processes steps, for the first time or again after a
    fault. `on_resume` is called when the checkpoint is known to be the run's own. `on_end` is called when the run has
    ended without an error; its argument is True if the run was asked to stop.
    """

    on_step: OnStep = lambda _: None
    on_trouble: OnTrouble = lambda _: None
    on_ready: Callable[[], None] = lambda: None
    on_lag: OnLag = lambda _: None
    on_resume: Callable[[], None] = lambda: None
    on_end: Callable[[bool], None] = lambda _: None

    @staticmethod
    def all_of(observers: Sequence[Observer]) -> Observer:
        """Return an observer that calls several observers in order."""
        return Observer(
            **{name: _call_each([getattr(observer, name) for observer in observers]) for name in vars(Observer())}
        )


def _call_each(functions: Sequence[Callable[P, None]]) -> Callable[P, None]:
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        for function in functions:
            function(*args, **kwargs)

    return call


def name_partitions(graph: m.Graph, on_step: OnStep) -> OnStep:
    """Wrap `on_step` so that, with several sources, partitions are named as in the graph."""
    if len(graph.sources) == 1:
        return on_step
    return lambda report: on_step(report.rename_partitions(lambda number: graph.partition_name(int(number))))


def name_lag(graph: m.Graph, on_lag: OnLag) -> OnLag:
    """Wrap `on_lag` so that, with several sources, partitions are named as in the graph."""
    if len(graph.sources) == 1:
        return on_lag
    return lambda lag: on_lag(lag.rename_partitions(lambda number: graph.partition_name(int(number))))


def counted(number: int, noun: str) -> str:
    """Format a number with its noun in the singular or plural: ``1 step``, ``2,000 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def truncations_of(reasons: Mapping[str, int]) -> str | None:
    """Return a sentence about truncations that are dead letters, or None if there are none.

    `reasons` are the counts of dead letters by the kind of their reason.
    """
    count = reasons.get(TRUNCATION, 0)
    if not count:
        return None
    return (
        f"{counted(count, 'truncation')} of a table could not be applied, so removed rows stay: in a source of several "
        "partitions, their order among the rows is unknown. Write the changes to a topic of one partition, with a new "
        "snapshot of the table, and start over with --fresh"
    )


@dataclass
class Totals:
    """The totals of a run, summed as its steps are committed."""

    steps: int = 0
    events: int = 0
    late: Count = 0
    expired: Count = 0
    dead: Count = 0
    inserts: Count = 0
    revisions: Count = 0
    rejected: Count = 0
    duplicates: Count = 0
    leaps: Annotated[dict[PartitionName, int], facts.by_partition(facts.COUNTS)] = field(default_factory=dict)
    seconds: Seconds = 0.0
    lateness: Histogram = field(default=Histogram(), repr=False)
    latency: Annotated[Histogram, facts.HISTOGRAM] = field(default=Histogram(), repr=False)
    commits: Histogram = field(default=Histogram(), repr=False)
    parts: SecondsByName = field(default_factory=dict, repr=False)
    tasks: SecondsByName = field(default_factory=dict, repr=False)
    dead_reasons: CountsByName = field(default_factory=dict, repr=False)
    windows: Annotated[dict[str, WindowCounts] | None, facts.WINDOWS] = field(default=None, repr=False)
    last: StepReport | None = field(default=None, repr=False)

    @property
    def internal(self) -> int:
        """The number of dead letters because of defects, which `dead` and `rejected` include."""
        return sum(facts.internal_of(self.dead_reasons).values())

    @property
    def text(self) -> str:
        """The number of events with each outcome, for a summary."""
        return (
            f"{counted(self.inserts, 'insert')}, {counted(self.revisions, 'revision')}, {self.late:,} late, "
            f"{self.expired:,} expired, {counted(self.dead + self.rejected, 'dead letter')}"
            + (f" ({self.internal:,} internal)" if self.internal else "")
            + (f", {counted(self.duplicates, 'duplicate')}" if self.duplicates else "")
            + (f", {counted(sum(self.leaps.values()), 'leap')}" if self.leaps else "")
        )

    def add(self, report: StepReport) -> None:
        """Add a step to the totals."""
        self.steps += 1
        self.events += report.events
        self.lateness += Histogram.sum(report.lateness.values())
        if "commit" in report.parts:
            self.commits += Histogram.of_one(round(report.parts["commit"] * 1_000_000))
        for name, kind in facts.kinds_of(Totals).items():
            if kind is not facts.LATEST:
                setattr(self, name, kind.sum([getattr(self, name), getattr(report, name)]))
        self.last = report

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.seconds if self.seconds else 0.0

    def plain(self) -> dict[str, Any]:
        """Return the totals as plain JSON, including the state of the run after the last step."""
        made: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in _APART
        }
        made["events_per_second"] = round(self.rate)
        made["seconds"] = round(self.seconds, 3)
        made["lateness_seconds"] = _quantiles(self.lateness)
        made["latency_seconds"] = _quantiles(self.latency)
        made["windows"] = self.windows and {node: counts.total._asdict() for node, counts in self.windows.items()}
        made["commit_seconds"] = _quantiles(self.commits)
        for name in ("parts", "tasks"):
            made[name] = {part: round(seconds, 3) for part, seconds in made[name].items()}
        last = self.last
        if last is not None:
            made |= {name: getattr(last, name) for name in _STANDING}
        return made


def _quantiles(histogram: Histogram) -> dict[str, float] | None:
    """Return named quantiles in seconds, or None if nothing was counted."""
    if not histogram.total:
        return None
    return {name: (histogram.quantile(share) or 0.0) / 1_000_000 for name, share in _QUANTILES.items()}


_APART = {"last", "latency", "lateness", "commits"}
"""Fields of the totals that have a different form in JSON."""
_STANDING = (
    *("epoch", "offsets", "watermarks", "low_watermark", "watermark_lag", "held_back_by", "idle", "lag", "lag_seconds"),
    *("behind", "state_rows", "state_bytes"),
)
"""Fields of the last step that describe the current state of the run."""
_QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
