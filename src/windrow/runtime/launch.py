"""Runs a pipeline on a host, into its own sink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, assert_never

from windrow import model as m
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.open_sources import followers, open_sources, with_lists
from windrow.connectors.sink import SinkGroup
from windrow.connectors.source import OnDataLoss
from windrow.engine.lists import with_entries
from windrow.errors import InputError, WindrowError
from windrow.runtime.command_lines import PLACEHOLDER, CommandLines
from windrow.runtime.group_offsets import GroupOffsets
from windrow.runtime.settings import AS_GIVEN, SparkOptions
from windrow.telemetry.folders import Folder
from windrow.telemetry.history import HistoryWriter, RunRecord, forget_history, history_of
from windrow.telemetry.lineage import lineage
from windrow.telemetry.reports import Alert, Observer, OnLag, OnStep, OnTrouble, naming_lag, naming_partitions
from windrow.telemetry.traces import tracing

HostName = Literal["stream", "realtime", "batch", "memory"]
ReplayHost = Literal["batch", "memory"]
Ended = Literal["end", "asked"]
"""Why a run ended: at the end of the input, or because it was asked to stop."""

OnStart = Callable[[Callable[[], None]], None]
"""A callback that receives the function that asks the run to stop."""


OnAlert = Callable[[Alert], None]

Watch = Callable[[m.Graph, "Options", RunRecord], AbstractContextManager[Observer]]
"""Raises the alerts of a live run, by its record in the history, from what the observer is called with."""


@dataclass(frozen=True)
class Options:
    """Options of a run.

    A step takes at most `max_records` (None: the default of the host); live steps begin every `every` microseconds.
    With `step_time`, live steps that would take longer than so many microseconds read fewer records. `fresh` first
    removes the checkpoint and the tables. A new checkpoint starts from `savepoint` if that is given, or with `backfill`
    from a batch run over all records in the log. `on_trouble` is called with each fault that is retried, and with lost
    records if `on_data_loss` is "continue"; `on_warning` with what the run goes on in spite of, such as a file that is
    followed and cannot be read; `on_ready` when a stream begins to take steps, also after a fault; `on_resume` when its
    checkpoint is known to be its own; `on_lag` every second or so with how far a stream is behind; `on_alert` with each
    alert of a live run that `watch` raises or resolves. A stream gives up after `retry` seconds of faults without a
    step (None: a minute, on a cluster ten). `commands` are those that alerts advise. Of a run that `has_company`,
    others run beside it in this process.
    """

    checkpoint: Folder
    host: HostName = "stream"
    until_end: bool = False
    max_records: int | None = None
    every: int = 1_000_000
    step_time: int | None = None
    fresh: bool = False
    savepoint: Folder | None = None
    backfill: bool = False
    spark: SparkOptions = AS_GIVEN
    on_trouble: OnTrouble = lambda _: None
    on_warning: Callable[[str], None] = lambda _: None
    on_resume: Callable[[], None] = lambda: None
    on_ready: Callable[[], None] = lambda: None
    on_lag: OnLag = lambda _: None
    on_alert: OnAlert = lambda _: None
    watch: Watch = lambda *_: nullcontext(Observer())
    retry: float | None = None
    on_data_loss: OnDataLoss = "stop"
    commands: CommandLines = PLACEHOLDER
    has_company: bool = False


@dataclass(frozen=True)
class Job:
    """A pipeline to run, what is called with its steps and when it has ended, and what shows it while it runs."""

    pipeline: m.Graph
    options: Options
    on_step: OnStep
    shown: AbstractContextManager[object] = field(default_factory=nullcontext)
    on_end: Callable[[Ended], None] = lambda _: None

    def run(self, on_start: OnStart) -> Ended:
        """Run it; raise a WindrowError if it fails."""
        with self.shown:
            ended = launch(self.pipeline, self.options, self.on_step, on_start)
        self.on_end(ended)
        return ended


def launch_all(jobs: Sequence[Job], on_start: OnStart, on_failure: Callable[[str], None]) -> list[Ended]:
    """Run pipelines in one Spark session: live ones side by side, bounded ones in turn; return why each ended.

    `on_start` is given the function that asks all of them to stop. If one fails, the others finish their steps and
    stop, and those whose turn has not come are left out: `on_failure` is called with what is said of it, and then its
    error is raised.
    """
    for job in jobs:
        require_end(job.options)
    if len(jobs) == 1:
        return [jobs[0].run(on_start)]
    together = _Together(len(jobs))
    on_start(together.stop)
    is_bounded = all(job.options.until_end for job in jobs)
    return (_in_turn if is_bounded else _side_by_side)(jobs, together, on_failure)


def _in_turn(jobs: Sequence[Job], together: _Together, on_failure: Callable[[str], None]) -> list[Ended]:
    ended: list[Ended] = []
    for number, job in enumerate(jobs):
        if together.is_asked:
            break
        try:
            ended.append(job.run(together.on_start))
        except WindrowError:
            _report_failure(on_failure, job, jobs[number + 1 :], "not run")
            raise
    return ended


def _side_by_side(jobs: Sequence[Job], together: _Together, on_failure: Callable[[str], None]) -> list[Ended]:
    def run(number: int) -> None:
        job = replace(jobs[number], options=replace(jobs[number].options, has_company=True))
        together.note(number, partial(job.run, together.on_start))

    # daemons: a second signal ends the process
    names = [job.pipeline.name for job in jobs]
    threads = [threading.Thread(target=run, args=(n,), name=name, daemon=True) for n, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # a wait without end would keep signals from this thread
            thread.join(_WAIT)
    if together.failed is not None:
        number, error = together.failed
        _report_failure(on_failure, jobs[number], [job for job in jobs if job is not jobs[number]], "stopped")
        raise error
    return [one for one in together.ended if one is not None]


def _report_failure(on_failure: Callable[[str], None], job: Job, others: Sequence[Job], what: str) -> None:
    names = ", ".join(other.pipeline.name for other in others)
    on_failure(f"{job.pipeline.name} failed" + (f"; {what}: {names}" if names else ""))


_WAIT = 0.5
"""Seconds between two looks at whether a thread has ended."""


class _Together:
    """Runs that stop together: by a signal, or if one of them fails."""

    def __init__(self, number: int) -> None:
        self.ended: list[Ended | None] = [None] * number
        self.failed: tuple[int, BaseException] | None = None
        self.is_asked = False
        self._stops: list[Callable[[], None]] = []
        self._lock = threading.RLock()  # a signal's handler may find this thread in it

    def on_start(self, stop: Callable[[], None]) -> None:
        """Note how one of them is asked to stop; it is, if the others were."""
        with self._lock:
            self._stops.append(stop)
            is_asked = self.is_asked
        if is_asked:
            stop()

    def stop(self) -> None:
        """Ask all of them to stop."""
        with self._lock:
            self.is_asked = True
            stops = list(self._stops)
        for stop in stops:
            stop()

    def note(self, number: int, run: Callable[[], Ended]) -> None:
        """Run one of them, note how it ended, and have the others stop if it failed."""
        try:
            self.ended[number] = run()
        except BaseException as exc:  # noqa: BLE001 - it is raised where all are waited for
            with self._lock:
                self.failed = self.failed or (number, exc)
            self.stop()


def launch(graph: m.Graph, options: Options, on_step: OnStep, on_start: OnStart) -> Ended:
    """Run a pipeline; `on_start` is given the function that asks the run to stop.

    Raise a WindrowError if it cannot be run, or fails; what was committed stays.
    """
    own = Observer(on_step, options.on_trouble, options.on_ready, options.on_lag, options.on_resume)
    with (
        _noting(graph, options) as noted,
        GroupOffsets(graph, options.on_warning) as groups,
        tracing(graph, options.host, options.on_warning) as traces,
        lineage(graph, is_bounded=options.until_end, on_warning=options.on_warning) as events,
    ):
        all_ = Observer.all_of([*noted, own, traces, events])
        watched = replace(
            options,
            on_trouble=all_.on_trouble,
            on_ready=all_.on_ready,
            on_lag=naming_lag(graph, all_.on_lag),
            on_resume=all_.on_resume,
        )
        ended = _launch(graph, watched, groups.committing(naming_partitions(graph, all_.on_step)), on_start)
        all_.on_end(ended == "asked")
        return ended


@contextmanager
def _noting(graph: m.Graph, options: Options) -> Iterator[list[Observer]]:
    """Yield what writes the history of a run that has a checkpoint, and what raises the alerts of a live one."""
    if options.host in {"batch", "memory"}:
        yield []
        return
    record, path = RunRecord.here(graph.name, options.host, options.every), history_of(options.checkpoint)
    with HistoryWriter(path, record, options.on_warning) as history:
        if options.until_end:
            yield [history.observer]
            return

        def on_alert(alert: Alert) -> None:
            history.note_alert(alert)
            options.on_alert(alert)

        with options.watch(graph, replace(options, on_alert=on_alert), record) as alerts:
            yield [alerts, history.observer]


def _launch(graph: m.Graph, options: Options, on_step: OnStep, on_start: OnStart) -> Ended:
    # in real time lists in topics are followed
    graph = with_entries(graph) if options.host == "realtime" else with_lists(graph, options.on_warning)
    for follower in followers(graph).values():
        follower.update()
    if options.fresh:
        open_sources(graph).partitions()  # a log that cannot be read costs no results
    if options.host == "realtime":
        return _realtime(graph, options, on_step, on_start)
    sinks = open_sinks(graph)
    try:
        match options.host:
            case "stream":
                return _stream(graph, sinks, options, on_step, on_start)
            case "batch":
                from windrow.runtime.batch.plan import MAX_RECORDS, BatchSettings  # noqa: PLC0415
                from windrow.runtime.batch.run import BatchRun  # noqa: PLC0415 - Spark only where it runs
                from windrow.runtime.stream.checkpoint import log_of  # noqa: PLC0415

                _begin_bounded(sinks, options)
                batch = BatchRun(
                    graph,
                    sinks,
                    BatchSettings(
                        max_records=options.max_records or MAX_RECORDS,
                        spark=options.spark,
                        log=log_of(options.checkpoint),
                    ),
                )
                on_start(batch.stop)
                return batch.run(on_step)
            case "memory":
                from windrow.runtime.memory import MemoryRun  # noqa: PLC0415 - Arrow only where it runs

                _begin_bounded(sinks, options)
                memory = MemoryRun(graph, sinks, options.max_records)
                on_start(memory.stop)
                return memory.run(on_step)
            case _:
                assert_never(options.host)
    finally:
        sinks.close()


def _begin_bounded(sinks: SinkGroup, options: Options) -> None:
    """Prepare a run without a checkpoint; raise InputError if it has no end."""
    require_end(options)
    if options.fresh:
        sinks.clear()


def require_end(options: Options, remedy: str = "add --until-end") -> None:
    """Raise InputError, which names a remedy, if the host needs a run with an end, and this one has none."""
    if options.host in {"batch", "memory"} and not options.until_end:
        msg = f"the {options.host} host reads to the end of the input: {remedy}, or run on the stream host"
        raise InputError(msg)


def _realtime(graph: m.Graph, options: Options, on_step: OnStep, on_start: OnStart) -> Ended:
    from windrow.runtime.realtime.run import RealtimeRun, RealtimeSettings  # noqa: PLC0415 - Spark only where it runs
    from windrow.runtime.stream.checkpoint import log_of  # noqa: PLC0415

    settings = RealtimeSettings(
        spark=options.spark,
        log=log_of(options.checkpoint),
        on_trouble=options.on_trouble,
        on_warning=options.on_warning,
        on_ready=options.on_ready,
        on_lag=options.on_lag,
        **({} if options.retry is None else {"retry": options.retry}),
    )
    run = RealtimeRun(graph, settings)
    on_start(run.stop)
    return run.run(on_step)


def _stream(graph: m.Graph, sinks: SinkGroup, options: Options, on_step: OnStep, on_start: OnStart) -> Ended:
    from windrow.runtime.batch.plan import MAX_RECORDS  # noqa: PLC0415 - Spark only where it runs
    from windrow.runtime.stream.checkpoint import Checkpoint, locked  # noqa: PLC0415
    from windrow.runtime.stream.run import LIVE_MAX_RECORDS, StreamRun, StreamSettings  # noqa: PLC0415

    if options.fresh:
        Checkpoint.refuse_foreign(options.checkpoint)
        with locked(options.checkpoint):
            sinks.clear()
            Checkpoint.remove(options.checkpoint)
            forget_history(history_of(options.checkpoint))
    savepoint = options.savepoint
    if options.backfill:
        from windrow.runtime.backfill import Backfill  # noqa: PLC0415

        begun = Backfill(graph, options.checkpoint, options.spark).run(on_step, on_start)
        if isinstance(begun, str):
            return begun
        savepoint = begun
    settings = StreamSettings(
        checkpoint=options.checkpoint,
        until_end=options.until_end,
        max_records=options.max_records or (MAX_RECORDS if options.until_end else LIVE_MAX_RECORDS),
        every=options.every,
        step_time=options.step_time,
        savepoint=savepoint,
        spark=options.spark,
        on_trouble=options.on_trouble,
        on_warning=options.on_warning,
        on_resume=options.on_resume,
        on_ready=options.on_ready,
        on_lag=options.on_lag,
        retry=options.retry,
        on_data_loss=options.on_data_loss,
        has_company=options.has_company,
    )
    run = StreamRun(graph, sinks, settings)
    on_start(run.stop)
    return run.run(on_step)
