"""Plots of logs and results with matplotlib (``pip install 'windrow[plot]'``); each function returns its axes.

`event_time` and `lateness` read the log of a pipeline in this process, `windows` reads a table that a run has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow import model as m
from windrow.client.arguments import checked
from windrow.client.tables import PipelineLike, graph_of, read_table
from windrow.connectors.open_sources import open_sources, with_lists
from windrow.engine.columns import MIN_TIME, to_micros, unpack
from windrow.engine.decode.exact import LOG_TIME_TYPE
from windrow.engine.decode.json_text import parse_object
from windrow.engine.decode.values import convert
from windrow.engine.messages import Records
from windrow.engine.operators.ingest import Ingest
from windrow.engine.schema import MICROS, OFFSET, PARTITION, TIME, WATERMARK, raw_table
from windrow.errors import ArgumentError, InputError, needs_extra
from windrow.runtime.memory import read_first
from windrow.telemetry.numbers import short_duration
from windrow.tools.tune.disorder import read_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Times = npt.NDArray[np.datetime64]

__all__ = ["event_time", "lateness", "windows"]

_PANES: Final = {"on_time": "tab:blue", "late": "tab:orange", "early": "tab:gray"}
_SECOND: Final = 1_000_000
_UPRIGHT: Final = 10
"""Maximum number of windows with room for horizontal values."""


@checked
def event_time(pipeline: PipelineLike, *, records: int = 20_000, ax: Axes | None = None) -> Axes:
    """Plot the event time of records against processing time, with the watermark.

    Processing time is the log timestamp of a record. The watermark is the low watermark of all partitions. If the log
    has no timestamps, offsets take their place, and each partition has its watermark. Records behind the watermark of
    their partition have a different colour, because they can be late.

    `records` is the approximate number of records to read from the beginning, divided among the partitions. Raise
    InputError if the log has no valid record.
    """
    axes = _axes(ax)
    found = _records(graph_of(pipeline), records)
    times, marks = (to_micros(found.column(name)) for name in (TIME, WATERMARK))
    partitions = found.column(PARTITION).to_numpy()
    has_log_time = not found.column("log_time").null_count
    x = _moments(to_micros(found.column("log_time"))) if has_log_time else found.column(OFFSET).to_numpy()
    is_behind = times < marks
    for mask, colour, label in (
        (~is_behind, "tab:blue", "records"),
        (is_behind, "tab:orange", "records behind the watermark"),
    ):
        axes.scatter(x[mask], _moments(times[mask]), s=4, color=colour, label=label, rasterized=True)
    lines = {int(number): (x[partitions == number], marks[partitions == number]) for number in np.unique(partitions)}
    if has_log_time:
        axes.step(*_low_watermark(lines), where="post", color="tab:red", label="low watermark")
    else:
        for number, (at, mark) in lines.items():
            known = mark != MIN_TIME
            axes.step(at[known], _moments(mark[known]), where="post", label=f"watermark of partition {number}")
    axes.set_xlabel("processing time: when the log got the record (UTC)" if has_log_time else "offset in the partition")
    axes.set_ylabel("event time (UTC)")
    axes.legend()
    return axes


@checked
def lateness(pipeline: PipelineLike, *, bins: int = 50, ax: Axes | None = None) -> Axes:
    """Plot a histogram of how far records are behind the greatest event time before them in their partition.

    The whole log is read. The title says how many records are in order. A line marks each delay; records beyond it are
    behind the watermark. In a graph, a record counts once for each operator that reads it. The widths of the `bins`
    bars grow with the lateness.
    """
    axes = _axes(ax)
    runnable = graph_of(pipeline)
    counts = read_log(runnable).high
    is_late = counts.behind > 0
    late, total = int(counts.records[is_late].sum()), int(counts.records.sum())
    if late:
        seconds = counts.behind[is_late] / _SECOND
        edges = np.geomspace(seconds.min() * 0.999, seconds.max() * 1.001, bins + 1)
        axes.hist(seconds, edges.tolist(), weights=counts.records[is_late], color="tab:blue")
        axes.set_xscale("log")
        axes.set_yscale("log")
    delays = {
        mark.micros for source in runnable.sources if isinstance(mark := source.time.watermark, m.Delay) and mark.micros
    }
    for delay in sorted(delays):
        axes.axvline(delay / _SECOND, color="tab:red", linestyle="--", label=f"delay {short_duration(delay / _SECOND)}")
    if delays:
        axes.legend()
    axes.xaxis.set_major_formatter(lambda value, _: short_duration(value))
    axes.set_title(f"{total - late:,} of {total:,} records are in order")
    axes.set_xlabel("behind the greatest event time so far")
    axes.set_ylabel("records")
    return axes


@checked
def windows(
    pipeline: PipelineLike,
    key: Mapping[str, object] | None = None,
    *,
    table: str | None = None,
    value: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the windows of a key on a timeline, coloured by the pane of their rows: on time, late or early.

    Overlapping windows are drawn above each other.

    Args:
        pipeline: whose result table to read.
        key: the values that columns of the rows must have: ``{"user_id": "A"}``.
        table: the name of the table, if there are several.
        value: the column whose value is written into each window; by default, the first result.
        ax: the axes to draw on.

    Raises:
        InputError: the table has no windows, no rows with this key, or no such column.
    """
    axes = _axes(ax)
    rows = read_table(pipeline, table, where=key)
    columns = rows.schema.names
    if "window_start" not in columns or "pane" not in columns:
        msg = f"table {rows.table!r} has no windows: choose a table of windows; this one has {', '.join(columns)}"
        raise InputError(msg)
    if not len(rows):
        msg = f"table {rows.table!r} has no rows with this key: choose another key"
        raise InputError(msg)
    about = {*m.WINDOW_BOUNDS, "pane", "revision", *(key or {})}
    shown = value or next((name for name in columns if name not in about), "revision")
    if shown not in columns:
        msg = f"table {rows.table!r} has no column {shown!r}; it has {', '.join(columns)}"
        raise InputError(msg)
    found = rows.to_arrow().sort_by([(name, "ascending") for name in m.WINDOW_BOUNDS])
    starts, ends = (_moments(to_micros(found.column(name))) for name in m.WINDOW_BOUNDS)
    panes, values = found.column("pane").to_pylist(), found.column(shown).to_pylist()
    lanes = _lanes(starts, ends)
    for pane, colour in _PANES.items():
        own = [number for number, other in enumerate(panes) if other == pane]
        if own:
            widths: Any = ends[own] - starts[own]  # matplotlib accepts time spans, though its types do not say so
            lefts: Any = starts[own]
            axes.barh(
                [lanes[number] for number in own], widths, left=lefts, color=colour, edgecolor="white", label=pane
            )
    style: Any = {"ha": "center", "va": "center", "fontsize": "small", "clip_on": True}
    style["rotation"] = 90 if len(values) > _UPRIGHT else 0
    for number, text in enumerate(values):
        middle: Any = starts[number] + (ends[number] - starts[number]) / 2
        axes.text(middle, lanes[number], str(text), **style)
    condition = ", ".join(f"{name} {text}" for name, text in (key or {}).items())
    axes.set_title(f"{shown} of {rows.table}{f' for {condition}' if condition else ''}")
    axes.set_xlabel("event time (UTC)")
    axes.set_yticks([])
    axes.legend(title="pane", loc="upper left", bbox_to_anchor=(1, 1))
    return axes


