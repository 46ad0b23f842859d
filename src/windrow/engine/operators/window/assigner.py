"""The window assigner: assigns windows to each record, and judges it as on time, late or expired for each of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow import model as m
from windrow.engine.columns import MIN_TIME, Micros, to_micros
from windrow.engine.schema import END, TIME, WATERMARK, WINDOW
from windrow.engine.windows import Hops, expand, hops_of, slice_starts, window_bounds, windows_of
from windrow.expressions import WindowSpec

Mask = npt.NDArray[np.bool_]


class Assigned(NamedTuple):
    """The records of a step, one row per record and window, with WINDOW, END and the verdict.

    Records in `whole` are on time for all of their windows; their WINDOW is the start of their slice.
    """

    rows: pa.Table
    on_time: Mask
    expired: Mask
    whole: pa.Table


def on_time_for_all(window: m.Window, times: Micros, watermarks: Micros, ended: int) -> tuple[Mask, Micros]:
    """Return the mask of records that are on time for all of their windows, and the window number of each record.

    For windows that overlap, the number is the start of the record's slice. A record does not count as on time if one
    of its windows has fired. `ended` is the time up to which windows fired at an earlier end of the input.
    """
    match window:
        case m.Hopping() | m.Cumulate():
            hops = hops_of(window, times)
            # the first window has the smallest end, so a watermark below it is below every other end
            first = window_bounds(window, hops.first)
            on_time = (watermarks < first.ends) & (first.starts > ended) & (hops.first <= hops.last)
            return on_time, slice_starts(window, times)
        case m.Tumbling() | m.Calendar():
            starts, ends = windows_of(window, times)
            return (watermarks < ends) & (starts > ended), starts
        case _:
            msg = "windows without a fixed end cannot be determined from the time of a record alone"
            raise TypeError(msg)


def assign(spec: WindowSpec, records: pa.Table, ended: int, forgotten_until: int = MIN_TIME) -> Assigned:
    """Assign records to windows, and judge each record by the watermark at it.

    `ended` is the time up to which windows fired at an earlier end of the input. Windows that end at or before
    `forgotten_until` accept no records, whatever the lateness.
    """
    times = to_micros(records.column(TIME))
    match spec.node.window:
        case (m.Hopping() | m.Cumulate()) as window:
            hops = hops_of(window, times)
            whole = _with_window(records, times, times).slice(0, 0)
            if spec.node.emit.early is None:
                sliced, starts = on_time_for_all(window, times, to_micros(records.column(WATERMARK)), ended)
                whole = _with_window(records, starts, starts + window.slice)
                if sliced.all():
                    return _judge(spec, whole.slice(0, 0), whole, forgotten_until)
                whole = whole.filter(pa.array(sliced))
                records = records.filter(pa.array(~sliced))
                hops = hops_of(window, times[~sliced])
            return _judge(spec, _expand(window, records, hops), whole, forgotten_until)
        case m.Session():
            msg = "sessions cannot be determined from the times of records alone"
            raise TypeError(msg)
        case window:
            rows = _with_window(records, *windows_of(window, times))
            return _judge(spec, rows, rows.slice(0, 0), forgotten_until)


def in_windows(window: m.Tumbling | m.Sliced | m.Calendar, records: pa.Table) -> pa.Table:
    """Return a row for each record and each of its windows, with WINDOW and END."""
    times = to_micros(records.column(TIME))
    if isinstance(window, m.Sliced):
        return _expand(window, records, hops_of(window, times))
    return _with_window(records, *windows_of(window, times))


def _expand(window: m.Sliced, records: pa.Table, hops: Hops) -> pa.Table:
    places, windows = expand(window, hops)
    return _with_window(records.take(pa.array(places)), windows, window_bounds(window, windows).ends)


def _with_window(records: pa.Table, windows: Micros, ends: Micros) -> pa.Table:
    return records.append_column(WINDOW, pa.array(windows)).append_column(END, pa.array(ends))


def _judge(spec: WindowSpec, rows: pa.Table, whole: pa.Table, forgotten_until: int) -> Assigned:
    if isinstance(spec.node.window, m.Global):
        # the global window has no end to be late for
        return Assigned(rows, np.full(rows.num_rows, fill_value=True), np.full(rows.num_rows, fill_value=False), whole)
    watermarks, ends = to_micros(rows.column(WATERMARK)), to_micros(rows.column(END))
    expired = (watermarks >= ends + spec.lateness) | (ends <= forgotten_until)
    return Assigned(rows, watermarks < ends, expired, whole)
