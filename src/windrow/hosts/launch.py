"""Runs a pipeline on a host, into its own sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, assert_never

from windrow.core.lists import with_entries
from windrow.errors import InputError
from windrow.hosts.alert_delivery import AlertWatch, OnAlert, read_past
from windrow.hosts.command_lines import PLACEHOLDER, CommandLines
from windrow.hosts.folders import Folder
from windrow.hosts.group_offsets import GroupOffsets
from windrow.hosts.history import HistoryWriter, RunRecord, forget_history, history_of
from windrow.hosts.lineage import lineage
from windrow.hosts.reports import Alert, Observer, OnLag, OnStep, OnTrouble, naming_lag, naming_partitions
from windrow.hosts.settings import AS_GIVEN, SparkOptions
from windrow.hosts.traces import tracing
from windrow.model import Runnable, as_graph
from windrow.sinks import open_sinks
from windrow.sinks.base import SinkGroup
from windrow.sources import followers, open_sources, with_lists
from windrow.sources.base import OnDataLoss

HostName = Literal["stream", "realtime", "batch", "memory"]
Ended = Literal["end", "asked"]
"""Why a run ended: at the end of the input, or because it was asked to stop."""

OnStart = Callable[[Callable[[], None]], None]
"""A callback that receives the function that asks the run to stop."""


@dataclass(frozen=True)
class Options:
    """Options of a run. A step takes at most `max_records`; live steps begin every `every` microseconds.

    With `step_time`, live steps that would take longer than so many microseconds read fewer records.
    `fresh` first removes the checkpoint and the tables. A new checkpoint starts from `savepoint` if that is given, or
    with `backfill` from a batch run over all records in the log. `on_trouble` is called with each fault that is
    retried, and with lost records if `on_data_loss` is "continue"; `on_warning` with what the run goes on in spite
    of, such as a file that is followed and cannot be read; `on_ready` when a stream begins to take steps, also after
    a fault; `on_resume` when its checkpoint is known to be its own; `on_lag` every second or so with how far a stream
    is behind; `on_alert` with each alert of a live run that is raised or resolved. A stream gives up after `retry`
    seconds of faults without a step (None: a minute, on a cluster ten). `commands` are those that alerts advise.
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
    retry: float | None = None
    on_data_loss: OnDataLoss = "stop"
    commands: CommandLines = PLACEHOLDER


def launch(pipeline: Runnable, options: Options, on_step: OnStep, on_start: OnStart) -> Ended:
    """Run a pipeline; `on_start` is given the function that asks the run to stop.

    Raise a WindrowError if it cannot be run, or fails; what was committed stays.
    """
    graph = as_graph(pipeline)
    own = Observer(on_step, options.on_trouble, options.on_ready, options.on_lag, options.on_resume)
    with (
        _noting(pipeline, options) as noted,
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
        ended = _launch(pipeline, watched, groups.committing(naming_partitions(graph, all_.on_step)), on_start)
        all_.on_end(ended == "asked")
        return ended


@contextmanager
def _noting(pipeline: Runnable, options: Options) -> Iterator[list[Observer]]:
    """Yield what writes the history of a run that has a checkpoint, and what raises the alerts of a live one."""
    if options.host in {"batch", "memory"}:
        yield []
        return
    record, path = RunRecord.here(pipeline.name, options.host), history_of(options.checkpoint)
    with HistoryWriter(path, record, options.on_warning) as history:
        if options.until_end:
            yield [history.observer]
            return

        def on_alert(alert: Alert) -> None:
            history.note_alert(alert)
            options.on_alert(alert)

        past = partial(read_past, path, record)
        with AlertWatch(
            pipeline, options.every, past, on_alert, options.on_warning, commands=options.commands
        ) as alerts:
            yield [alerts.observer, history.observer]


def _launch(pipeline: Runnable, options: Options, on_step: OnStep, on_start: OnStart) -> Ended:
    # in real time lists in topics are followed
    pipeline = with_entries(pipeline) if options.host == "realtime" else with_lists(pipeline, options.on_warning)
    for follower in followers(pipeline).values():
        follower.update()
    if options.fresh:
        open_sources(pipeline).partitions()  # a log that cannot be read costs no results
    if options.host == "realtime":
        return _realtime(pipeline, options, on_step, on_start)
    sinks = open_sinks(pipeline)
    try:
        match options.host:
            case "stream":
                return _stream(pipeline, sinks, options, on_step, on_start)
            case "batch":
                from windrow.hosts.batch.plan import MAX_RECORDS, BatchSettings  # noqa: PLC0415
                from windrow.hosts.batch.run import BatchRun  # noqa: PLC0415 - Spark only where it runs
                from windrow.hosts.stream.checkpoint import log_of  # noqa: PLC0415

                _begin_bounded(sinks, options)
                batch = BatchRun(
                    pipeline,
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
                from windrow.hosts.memory import MemoryRun  # noqa: PLC0415 - Arrow only where it runs

                _begin_bounded(sinks, options)
                memory = MemoryRun(pipeline, sinks, options.max_records)
                on_start(memory.stop)
                return memory.run(on_step)
            case _:
                assert_never(options.host)
    finally:
        sinks.close()


def _begin_bounded(sinks: SinkGroup, options: Options) -> None:
    """Prepare a run without a checkpoint; raise InputError if it has no end."""
    if not options.until_end:
        msg = f"the {options.host} host reads to the end of the input: add --until-end, or run on the stream host"
        raise InputError(msg)
    if options.fresh:
        sinks.clear()


def _realtime(pipeline: Runnable, options: Options, on_step: OnStep, on_start: OnStart) -> Ended:
    from windrow.hosts.realtime.run import RealtimeRun, RealtimeSettings  # noqa: PLC0415 - Spark only where it runs
    from windrow.hosts.stream.checkpoint import log_of  # noqa: PLC0415

    settings = RealtimeSettings(
        spark=options.spark,
        log=log_of(options.checkpoint),
        on_trouble=options.on_trouble,
        on_warning=options.on_warning,
        on_ready=options.on_ready,
        on_lag=options.on_lag,
        **({} if options.retry is None else {"retry": options.retry}),
    )
    run = RealtimeRun(pipeline, settings)
    on_start(run.stop)
    return run.run(on_step)


def _stream(pipeline: Runnable, sinks: SinkGroup, options: Options, on_step: OnStep, on_start: OnStart) -> Ended:
    from windrow.hosts.stream.checkpoint import Checkpoint, locked  # noqa: PLC0415 - Spark only where it runs
    from windrow.hosts.stream.run import StreamRun, StreamSettings  # noqa: PLC0415

    if options.fresh:
        Checkpoint.refuse_foreign(options.checkpoint)
        with locked(options.checkpoint):
            sinks.clear()
            Checkpoint.remove(options.checkpoint)
            forget_history(history_of(options.checkpoint))
    savepoint = options.savepoint
    if options.backfill:
        from windrow.hosts.replay import Backfill  # noqa: PLC0415

        begun = Backfill(pipeline, options.checkpoint, options.spark).run(on_step, on_start)
        if isinstance(begun, str):
            return begun
        savepoint = begun
    settings = StreamSettings(
        checkpoint=options.checkpoint,
        until_end=options.until_end,
        max_records=options.max_records,
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
    )
    run = StreamRun(pipeline, sinks, settings)
    on_start(run.stop)
    return run.run(on_step)
