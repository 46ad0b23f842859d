"""Runs of a pipeline from Python: live or to the end of its input, replayed, or a preview of its first rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args

from windrow import model as m
from windrow.authoring.checks import require_valid
from windrow.connectors.open_sources import open_sources
from windrow.connectors.source import OnDataLoss
from windrow.errors import HIDDEN_VALUES, InputError, WindrowError, did_you_mean, not_one_of
from windrow.runtime.launch import launch
from windrow.runtime.run import (
    MAX_BYTES,
    PLACEHOLDER,
    CommandLines,
    Ended,
    HostName,
    OnStart,
    ReplayHost,
    RunSettings,
    require_end,
)
from windrow.runtime.settings import SparkOptions
from windrow.telemetry.folders import default_checkpoint, folder_of
from windrow.telemetry.reports import OnStep, StepReport, Totals, counted, truncations_of
from windrow.terminal.interrupts import stopping
from windrow.terminal.options import parse_size
from windrow.terminal.progress import ProgressLine, alert_line
from windrow.tools.alerts.delivery import watch_run

if TYPE_CHECKING:
    from windrow.client.background import BackgroundRun
    from windrow.client.result import Result
    from windrow.client.tables import Rows

_LOGGER = logging.getLogger("windrow")

EVERY = 1_000_000
STEP_TIME = 10_000_000
"""The time between the starts of two steps of a live run, and the target duration of a step, in microseconds."""
WARN_ABOVE = 0.01
"""The share of a run's records that may expire, or be dead letters, without a warning at the end of the run."""
UNUSED: Mapping[HostName, tuple[str, ...]] = {
    "stream": (),
    "realtime": (
        "until_end",
        "max_records",
        "max_bytes",
        "every",
        "step_time",
        "on_data_loss",
        "fresh",
        "backfill",
        "from_savepoint",
        "fail_if_dead",
        "fail_if_expired",
    ),
    "batch": ("every", "step_time", "on_data_loss", "retry"),
    "memory": ("checkpoint", "every", "step_time", "on_data_loss", "retry", "master", "conf"),
}
"""Options that a host does not use."""
_MODES: Mapping[HostName, m.RunMode] = {"stream": "micro-batch", "realtime": "realtime"}
"""The mode in which a host runs a pipeline, whatever its file says."""


def host_of(graph: m.Graph) -> HostName:
    """Return the host for a pipeline's mode."""
    return "realtime" if graph.mode == "realtime" else "stream"


def require_host(host: HostName) -> HostName:
    """Return the name of a host; raise InputError if there is no host with this name."""
    _require_one_of("host", host, get_args(HostName))
    return host


def _require_one_of(name: str, given: str, options: Sequence[str]) -> None:
    if given not in options:
        msg = f"{name} {not_one_of(given, options)}"
        raise InputError(msg)


def on_host(graph: m.Graph, host: HostName) -> m.Graph:
    """Return the pipeline in the mode of a host."""
    return replace(graph, mode=_MODES[host]) if host in _MODES else graph


def refuse_together(host: HostName, given: Mapping[str, Any], options: str = "") -> None:
    """Raise InputError if options of a run exclude each other; `options` is their prefix in error messages."""
    backfill, savepoint = (
        f"{options}{name}" for name in ("backfill", "from-savepoint" if options else "from_savepoint")
    )
    if (given["backfill"] or given["from_savepoint"] is not None) and host != "stream":
        name = backfill if given["backfill"] else savepoint
        msg = f"{name} works on the stream host only: leave out {options}host {host}"
        raise InputError(msg)
    if given["backfill"] and given["from_savepoint"] is not None:
        msg = f"a run starts with a backfill or from a savepoint: leave out {backfill} or {savepoint}"
        raise InputError(msg)
    if given["fresh"] and given["from_savepoint"] is not None:
        msg = (
            f"a run from a savepoint continues its tables, which {options}fresh would delete: leave out one of the two"
        )
        raise InputError(msg)


