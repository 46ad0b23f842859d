"""Reports of a run: what each committed step did, and their sum.

A report is for eyes alone: it holds wall-clock times and durations, and nothing that is computed depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, get_args

from windrow import model as m
from windrow.connectors.source import SlotLag
from windrow.errors import RecordsLostError, SinkError, SourceError, WindrowError
from windrow.telemetry.health import runbook_of
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.hot_keys import HotKeys, add_by_node
from windrow.telemetry.part_times import PartTime, join_part_times
from windrow.telemetry.samples import RecordSample, least, with_verdicts
from windrow.telemetry.sums import add_counts, sum_by_name
from windrow.telemetry.window_counts import WindowCounts, add_windows

if TYPE_CHECKING:
    from windrow.engine.operators.base import GroupOutput

T = TypeVar("T")
P = ParamSpec("P")

PartitionName = int | str
"""A partition's number; with several sources ``SOURCE/NUMBER``."""


NOTHING_REFUSED: Mapping[str, Mapping[str, int]] = {}
"""No rows that the table of a sink cannot hold, by sink and kind of reason."""

FaultReason = Literal["source", "sink", "engine", "lost"]
"""Where a fault is: the log, the database, Spark; or that unread records of the log are lost."""
FAULT_REASONS: tuple[FaultReason, ...] = get_args(FaultReason)


class Fault(str):
    """The message of a fault after which a run goes on: what was wrong, and then what is done now; and its `reason`.

    What is done now is of the moment: who keeps a fault, keeps `what`.
    """

    __slots__ = ("reason", "then", "what")
    what: str
    reason: FaultReason
    then: str

    def __new__(cls, what: str, reason: FaultReason, then: str = "") -> Self:
        """Make one."""
        made = super().__new__(cls, f"{what}; {then}" if then else what)
        made.what, made.reason, made.then = what, reason, then
        return made

    def __getnewargs__(self) -> tuple[str, FaultReason, str]:  # type: ignore[override] # a str has no reason
        """Return what a copy is made of."""
        return self.what, self.reason, self.then

    @staticmethod
    def of(error: WindrowError, what: str, then: str = "") -> Fault:
        """Return the fault that an error is."""
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
    """How far a run was behind the end of its log when that was asked for (microseconds), between steps, too.

    `records` are offsets by partition; `seconds` how long ago the log had the last record that was read, 0 where
    nothing is left to read, and nothing where the log has no timestamps. `slots` are the replication slots from which
    logs of tables are written: how far these are behind the tables.
    """

    asked: int
    records: dict[PartitionName, int]
    seconds: dict[PartitionName, float] | None = None
    slots: tuple[SlotLag, ...] = ()

    @property
    def behind(self) -> int:
        """The offsets of all partitions together."""
        return sum(self.records.values())

    @property
    def longest(self) -> float | None:
        """The seconds of the partition that is farthest behind; None if they are known of none that is."""
        if not self.behind:
            return 0.0
        known = self.seconds or {}
        return max((known[name] for name, offsets in self.records.items() if offsets and name in known), default=None)

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        slots = {"slots": [asdict(slot) for slot in self.slots]} if self.slots else {}
        return {"asked": self.asked, "records": self.records, "seconds": self.seconds, **slots}

    def with_slots_of(self, other: Lag | None) -> Lag:
        """Return this lag of the partitions, with the slots of another one."""
        return self if other is None else replace(self, slots=other.slots)

    @staticmethod
    def of_plain(made: Mapping[str, Any]) -> Lag:
        """Return what `plain` wrote, also after JSON has made text of the numbers of partitions."""
        records, seconds = (made[name] and _named(made[name]) for name in ("records", "seconds"))
        return Lag(made["asked"], records, seconds, tuple(SlotLag(**one) for one in made.get("slots", ())))