def _axes(given: Axes | None) -> Axes:
    with needs_extra("plot", "a plot"):
        from matplotlib import pyplot as plt  # noqa: PLC0415 - an extra
        from matplotlib.axes import Axes  # noqa: PLC0415 - the same
    if given is not None:
        if not isinstance(given, Axes):
            msg = f"`ax` must be axes of matplotlib, such as plt.gca(), not {given!r}"
            raise ArgumentError(msg)
        return given
    _, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    return axes


def _moments(micros: npt.NDArray[np.int64]) -> Times:
    """Return microseconds as datetime64, which matplotlib draws as dates."""
    return micros.astype("datetime64[us]")


def _records(graph: m.Graph, most: int) -> pa.Table:
    """Return the first valid records, in log order.

    The columns are the partition, the offset, the event time, the watermark and the log timestamp.
    """
    batches = list(read_first(open_sources(graph), most))
    packets = Ingest(with_lists(graph, lambda _: None), is_whole=True).run(batches)
    found = [unpack(packet.message.blob) for packet in packets if isinstance(packet.message, Records)]
    if not found:
        msg = f"the log of {graph.name!r} has no valid records to plot; see `check` and the table of dead letters"
        raise InputError(msg)
    columns = [PARTITION, OFFSET, TIME, WATERMARK]
    # several operators may read a record
    selected = pa.concat_tables([records.select(columns) for records in found])
    good = selected.group_by(columns, use_threads=False).aggregate([])
    raw = raw_table(batches).select(["partition", "offset", "log_time", "value"])
    raw = raw.rename_columns([PARTITION, OFFSET, "log_time", "value"])
    joined = good.join(raw, [PARTITION, OFFSET], join_type="inner", use_threads=False)
    joined = joined.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])
    if joined.column("log_time").null_count == len(joined):
        # records of an embedded log have it as a field
        fields = [parse_object(value).get(m.LOG_TIME) for value in joined.column("value").to_pylist()]
        times = [None if value is None else convert(m.LOG_TIME, LOG_TIME_TYPE, value) for value in fields]
        column = joined.schema.get_field_index("log_time")
        joined = joined.set_column(column, "log_time", pa.array(times, pa.int64()).cast(MICROS))
    return joined


def _low_watermark(lines: Mapping[int, tuple[Times, npt.NDArray[np.int64]]]) -> tuple[Times, Times]:
    """Return the times at which the low watermark of all partitions changes, and its new values."""
    at = np.unique(np.concatenate([times for times, _ in lines.values()]))
    low = np.full(len(at), np.iinfo(np.int64).max)
    for times, marks in lines.values():
        # a log's timestamps may decrease
        reached = np.searchsorted(np.maximum.accumulate(times), at, side="right") - 1
        low = np.minimum(low, np.where(reached < 0, MIN_TIME, np.maximum.accumulate(marks)[reached]))
    known = low != MIN_TIME
    return at[known], _moments(low[known])


def _lanes(starts: Times, ends: Times) -> list[int]:
    """Put each window, sorted by start, into the lowest lane in which it overlaps no other window."""
    free: list[np.datetime64] = []
    lanes = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((number for number, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        lanes.append(lane)
    return lanes