def warnings_of(
    graph: m.Graph, ended: Ended, totals: Totals, above: float, commands: CommandLines = PLACEHOLDER
) -> list[str]:
    """Return the warnings about a finished run.

    They are about more than the share `above` of records that are in no result, and about last lines that were not
    read. `commands` are the commands that warnings suggest.
    """
    return [*_in_no_result(graph, totals, above, commands), *(_incomplete(graph) if ended == "end" else [])]


def _in_no_result(graph: m.Graph, totals: Totals, above: float, commands: CommandLines) -> Iterator[str]:
    """Yield warnings about dead letters and expired records; each truncation that is a dead letter counts."""
    sink, read, dead = graph.sinks[0].sink, totals.events, totals.dead + totals.rejected
    if totals.dead and totals.dead >= read:
        yield f"all records ({totals.dead:,}) are dead letters; {sink.reasons} says why"
    elif dead > above * read:
        show = commands.of(f"show {sink.companion('dead')}")
        yield f"{_share(dead, read)} are dead letters, and in no result: `{show}` says why"
    truncations = truncations_of(totals.dead_reasons)
    if truncations is not None:
        yield truncations
    if totals.expired > above * read:
        show, tune = commands.of(f"show {sink.companion('late')}"), commands.of("tune --log")
        each = ", counted for each window that they missed," if totals.expired > read else ""
        yield (
            f"{_share(totals.expired, read)} have expired{each} and are in no result: they came later than delay and "
            f"lateness allow, as in a log that is not sorted by time. `{tune}` says which delay and lateness would "
            f"include them, and `{show}` lists them"
        )


def _share(number: int, records: int) -> str:
    return f"{number:,} of {counted(records, 'record')}" + (f" ({number / records:.3%})" if records else "")


def _incomplete(graph: m.Graph) -> list[str]:
    """Return a warning for each last line without a newline, because a run to the end of the input does not read it."""
    try:
        files = open_sources(graph).incomplete()
    except WindrowError as exc:
        return [f"cannot check for a last line without a newline: {exc}"]  # the run itself has succeeded
    return [
        f"the last line of {file} has no newline, so it was not read; add one if the line is complete" for file in files
    ]


class _Watch:
    """Shows the progress of a run where a line can be drawn, and logs and keeps its warnings."""

    def __init__(self, label: str, on_step: OnStep | None, *, progress: bool, in_background: bool = False) -> None:
        self.line = ProgressLine(label, quiet=not progress, only_drawn=True, only_in_cell=in_background)
        self.warnings: list[str] = []
        self._label = label
        self._on_step = on_step

    def on_step(self, report: StepReport) -> None:
        """Count and show a step, then call the user's `on_step`."""
        self.line.on_step(report)
        if self._on_step is not None:
            self._on_step(report)

    def warn(self, message: str) -> None:
        """Log and keep a warning."""
        self.warnings.append(HIDDEN_VALUES.hide(message))
        self.trouble(message)

    def trouble(self, message: str) -> None:
        """Log a fault or warning."""
        _LOGGER.warning("%s: %s", self._label, HIDDEN_VALUES.hide(message))

    @contextmanager
    def running(self) -> Iterator[OnStart]:
        """Show progress, and let an interrupt stop the run; then restore logging, which an interrupt can disable."""
        disabled = logging.root.manager.disable
        try:
            with self.line, stopping(self.trouble, passes_on=True) as on_start:
                yield on_start
        finally:
            logging.disable(disabled)


class RunOptions(TypedDict, total=False):
    """The options of a run, as documented in `windrow.client.pipeline.Pipeline.run`."""

    until_end: bool
    max_records: int | None
    max_bytes: str | None
    fresh: bool
    recopy: str | Collection[str]
    checkpoint: str | PathLike[str] | None
    every: str | None
    backfill: bool
    from_savepoint: str | PathLike[str] | None
    on_data_loss: OnDataLoss | None
    master: str | None
    conf: Mapping[str, str] | None
    on_step: OnStep | None
    progress: bool
    warn_above: float