@dataclass(frozen=True)
class Alert:
    """An alert of a run: what is wrong, since when, and what to do (`message`); times are microseconds.

    It holds since `since`, was `raised` later, and is active until it was `resolved`. `figures` are the numbers of the
    message as plain JSON, `runbook` is the page that says more.
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
        """Whether it has not been resolved."""
        return self.resolved is None

    @property
    def state(self) -> Literal["raised", "resolved"]:
        """What happened to it last."""
        return "raised" if self.resolved is None else "resolved"

    @property
    def runbook(self) -> str:
        """The page of the documentation that says what it means, how to look, and what to do."""
        return runbook_of(self.name)

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**asdict(self), "state": self.state, "runbook": self.runbook}

    @staticmethod
    def of_plain(made: Mapping[str, Any]) -> Alert:
        """Return what `plain` wrote; raise KeyError if it is none."""
        return Alert(**{field.name: made[field.name] for field in fields(Alert)})


@dataclass(frozen=True)
class StepReport:
    """A committed step: how much of what, and where the partitions stand after it.

    `watermarks` are microseconds, None before a partition's first record; `low_watermark` is that of them all, None
    before there is one; `idle` are the partitions that do not hold it back. `dead` are records that could not be read,
    `rejected` counts those that single streams of a graph could not take, `duplicates` those that deduplications left
    out. `offsets` are the next to be read; `seconds` have passed since the step before it was committed, `took` of them
    in this step. `lag` is how many offsets each partition is behind the log's end, as far as that was known when the
    step was committed, and `lag_seconds` how long ago the log had the last record that was read, where the log has
    timestamps; 0 where nothing is left to read.

    `committed` is the wall clock at the commit (microseconds). `read` are the good records of each partition,
    `log_times` the newest log timestamp of those that were read (microseconds). `lateness` counts how far records were
    behind the clock of their partition, each once for each operator that takes it from its source; `latency` the time
    from the log timestamp of each record to the commit, rounded up to a bound. `parts` are the seconds of the step by
    part: `plan`, `compute`, `collect`, `wait` (for the commit of the step before), `sync` (the checkpoint) and `commit`
    (the sink); `tasks` the seconds that all tasks of `compute` together have spent on `read`, `decode` and `operate`.
    `part_times` are when these parts began and ended, all tasks together; they are not in the plain form.
    `key_group_load` is the greatest share of records that a key group has, as a multiple of the mean share.
    `state_rows` and `state_bytes` are what the state store held about then, `state_by_node` the same by the nodes whose
    operators run together. `hot_keys` are estimates of the keys with most records, by node. `samples` are a uniform
    sample of its good records (`windrow.telemetry.samples`). `dead_reasons` counts dead letters by the kind of their
    reason, `dead_by_sink` those that each sink of several was given. `windows` are those of each node that has windows,
    by key group (`windrow.telemetry.window_counts`); None if they are not known, as of older versions. What a host does
    not know is empty or None; of a host that knows `only_offsets`, `records` are offsets, and the other counts are 0
    and say nothing.
    """

    epoch: int
    records: int
    late: int
    expired: int
    dead: int
    inserts: int
    revisions: int
    open_windows: int
    watermarks: dict[PartitionName, int | None]
    offsets: dict[PartitionName, int]
    low_watermark: int | None
    idle: list[PartitionName]
    seconds: float
    took: float = 0.0
    rejected: int = 0
    duplicates: int = 0
    lag: dict[PartitionName, int] | None = None
    lag_seconds: dict[PartitionName, float] | None = None
    committed: int | None = None
    read: dict[PartitionName, int] = field(default_factory=dict)
    log_times: dict[PartitionName, int] = field(default_factory=dict)
    lateness: dict[PartitionName, Histogram] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)
    parts: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)
    part_times: tuple[PartTime, ...] = field(default=(), compare=False)
    key_group_load: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    state_by_node: dict[str, tuple[int, int]] = field(default_factory=dict)
    hot_keys: dict[str, HotKeys] = field(default_factory=dict)
    samples: tuple[RecordSample, ...] = ()
    dead_reasons: dict[str, int] = field(default_factory=dict)
    dead_by_sink: dict[str, dict[str, int]] = field(default_factory=dict)
    windows: dict[str, WindowCounts] | None = None
    only_offsets: bool = False

    @property
    def watermark_lag(self) -> float | None:
        """Seconds from the low watermark to the commit; None if one of them is not known."""
        if self.low_watermark is None or self.committed is None:
            return None
        return (self.committed - self.low_watermark) / 1_000_000

    @property
    def behind(self) -> int | None:
        """The lag of all partitions together in offsets; None if it is not known."""
        return None if self.lag is None else sum(self.lag.values())

    @property
    def last_lag(self) -> Lag | None:
        """The lag at the commit; None if it is not known."""
        return None if self.lag is None or self.committed is None else Lag(self.committed, self.lag, self.lag_seconds)

    @property
    def events(self) -> int:
        """All that was read: good records and dead letters."""
        return self.records + self.dead

    @property
    def held_back_by(self) -> list[PartitionName]:
        """The partitions that would have to go on for the low watermark to do so; none if all are idle."""
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
        """Add up the key groups of a step that was just committed; there is at least one, and each knows all clocks.

        What the probes of the run have seen (`windrow.telemetry.probe`) is in their outputs.

        `refused` counts the rows that the tables of sinks cannot hold, by sink and kind of reason.
        """
        from windrow.telemetry.probe import StepFacts  # noqa: PLC0415 - as for `_known`

        outputs = list(groups)
        stats = [output.stats for output in outputs]
        by_group = [StepFacts.sum(map(StepFacts.decode, output.observed)) for output in outputs]
        facts = StepFacts.sum(by_group)
        committed = now_micros() if committed is None else committed
        return StepReport(
            epoch=epoch,
            records=sum(stat.records for stat in stats),
            late=sum(stat.late for stat in stats),
            expired=sum(stat.expired for stat in stats),
            dead=sum(stat.dead for stat in stats),
            inserts=sum(stat.inserts for stat in stats),
            revisions=sum(stat.revisions for stat in stats),
            open_windows=max(one.open_windows for one in by_group),
            watermarks={partition: _known(watermark) for partition, watermark in sorted(stats[0].watermarks.items())},
            offsets=dict(sorted(stats[0].offsets.items())),
            low_watermark=_known(stats[0].low),
            idle=list(stats[0].idle),
            seconds=seconds,
            took=seconds if took is None else took,
            rejected=sum(stat.rejected for stat in stats) + sum(sum(kinds.values()) for kinds in refused.values()),
            duplicates=sum(stat.duplicates for stat in stats),
            committed=committed,
            read=dict(sorted(facts.read.items())),
            log_times=dict(sorted((row.partition, row.newest) for row in facts.ages)),
            lateness=dict(sorted(facts.lateness.items())),
            latency=Histogram.sum(row.ages.moved(committed - row.newest) for row in facts.ages),
            parts=sum_by_name({part.part: part.seconds} for part in parts),
            tasks=sum_by_name({time.part: time.seconds} for time in facts.part_times),
            part_times=(*parts, *join_part_times(facts.part_times)),
            key_group_load=_load([sum(counts.total for counts in one.lateness.values()) for one in by_group]),
            hot_keys=facts.hot_keys,
            samples=with_verdicts(least(facts.samples), facts.verdicts),
            dead_reasons=sum_by_name([facts.dead_reasons, *refused.values()]),
            # the one sink of a short form has no name
            dead_by_sink=sum_by_name(
                [facts.dead_by_sink, {sink: dict(kinds) for sink, kinds in refused.items() if sink}], add_counts
            ),
            windows={node: WindowCounts.of(one.windows[node] for one in by_group) for node in facts.windows},
        )

    def up_to(self, reached: Mapping[int, int]) -> StepReport:
        """Return the report with the offsets at which the step ends, also behind the marks of transactions."""
        return replace(self, offsets=dict(sorted(reached.items())))

    def with_state(self, graph: m.Graph, levels: Sequence[tuple[int, int]]) -> StepReport:
        """Return the report with the rows and bytes that the state store holds at each level, if they are known."""
        if len(levels) != len(graph.levels):
            return self
        names = (
            ", ".join((one.node.name or graph.name) + (" (salted)" if one.is_local else "") for one in level)
            for level in graph.levels
        )
        rows, size = map(sum, zip(*levels, strict=True))
        return replace(self, state_rows=rows, state_bytes=size, state_by_node=dict(zip(names, levels, strict=True)))

    def again(self) -> StepReport:
        """Return the report of a step that was counted before: with nothing to add."""
        windows = self.windows and {node: one.again for node, one in self.windows.items()}
        return replace(self, windows=windows, **{name: _EMPTY.get(name, 0) for name in _COUNTS})

    def __add__(self, later: StepReport) -> StepReport:
        """Return this step and a later one as one: counts and seconds add up, the rest is the later's."""
        return replace(
            later,
            **{name: getattr(self, name) + getattr(later, name) for name in (*_NUMBERS, "seconds", "took")},
            read=sum_by_name((self.read, later.read)),
            lateness={
                partition: self.lateness.get(partition, Histogram()) + later.lateness.get(partition, Histogram())
                for partition in self.lateness | later.lateness
            },
            latency=self.latency + later.latency,
            log_times=self.log_times | later.log_times,
            parts=sum_by_name((self.parts, later.parts)),
            tasks=sum_by_name((self.tasks, later.tasks)),
            hot_keys=add_by_node((self.hot_keys, later.hot_keys)),
            samples=least((*self.samples, *later.samples)),
            dead_reasons=sum_by_name((self.dead_reasons, later.dead_reasons)),
            dead_by_sink=sum_by_name((self.dead_by_sink, later.dead_by_sink), add_counts),
            windows=add_windows(self.windows, later.windows),
        )

    def plain(self) -> dict[str, Any]:
        """Return the report as plain JSON; a histogram is the list of its counts."""
        made = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "part_times"}
        made["lateness"] = {partition: list(counts.counts) for partition, counts in self.lateness.items()}
        made["latency"] = list(self.latency.counts)
        made["hot_keys"] = {node: {"records": one.records, "counts": one.counts} for node, one in self.hot_keys.items()}
        made["samples"] = [asdict(sample) for sample in self.samples]
        made["windows"] = self.windows and {node: one.plain() for node, one in self.windows.items()}
        return made

    @staticmethod
    def of_plain(made: Mapping[str, Any]) -> StepReport:
        """Return the report that `plain` wrote, also after JSON has made text of the numbers of partitions.

        Raise KeyError, TypeError or ValueError if it is none.
        """
        values = {field.name: made[field.name] for field in fields(StepReport) if field.name in made}
        for name in ("watermarks", "offsets", "lag", "lag_seconds", "read", "log_times", "lateness"):
            if values.get(name) is not None:
                values[name] = _named(values[name])
        values["lateness"] = {name: Histogram(tuple(counts)) for name, counts in values["lateness"].items()}
        values["latency"] = Histogram(tuple(values["latency"]))
        values["state_by_node"] = {node: tuple(held) for node, held in values.get("state_by_node", {}).items()}
        values["hot_keys"] = {node: HotKeys(**one) for node, one in values.get("hot_keys", {}).items()}
        values["samples"] = tuple(RecordSample(**one) for one in values.get("samples", ()))
        if values.get("windows") is not None:
            values["windows"] = {node: WindowCounts.of_plain(one) for node, one in values["windows"].items()}
        return StepReport(**values)


