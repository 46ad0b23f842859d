"""Launches pipelines on their hosts, and writes to the sinks that they define."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, assert_never

from windrow import model as m
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.open_sources import open_sources, update_followers, with_lists
from windrow.connectors.sink import Run, SinkGroup
from windrow.engine.lists import with_entries
from windrow.errors import CheckpointError, WindrowError
from windrow.runtime.batch.plan import MAX_RECORDS, BatchSettings
from windrow.runtime.group_offsets import GroupOffsets
from windrow.runtime.run import Ended, OnStart, RunSettings, require_end
from windrow.runtime.savepoint import FILE, fingerprint
from windrow.runtime.stream.checkpoint import Checkpoint, locked, log_of
from windrow.telemetry.folders import Folder, remove, write_whole
from windrow.telemetry.history import HistoryWriter, RunRecord, forget_history, history_of
from windrow.telemetry.lineage import lineage
from windrow.telemetry.reports import Alert, Observer, OnStep, name_lag, name_partitions
from windrow.telemetry.traces import tracing


@dataclass(frozen=True)
class Job:
    """A pipeline to run, the callbacks for its steps and its end, and its display while it runs."""

    pipeline: m.Graph
    options: RunSettings
    on_step: OnStep
    shown: AbstractContextManager[object] = field(default_factory=nullcontext)
    on_end: Callable[[Ended], None] = lambda _: None

    def run(self, on_start: OnStart) -> Ended:
        """Run the pipeline; raise a WindrowError if it fails."""
        with self.shown:
            ended = launch(self.pipeline, self.options, self.on_step, on_start)
        self.on_end(ended)
        return ended


def launch_all(jobs: Sequence[Job], on_start: OnStart, on_failure: Callable[[str], None]) -> list[Ended]:
    """Run pipelines in one Spark session, and return why each ended.

    Live pipelines run side by side, bounded ones in turn. `on_start` receives a function that asks all of them to stop.
    If one fails, running pipelines finish their current step and stop, and pipelines that have not started do not run;
    `on_failure` is called with a message about this before the error is raised.
    """
    for job in jobs:
        require_end(job.options)
    if len(jobs) == 1:
        return [jobs[0].run(on_start)]
    group = _RunGroup(len(jobs))
    on_start(group.stop)
    is_bounded = all(job.options.until_end for job in jobs)
    return (_run_in_turn if is_bounded else _run_side_by_side)(jobs, group, on_failure)


def _run_in_turn(jobs: Sequence[Job], group: _RunGroup, on_failure: Callable[[str], None]) -> list[Ended]:
    ended: list[Ended] = []
    for number, job in enumerate(jobs):
        if group.is_asked:
            break
        try:
            ended.append(job.run(group.on_start))
        except WindrowError:
            _report_failure(on_failure, job, jobs[number + 1 :], "not run")
            raise
    return ended


def _run_side_by_side(jobs: Sequence[Job], group: _RunGroup, on_failure: Callable[[str], None]) -> list[Ended]:
    def run(number: int) -> None:
        job = replace(jobs[number], options=replace(jobs[number].options, has_company=True))
        group.run(number, partial(job.run, group.on_start))

    # daemons: a second signal ends the process
    names = [job.pipeline.name for job in jobs]
    threads = [threading.Thread(target=run, args=(n,), name=name, daemon=True) for n, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # a wait without a timeout would keep signals from this thread
            thread.join(_WAIT)
    if group.failed is not None:
        number, error = group.failed
        _report_failure(on_failure, jobs[number], [job for job in jobs if job is not jobs[number]], "stopped")
        raise error
    return [ended for ended in group.ended if ended is not None]


def _report_failure(on_failure: Callable[[str], None], job: Job, others: Sequence[Job], what: str) -> None:
    names = ", ".join(other.pipeline.name for other in others)
    on_failure(f"{job.pipeline.name} failed" + (f"; {what}: {names}" if names else ""))


_WAIT = 0.5
"""Seconds between two checks whether a thread has ended."""


class _RunGroup:
    """Runs that stop together, on a signal or when one of them fails."""

    def __init__(self, number: int) -> None:
        self.ended: list[Ended | None] = [None] * number
        self.failed: tuple[int, BaseException] | None = None
        self.is_asked = False
        self._stops: list[Callable[[], None]] = []
        self._lock = threading.RLock()  # a signal handler may interrupt this thread while it holds the lock

    def on_start(self, stop: Callable[[], None]) -> None:
        """Add the function that stops one of the runs; call it immediately if the group was already asked to stop."""
        with self._lock:
            self._stops.append(stop)
            is_asked = self.is_asked
        if is_asked:
            stop()

    def stop(self) -> None:
        """Ask all runs to stop."""
        with self._lock:
            self.is_asked = True
            stops = list(self._stops)
        for stop in stops:
            stop()

    def run(self, number: int, run: Callable[[], Ended]) -> None:
        """Run one of the runs and record how it ended; stop the others if it fails."""
        try:
            self.ended[number] = run()
        except BaseException as exc:  # noqa: BLE001 - raised by the thread that waits for all
            with self._lock:
                self.failed = self.failed or (number, exc)
            self.stop()


def launch(graph: m.Graph, options: RunSettings, on_step: OnStep, on_start: OnStart) -> Ended:
    """Run a pipeline; `on_start` receives a function that asks the run to stop.

    Raise a WindrowError if the pipeline cannot be run, or if it fails; steps already committed remain.
    """
    own = Observer(on_step, options.on_trouble, options.on_ready, options.on_lag, options.on_resume)
    with (
        _history(graph, options) as noted,
        GroupOffsets(graph, options.on_warning) as groups,
        tracing(graph, options.host, options.on_warning) as traces,
        lineage(graph, is_bounded=options.until_end, on_warning=options.on_warning) as events,
    ):
        all_ = Observer.all_of([*noted, own, traces, events])
        watched = replace(
            options,
            on_trouble=all_.on_trouble,
            on_ready=all_.on_ready,
            on_lag=name_lag(graph, all_.on_lag),
            on_resume=all_.on_resume,
        )
        ended = _launch(graph, watched, groups.committing(name_partitions(graph, all_.on_step)), on_start)
        all_.on_end(ended == "asked")
        return ended


@contextmanager
def _history(graph: m.Graph, options: RunSettings) -> Iterator[list[Observer]]:
    """Yield observers that write the history of a run with a checkpoint and that raise the alerts of a live run."""
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


def _launch(graph: m.Graph, options: RunSettings, on_step: OnStep, on_start: OnStart) -> Ended:
    # in real time lists in topics are followed
    graph = with_entries(graph) if options.host == "realtime" else with_lists(graph, options.on_warning)
    update_followers(graph, options.recopy)
    if options.fresh:
        open_sources(graph).partitions()  # before anything is deleted: raises if the log cannot be read
    if options.host == "realtime":
        from windrow.runtime.realtime.run import RealtimeRun  # noqa: PLC0415 - Spark only where it runs

        realtime = RealtimeRun(graph, options)
        on_start(realtime.stop)
        return realtime.run(on_step)
    with closing(open_sinks(graph)) as sinks:
        if options.host == "stream":
            return _stream(graph, sinks, options, on_step, on_start)
        require_end(options)
        if options.fresh:
            sinks.clear()
        match options.host:
            case "batch":
                from windrow.runtime.batch.run import BatchRun  # noqa: PLC0415 - Spark only where it runs

                most, log = options.max_records or MAX_RECORDS, log_of(options.checkpoint)
                settings = BatchSettings(max_records=most, max_bytes=options.max_bytes, spark=options.spark, log=log)
                batch = BatchRun(graph, sinks, settings)
                on_start(batch.stop)
                return batch.run(on_step)
            case "memory":
                from windrow.runtime.memory import MemoryRun  # noqa: PLC0415 - Arrow only where it runs

                memory = MemoryRun(graph, sinks, options.max_records, max_bytes=options.max_bytes)
                on_start(memory.stop)
                return memory.run(on_step)
            case _:
                assert_never(options.host)


def _stream(graph: m.Graph, sinks: SinkGroup, options: RunSettings, on_step: OnStep, on_start: OnStart) -> Ended:
    from windrow.runtime.stream.run import StreamRun  # noqa: PLC0415 - Spark only where it runs

    if options.fresh:
        Checkpoint.refuse_foreign(options.checkpoint)
        with locked(options.checkpoint):
            sinks.clear()
            Checkpoint.remove(options.checkpoint)
            forget_history(history_of(options.checkpoint))
    if options.backfill:
        begun = _backfill(graph, options, on_step, on_start)
        if begun == "asked":
            return "asked"
        options = replace(options, savepoint=begun)
    run = StreamRun(graph, sinks, options)
    on_start(run.stop)
    return run.run(on_step)


def _backfill(
    graph: m.Graph, options: RunSettings, on_step: OnStep, on_start: OnStart
) -> Folder | Literal["asked"] | None:
    """Run a batch over the log so far, leaving windows open, and return the savepoint that the stream starts from.

    Return None if there is nothing to do, because the log is empty or the stream has already begun. The checkpoint's
    folder records the backfill and its run. A backfill that ended before it wrote its savepoint is repeated, after its
    rows are removed.
    """
    from windrow.runtime.batch.run import BatchRun  # noqa: PLC0415 - Spark only where it runs

    folder = options.checkpoint
    savepoint = folder / "backfill"
    if Checkpoint.read(folder) is not None:
        return None
    with locked(folder):
        if (savepoint / FILE).exists():
            return savepoint
        remove(savepoint)
        if all(first == end for first, end in open_sources(graph).ends().values()):
            return None
        settings = BatchSettings(
            at_end="hold",
            savepoint=savepoint,
            max_bytes=options.max_bytes,
            run=_backfill_run(graph, folder),
            spark=options.spark,
            log=log_of(folder),
        )
        with closing(open_sinks(graph)) as sinks:
            batch = BatchRun(graph, sinks, settings)
            on_start(batch.stop)
            return savepoint if batch.run(on_step) == "end" else "asked"


def _backfill_run(graph: m.Graph, folder: Folder) -> Run:
    """Record a new run for a backfill; if one is already recorded, remove its rows and return it."""
    path = folder / "backfill.json"
    if not path.exists():
        run = Run.new(graph.name)
        write_whole(path, json.dumps({"run": run.id, "pipeline": fingerprint(graph)}, indent=2))
        return run
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        run, begun = Run(graph.name, kept["run"]), kept["pipeline"]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        msg = f"{path} cannot be read ({exc}); start over with --fresh"
        raise CheckpointError(msg) from exc
    if begun["name"] != graph.name:
        msg = f"{folder} holds a backfill of the pipeline {begun['name']!r}: choose another --checkpoint"
        raise CheckpointError(msg)
    with closing(open_sinks(graph)) as sinks:
        written = sinks.open(run)  # raises if the rows are another run's
    if written is not None:
        with closing(open_sinks(graph)) as sinks:
            sinks.clear()
    return run