@dataclass(frozen=True)
class _Prepared:
    """A run whose pipeline and options have been validated."""

    pipeline: m.Graph
    options: RunSettings
    watch: _Watch
    warn_above: float

    def run(self, on_step: OnStep, on_start: OnStart) -> Result:
        """Run the pipeline, and return its result; raise a WindrowError if it fails."""
        from windrow.client.result import Result  # noqa: PLC0415 - Arrow is loaded only for reading

        ended = launch(self.pipeline, self.options, on_step, on_start)
        totals = self.watch.line.totals
        warnings = (*self.watch.warnings, *warnings_of(self.pipeline, ended, totals, self.warn_above))
        return Result(self.pipeline, ended, totals, warnings)


def run(graph: m.Graph, host: HostName | None, **options: Unpack[RunOptions]) -> Result:
    """Run a pipeline; see `windrow.client.pipeline.Pipeline.run`."""
    prepared = _prepare(graph, host, in_background=False, **options)
    with prepared.watch.running() as on_start:
        return prepared.run(prepared.watch.on_step, on_start)


def start(graph: m.Graph, host: HostName | None, **options: Unpack[RunOptions]) -> BackgroundRun:
    """Start a pipeline; see `windrow.client.pipeline.Pipeline.start`."""
    from windrow.client.background import BackgroundRun  # noqa: PLC0415 - as in `_Prepared.run`

    unknown = next((name for name in options if name not in RunOptions.__annotations__), None)
    if unknown is not None:
        msg = (
            f"start() got an unexpected keyword argument {unknown!r}{did_you_mean(unknown, RunOptions.__annotations__)}"
        )
        raise TypeError(msg)
    given = options.pop("on_step", None)
    prepared = _prepare(graph, host, in_background=True, **options)

    def run_it(on_ready: Callable[[], None], on_step: OnStep, on_start: OnStart) -> Result:
        def on_each(report: StepReport) -> None:
            for function in (prepared.watch.on_step, on_step, given):
                if function is not None:
                    function(report)

        return replace(prepared, options=replace(prepared.options, on_ready=on_ready)).run(on_each, on_start)

    return BackgroundRun(prepared.pipeline, prepared.watch.line, run_it)


def _prepare(
    graph: m.Graph,
    host: HostName | None,
    *,
    in_background: bool,
    until_end: bool = True,
    max_records: int | None = None,
    max_bytes: str | None = None,
    fresh: bool = False,
    recopy: str | Collection[str] = (),
    checkpoint: str | PathLike[str] | None = None,
    every: str | None = None,
    backfill: bool = False,
    from_savepoint: str | PathLike[str] | None = None,
    on_data_loss: OnDataLoss | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    on_step: OnStep | None = None,
    progress: bool = True,
    warn_above: float = WARN_ABOVE,
) -> _Prepared:
    """Validate a pipeline and the options of its run; raise an InputError if they are invalid."""
    host = host_of(graph) if host is None else require_host(host)
    if on_data_loss is not None:
        _require_one_of("on_data_loss", on_data_loss, get_args(OnDataLoss))
    given = {
        "max_records": max_records,
        "max_bytes": max_bytes,
        "fresh": fresh or None,
        "checkpoint": checkpoint,
        "every": every,
        "backfill": backfill or None,
        "from_savepoint": from_savepoint,
        "on_data_loss": on_data_loss,
        "master": master,
        "conf": conf,
    }
    unused = [name for name in UNUSED[host] if given.get(name) is not None]
    if unused:
        msg = f"host {host} does not use {' and '.join(unused)}: leave {'it' if len(unused) == 1 else 'them'} out"
        raise InputError(msg)
    refuse_together(host, given)
    valid = require_valid(on_host(graph, host))
    watch = _Watch(valid.name, on_step, progress=progress, in_background=in_background)
    options = RunSettings(
        checkpoint=_folder(checkpoint) or default_checkpoint(valid.name),
        host=host,
        # a realtime run has no end
        until_end=until_end and host != "realtime",
        max_records=max_records,
        max_bytes=MAX_BYTES if max_bytes is None else parse_size(max_bytes),
        every=EVERY if every is None else _micros("every", every),
        step_time=STEP_TIME,
        fresh=fresh,
        recopy=(recopy,) if isinstance(recopy, str) else tuple(recopy),
        savepoint=_folder(from_savepoint),
        backfill=backfill,
        spark=SparkOptions(master, conf or {}),
        on_trouble=watch.trouble,
        on_warning=watch.warn,
        on_alert=lambda alert: watch.trouble(f"alert {alert_line(alert)}"),
        watch=watch_run,
        on_data_loss=on_data_loss or "stop",
        has_company=in_background,
    )
    require_end(options, "leave out until_end=False")
    return _Prepared(valid, options, watch, warn_above)