_NUMBERS = ("records", "late", "expired", "dead", "inserts", "revisions", "rejected", "duplicates")
_EMPTY: dict[str, Any] = {
    "read": {},
    "lateness": {},
    "latency": Histogram(),
    "hot_keys": {},
    "samples": (),
    "dead_reasons": {},
    "dead_by_sink": {},
}
_COUNTS = (*_NUMBERS, *_EMPTY)
"""Fields that are counts: a step that is run again reports them as 0."""


def now_micros() -> int:
    """Return the wall clock in microseconds."""
    return time.time_ns() // 1_000


def _load(records: list[int]) -> float | None:
    """Return the greatest of some numbers as a multiple of their mean, None if all are 0."""
    return max(records) * len(records) / sum(records) if any(records) else None


def _named(values: Mapping[PartitionName, T]) -> dict[PartitionName, T]:
    """Return values by partition, of whose numbers JSON has made text."""
    return {int(name) if str(name).isdigit() else name: value for name, value in values.items()}


def _known(watermark: int) -> int | None:
    from windrow.engine.columns import MIN_TIME  # noqa: PLC0415 - who reads reports needs no Arrow

    return None if watermark == MIN_TIME else watermark


OnStep = Callable[[StepReport], None]
OnLag = Callable[[Lag], None]
OnTrouble = Callable[[Fault], None]


@dataclass(frozen=True)
class Observer:
    """Callbacks of a run, which raise nothing: by default they do nothing.

    `on_step` is called with each committed step, `on_lag` with how far the run is behind, `on_trouble` with each fault
    after which it goes on, `on_ready` when it takes steps, for the first time or after a fault, `on_resume` when its
    checkpoint is known to be its own, and `on_end` when it has ended without an error, with whether it was asked to.
    """

    on_step: OnStep = lambda _: None
    on_trouble: OnTrouble = lambda _: None
    on_ready: Callable[[], None] = lambda: None
    on_lag: OnLag = lambda _: None
    on_resume: Callable[[], None] = lambda: None
    on_end: Callable[[bool], None] = lambda _: None

    @staticmethod
    def all_of(observers: Sequence[Observer]) -> Observer:
        """Return one that calls several, in their order."""
        return Observer(
            _each([observer.on_step for observer in observers]),
            _each([observer.on_trouble for observer in observers]),
            _each([observer.on_ready for observer in observers]),
            _each([observer.on_lag for observer in observers]),
            _each([observer.on_resume for observer in observers]),
            _each([observer.on_end for observer in observers]),
        )


def _each(functions: Sequence[Callable[P, None]]) -> Callable[P, None]:
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        for function in functions:
            function(*args, **kwargs)

    return call