def replay(
    graph: m.Graph,
    host: ReplayHost,
    *,
    into: str | None,
    journal: bool,
    to_end: bool,
    fresh: bool,
    checkpoint: str | PathLike[str] | None,
    max_records: int | None,
    max_bytes: str | None,
    on_step: OnStep | None,
    progress: bool,
) -> Result:
    """Replay a pipeline; see `windrow.client.pipeline.Pipeline.replay`."""
    from windrow.client.result import Result  # noqa: PLC0415
    from windrow.runtime.batch.plan import MAX_RECORDS  # noqa: PLC0415 - as in `run`
    from windrow.runtime.replay import ReplayOptions, plan_replay, run_replay  # noqa: PLC0415 - as in `run`

    _require_one_of("host", host, get_args(ReplayHost))
    folder = _folder(checkpoint)
    watch = _Watch(graph.name, on_step, progress=progress)
    options = ReplayOptions(
        checkpoint=folder or default_checkpoint(graph.name),
        default=folder is None,
        into=into,
        end="log" if to_end else "live",
        journal=journal,
        host=host,
        fresh=fresh,
        max_records=max_records or MAX_RECORDS,
        max_bytes=MAX_BYTES if max_bytes is None else parse_size(max_bytes),
        on_warning=watch.warn,
    )
    planned = plan_replay(require_valid(graph), options)
    with watch.running() as on_start:
        ended = run_replay(planned, options, watch.on_step, on_start)
    return Result(planned.pipeline, ended, watch.line.totals, tuple(watch.warnings))


def preview(graph: m.Graph, n: int, table: str | None, records: int | None) -> Rows:
    """Preview a pipeline; see `windrow.client.pipeline.Pipeline.preview`."""
    from windrow.client.tables import Query, find_table, read, require_of_log, sink_of  # noqa: PLC0415
    from windrow.runtime.memory import FIRST, tables_of_first  # noqa: PLC0415

    sink, spec, found = find_table(graph, table)
    require_of_log(spec.sink, found, "a preview")
    with tables_of_first(require_valid(graph), FIRST if records is None else records) as first:
        rows = read(sink_of(first.pipeline, sink), found, Query(limit=n))
    if first.share is None:
        return replace(rows, notes=first.notes)
    part = f"from the first {first.share:,} records of each partition: windows may lack later records"
    return replace(rows, notes=(*first.notes, part))


def _folder(given: str | PathLike[str] | None) -> Any:  # noqa: ANN401 - a folder of a disk or an object store
    return None if given is None else folder_of(str(given))


def _micros(name: str, text: str) -> int:
    micros = m.parse_duration(text)
    if micros > m.MAX_DURATION:
        msg = f"{name} {text!r} is longer than a hundred years (36500d)"
        raise InputError(msg)
    return micros