def _named_in(graph: m.Graph, values: Mapping[PartitionName, T]) -> dict[PartitionName, T]:
    return {graph.partition_name(int(partition)): value for partition, value in values.items()}


def naming_partitions(graph: m.Graph, on_step: OnStep) -> OnStep:
    """Return what is called with each step, and calls `on_step` with the names of partitions."""
    named = partial(_named_in, graph)

    def name(report: StepReport) -> None:
        on_step(
            replace(
                report,
                watermarks=named(report.watermarks),
                offsets=named(report.offsets),
                idle=list(named(dict.fromkeys(report.idle))),
                lag=None if report.lag is None else named(report.lag),
                lag_seconds=None if report.lag_seconds is None else named(report.lag_seconds),
                read=named(report.read),
                log_times=named(report.log_times),
                lateness=named(report.lateness),
                samples=tuple(
                    replace(sample, partition=graph.partition_name(int(sample.partition))) for sample in report.samples
                ),
            )
        )

    return name if len(graph.sources) > 1 else on_step


def naming_lag(graph: m.Graph, on_lag: OnLag) -> OnLag:
    """Return what is called with a lag, and calls `on_lag` with the names of partitions."""
    named = partial(_named_in, graph)

    def name(lag: Lag) -> None:
        on_lag(replace(lag, records=named(lag.records), seconds=None if lag.seconds is None else named(lag.seconds)))

    return name if len(graph.sources) > 1 else on_lag


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: ``1 step``, ``2,000 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Stopwatch:
    """Seconds since it was made or read."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds so far."""
        return time.monotonic() - self._since

    def lap(self) -> float:
        """Return the seconds and start again."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds


@contextmanager
def timing(times: list[PartTime], part: str, level: int = 0) -> Iterator[None]:
    """Note the time that a block takes."""
    since = time.monotonic()
    yield
    times.append(ending_now(part, time.monotonic() - since, level))


def ending_now(part: str, seconds: float, level: int = 0) -> PartTime:
    """Return the time of a part that has taken so many seconds."""
    now = now_micros()
    return PartTime(part, seconds, now - round(seconds * 1_000_000), now, level)


@dataclass
class Totals:
    """Adds up a run as its steps are committed."""

    steps: int = 0
    events: int = 0
    late: int = 0
    expired: int = 0
    dead: int = 0
    inserts: int = 0
    revisions: int = 0
    rejected: int = 0
    duplicates: int = 0
    seconds: float = 0.0
    lateness: Histogram = field(default=Histogram(), repr=False)
    latency: Histogram = field(default=Histogram(), repr=False)
    commits: Histogram = field(default=Histogram(), repr=False)
    parts: dict[str, float] = field(default_factory=dict, repr=False)
    tasks: dict[str, float] = field(default_factory=dict, repr=False)
    dead_reasons: dict[str, int] = field(default_factory=dict, repr=False)
    windows: dict[str, WindowCounts] | None = field(default=None, repr=False)
    last: StepReport | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The counts of events by outcome, for a summary."""
        return (
            f"{counted(self.inserts, 'insert')}, {counted(self.revisions, 'revision')}, {self.late:,} late, "
            f"{self.expired:,} expired, {counted(self.dead + self.rejected, 'dead letter')}"
            + (f", {counted(self.duplicates, 'duplicate')}" if self.duplicates else "")
        )

    def add(self, report: StepReport) -> None:
        """Count a step."""
        self.steps += 1
        self.events += report.events
        self.late += report.late
        self.expired += report.expired
        self.dead += report.dead
        self.inserts += report.inserts
        self.revisions += report.revisions
        self.rejected += report.rejected
        self.duplicates += report.duplicates
        self.seconds += report.seconds
        self.lateness += Histogram.sum(report.lateness.values())
        self.latency += report.latency
        if "commit" in report.parts:
            self.commits += Histogram.of_one(round(report.parts["commit"] * 1_000_000))
        self.parts = sum_by_name((self.parts, report.parts))
        self.tasks = sum_by_name((self.tasks, report.tasks))
        self.dead_reasons = sum_by_name((self.dead_reasons, report.dead_reasons))
        self.windows = add_windows(self.windows, report.windows)
        self.last = report

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds if self.seconds else 0.0

    def plain(self) -> dict[str, Any]:
        """Return the totals as plain JSON, and where the run stands."""
        made: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in _APART
        }
        made["events_per_second"] = round(self.rate)
        made["seconds"] = round(self.seconds, 3)
        made["lateness_seconds"] = _quantiles(self.lateness)
        made["latency_seconds"] = _quantiles(self.latency)
        made["windows"] = self.windows and {node: one.total._asdict() for node, one in self.windows.items()}
        made["commit_seconds"] = _quantiles(self.commits)
        for name in ("parts", "tasks"):
            made[name] = {part: round(seconds, 3) for part, seconds in made[name].items()}
        last = self.last
        if last is not None:
            made |= {
                "epoch": last.epoch,
                "offsets": last.offsets,
                "watermarks": last.watermarks,
                "low_watermark": last.low_watermark,
                "watermark_lag": last.watermark_lag,
                "held_back_by": last.held_back_by,
                "idle": last.idle,
                "lag": last.lag,
                "lag_seconds": last.lag_seconds,
                "behind": last.behind,
                "state_rows": last.state_rows,
                "state_bytes": last.state_bytes,
            }
        return made


def _quantiles(histogram: Histogram) -> dict[str, float] | None:
    """Return quantiles in seconds by name, None if nothing was counted."""
    if not histogram.total:
        return None
    return {name: (histogram.quantile(share) or 0.0) / 1_000_000 for name, share in _QUANTILES.items()}


_APART = {"last", "latency", "lateness", "commits"}
"""Fields of totals that are said in another way."""
_QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
