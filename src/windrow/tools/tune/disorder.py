"""The disorder of the records of a log, and how many of them are late for each delay and lateness.

Let C be the clock of a record's partition (the greatest event time before the record) and b the end of one of the
record's windows. With delay d, the record is late for that window exactly if C - b >= d. With lateness L, it is expired
exactly if C - b >= d + L. C does not depend on d, so the distribution of C - b answers the question for every d and L.
The exception is a partition that joined late or was idle: its watermark is raised to the low watermark, which depends
on the delays.

`read_log` computes C - b for every record and window, so its answers are exact if no operator comes between the source
and the window. A run records only C - t, where t is the event time of each record, in the buckets of
`windrow.telemetry.histogram`. As b - t is at most the size of the window, `read_recorded` derives lower and upper
bounds on C - b.

Behind another operator (a deduplication, a lookup, a join, a window ...), a window judges rows that are made of
records. A row can be late only if one of its records is: the row has the watermark of a record, and its event time is
that of the record or later. So the upper bound counts the records as if they reached the window themselves. The lower
bound is 0, as the operator may drop any of them. Some rows can have earlier event times than their record: those of
outer joins, which wait, and of process functions. For these, the upper bound counts all records that are behind the
clock by more than the delay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow import model as m
from windrow.connectors.open_sources import open_sources
from windrow.engine.columns import MAX_TIME, MIN_TIME, Micros, to_micros, unpack
from windrow.engine.messages import Records
from windrow.engine.operators.ingest import Ingest
from windrow.engine.operators.window.assigner import in_windows
from windrow.engine.schema import END, PARTITION, TIME, WATERMARK
from windrow.errors import InputError
from windrow.expressions import GAP, stream_of
from windrow.telemetry.histogram import BOUNDS, Histogram
from windrow.telemetry.reports import StepReport

_NEVER: Final = -1
"""Stands for all durations below 0, which are not late under any delay."""
_HOUR: Final = 3_600_000_000
_UNITS: Final = {"hour": _HOUR, "day": 24 * _HOUR, "week": 7 * 24 * _HOUR, "month": 31 * 24 * _HOUR}
_MOST_ROWS: Final = 1 << 20
"""Rows of counts kept in memory before equal rows are merged."""


@dataclass(frozen=True)
class FedOperator:
    """An operator that reads sources, directly or indirectly. Its records can be late, or expired under its `lateness`.

    The path of the lateness in a pipeline file is `path`, or None if it is not a setting. The windows of a record end
    at least `nearest` and at most `farthest` microseconds after its event time; both are None if no record can be late.
    The number of windows that a key holds at once is the time for which they are held divided by `step`. If
    `is_behind`, it reads rows of another operator.
    """

    node: m.KeyedNode | m.SinkNode
    path: str | None
    lateness: int
    nearest: int | None
    farthest: int | None
    step: int
    is_behind: bool = False

    @property
    def judges(self) -> bool:
        """True if its records can be late."""
        return self.nearest is not None

    def held(self, delay: int, lateness: int) -> float:
        """Return the number of windows that a key holds at once (without windows: microseconds of event time)."""
        return (delay + lateness + (self.farthest or 0)) / self.step


def fed_operators(graph: m.Graph) -> tuple[FedOperator, ...]:
    """Return the operators that read records of a source, followed by those downstream that judge event times."""
    firsts = [node for node in graph.computed if any(_is_of_source(graph, name) for name in node.inputs)]
    behind = {name for first in firsts for name in _judges_behind(graph, first)}
    others = [node for node in graph.computed if node.name in behind and node not in firsts]
    return tuple(replace(_fed_operator(graph, node), is_behind=node.name in behind) for node in [*firsts, *others])


def _judges_behind(graph: m.Graph, node: m.Node) -> dict[str, bool]:
    """Map each downstream operator that judges event times to whether its rows can be earlier than their records."""
    found: dict[str, bool] = {}
    stack = [(node, False)]
    seen = set[tuple[str, bool]]()
    while stack:
        at, is_earlier = stack.pop()
        is_earlier |= isinstance(at, m.ProcessNode) or (isinstance(at, m.JoinNode) and at.how != "inner")
        for below in graph.readers(at):
            if (below.name, is_earlier) in seen:
                continue
            seen.add((below.name, is_earlier))
            if isinstance(below, m.KeyedNode) and _fed_operator(graph, below).judges:
                found[below.name] = found.get(below.name, False) or is_earlier
            stack.append((below, is_earlier))
    return found


def _is_of_source(graph: m.Graph, stream: str) -> bool:
    """Return True if a stream has records that have not passed through any operator."""
    node = graph.producer(stream)
    if isinstance(node, m.KeyedNode) and stream != m.versions_of(node.name):
        return False
    return isinstance(node, m.SourceNode) or any(_is_of_source(graph, name) for name in node.inputs)


def _fed_operator(graph: m.Graph, node: m.KeyedNode | m.SinkNode) -> FedOperator:
    path = f"streams.{node.name}.emit.lateness" if node.name else "emit.lateness"
    match node:
        case m.WindowNode(window=m.Global()):
            return FedOperator(node, None, 0, None, None, 1)
        case m.WindowNode(window=window, emit=emit):
            size, step = _lengths(window)
            stream = stream_of(graph, node.input)
            if stream.is_changelog:
                # nothing expires within a graph: the rows of a changelog are in time as long as their records are
                bound = m.MAX_DURATION if stream.bound is None else stream.bound
                return FedOperator(node, None, bound, 1, size, step)
            return FedOperator(node, path, emit.lateness, 1, size, step)
        case m.RulesNode(rules=rules):
            return FedOperator(node, path, rules.lateness, 0, 0, 1)
        case m.ProcessNode(process=process) if process.order == "event_time":
            return FedOperator(node, None, 0, 1, 1, 1)
        case _:
            return FedOperator(node, None, 0, None, None, 1)


def _lengths(window: m.Window) -> tuple[int, int]:
    """Return the length of the longest window, and the distance between the windows that a key has at once."""
    match window:
        case m.Tumbling(size):
            return size, size
        case m.Hopping(size, slide):
            return size, slide
        case m.Cumulate(size, step):
            return size, step
        case m.Session(gap):
            return gap, gap
        case m.Calendar(number, unit):
            # a change of the clocks, or of the date line, makes a window longer by a day at most
            return number * _UNITS[unit] + _UNITS["day"], number * _UNITS[unit]
        case m.Global():
            return MAX_TIME, MAX_TIME
        case _:
            assert_never(window)


Lateness = Mapping[str, int]
"""A mapping from the path of an operator's lateness to a value in microseconds that replaces it."""


@dataclass(frozen=True)
class Counts:
    """Numbers of records, and of (record, window) pairs, by how far they are behind. Each field is a column.

    In microseconds, `behind` is how far the event time is before the clock, and `over` how far the end of the window is
    before the clock. Values below 0 are stored as -1. `operator` is the number of the operator, or 0 if the counts are
    for all operators together.
    """

    partition: Micros
    operator: Micros
    behind: Micros
    over: Micros
    pairs: Micros
    records: Micros

    def where(self, mask: npt.NDArray[np.bool_]) -> Counts:
        """Return the rows selected by a mask."""
        return Counts(*(column[mask] for column in vars(self).values()))

    def missed(self, delay: int, lateness: Micros, source_lateness: int | None) -> tuple[int, int]:
        """Return the number of pairs that are not on time, and how many of them are expired.

        `lateness` has the lateness of each operator. `source_lateness` is that of the source; records that expire at
        the source miss all of their windows.
        """
        is_out = np.zeros(len(self.over), dtype=np.bool_)
        if source_lateness is not None:
            is_out = self.behind >= delay + source_lateness
        is_late = is_out | (self.over >= delay)
        is_expired = is_out | (self.over >= delay + lateness[self.operator])
        return int(self.pairs[is_late].sum()), int(self.pairs[is_expired].sum())

    def out(self, limit: int) -> int:
        """Return the number of records that are behind the clock by at least `limit`."""
        return int(self.records[self.behind >= limit].sum())

    def quantile(self, share: float) -> int:
        """Return the distance behind the clock that the given share of records does not exceed."""
        order = np.argsort(self.behind)
        reached = np.cumsum(self.records[order])
        if not len(reached) or not reached[-1]:
            return 0
        place = np.searchsorted(reached, np.ceil(share * reached[-1]))
        return max(0, int(self.behind[order][min(place, len(order) - 1)]))


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bounds of a number. It is exact if they are equal."""

    least: int
    most: int

    @staticmethod
    def sum(bounds: Iterable[Bounds]) -> Bounds:
        """Return the bounds of a sum."""
        known = list(bounds)
        return Bounds(sum(part.least for part in known), sum(part.most for part in known))


@dataclass(frozen=True)
class Missed:
    """Counts of (record, window) pairs: all, those that are late or expired (`late`), and those that are `expired`."""

    pairs: int
    late: Bounds
    expired: Bounds

    @staticmethod
    def sum(parts: Sequence[Missed]) -> Missed:
        """Return the sum of several counts."""
        late, expired = (Bounds.sum(getattr(part, name) for part in parts) for name in ("late", "expired"))
        return Missed(sum(part.pairs for part in parts), late, expired)


@dataclass(frozen=True)
class Disorder:
    """Counts of records by how far they are behind, as lower and upper bounds: the same object if they are exact.

    Counts of a log are kept for each operator (`by_operator`). Counts recorded by a run cover all operators together.
    """

    operators: tuple[FedOperator, ...]
    low: Counts
    high: Counts
    by_operator: bool

    @property
    def is_exact(self) -> bool:
        """True if both bounds are the same."""
        return self.low is self.high

    @property
    def is_log_exact(self) -> bool:
        """True if counts of the log are exact."""
        return not any(operator.is_behind for operator in self.operators)

    @property
    def partitions(self) -> list[int]:
        """The numbers of the partitions that have records."""
        numbers: list[int] = np.unique(self.high.partition).tolist()
        return numbers

    @cached_property
    def records(self) -> int:
        """The number of records. A record counts once for each operator that reads it."""
        return int(self.high.records.sum())

    def of(self, partitions: Iterable[int], path: str | None = None) -> Disorder:
        """Select the records of some partitions and, with `path`, of the operators whose lateness has that path."""

        def part(counts: Counts) -> Counts:
            mask = np.isin(counts.partition, list(partitions))
            if path is not None and self.by_operator:
                own = [number for number, operator in enumerate(self.operators) if operator.path == path]
                mask &= np.isin(counts.operator, own)
            return counts.where(mask)

        low = part(self.low)
        high = low if self.is_exact else part(self.high)
        if self.by_operator:
            return replace(self, low=low, high=high)
        # recorded counts are of all operators together, and bound the records of each
        own = tuple(operator for operator in self.operators if path in {None, operator.path})
        return replace(self, operators=own, low=low, high=high)

    def missed(self, delay: int, source_lateness: int | None, changed: Lateness) -> Missed:
        """Count the pairs missed with a delay, a lateness of the source, and changed latenesses of operators."""
        own = np.array(
            [changed.get(operator.path or "", operator.lateness) for operator in self.operators], dtype=np.int64
        )
        shortest, longest = (own, own) if self.by_operator else (own.min(keepdims=True), own.max(keepdims=True))
        late_low, expired_low = self.low.missed(delay, longest, source_lateness)
        late_high, expired_high = self.high.missed(delay, shortest, source_lateness)
        pairs = int(self.high.pairs.sum())
        return Missed(pairs, Bounds(late_low, late_high), Bounds(expired_low, expired_high))


def read_log(graph: m.Graph) -> Disorder:
    """Measure the disorder of all records in the sources; raise the same errors as `Source.read_all`."""
    return measure(graph, open_sources(graph).read_all())


def decode_records(graph: m.Graph, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the good records among raw records, as tables with the name of the operator that reads them."""
    for packet in Ingest(graph, is_whole=True).run(batches):
        message = packet.message
        if isinstance(message, Records):
            yield message.to, unpack(message.blob)


def measure(graph: m.Graph, batches: Iterable[pa.RecordBatch]) -> Disorder:
    """Measure the disorder of raw records (`windrow.engine.schema.RAW`), each partition in order of offsets."""
    graph = _without_delays(graph)
    known = fed_operators(graph)
    numbers = {operator.node.name: number for number, operator in enumerate(known)}
    behind = {operator.node.name: _judges_behind(graph, operator.node) for operator in known}
    exact, least, most = _Total(), _Total(), _Total()
    for reader, records in decode_records(graph, batches):
        number, judges = numbers[reader], behind[reader]
        times = to_micros(records.column(TIME))
        is_judged = known[number].judges or judges
        exact.add(_rows(records, number, _since(records, times), _NEVER, pairs=int(not is_judged), records=1))
        if known[number].judges:
            exact.add(_pairs(known[number], number, records, is_earlier=False))
        for name, is_earlier in judges.items():
            pairs = _pairs(known[numbers[name]], numbers[name], records, is_earlier=is_earlier)
            most.add(pairs)
            # the operators before it may drop each row
            least.add(pairs.set_column(_COLUMNS.index("over"), "over", pa.array(np.full(pairs.num_rows, _NEVER))))
    if not any(operator.is_behind for operator in known):
        counts = exact.counts()
        return Disorder(known, counts, counts, by_operator=True)
    return Disorder(known, exact.counts(least), exact.counts(most), by_operator=True)


def _without_delays(graph: m.Graph) -> m.Graph:
    """Return a copy of a pipeline with one key group, in which each watermark equals the partition's clock."""

    def plain(node: m.Node) -> m.Node:
        if not isinstance(node, m.SourceNode) or isinstance(node.time.watermark, m.Punctuated):
            return node
        return replace(node, time=replace(node.time, watermark=m.Delay(0)))

    return replace(graph.map_nodes(plain), key_groups=1)


def _pairs(operator: FedOperator, number: int, records: pa.Table, *, is_earlier: bool) -> pa.Table:
    """Count the (record, window) pairs of an operator that judges them, or its records if it has no windows.

    If `is_earlier`, the operator's rows can have earlier event times than the records, so windows are not used.
    """
    pairs, times = records, to_micros(records.column(TIME))
    ends = times + (operator.nearest or 0)
    window = operator.node.window if isinstance(operator.node, m.WindowNode) and not is_earlier else None
    match window:
        case None | m.Global():
            pass
        case m.Session(gap, by):
            is_known = by is None or GAP in records.column_names
            gaps = np.full_like(times, gap) if by is None else to_micros(records.column(GAP)) if is_known else 1
            ends = times + gaps
        case _:
            pairs = in_windows(window, records)
            times, ends = to_micros(pairs.column(TIME)), to_micros(pairs.column(END))
    return _rows(pairs, number, _since(pairs, times), _since(pairs, ends), pairs=1, records=0)


def _since(records: pa.Table, times: Micros) -> Micros:
    """Return how far times are before the clock at their records, or -1 if they are after it.

    The first record of a partition has no clock, so its result is -1, too.
    """
    clocks = to_micros(records.column(WATERMARK))
    return np.where(clocks == MIN_TIME, _NEVER, np.maximum(clocks - times, _NEVER))


def _rows(table: pa.Table, number: int, behind: Micros, over: Micros | int, *, pairs: int, records: int) -> pa.Table:
    columns = (table.column(PARTITION).to_numpy(), number, behind, over, pairs, records)
    return _table(*(np.full(table.num_rows, column) for column in columns))


_COLUMNS: Final = ("partition", "operator", "behind", "over", "pairs", "records")


def _table(*columns: npt.NDArray[np.generic] | Sequence[int]) -> pa.Table:
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=list(_COLUMNS))


class _Total:
    """Sums up tables of counts."""

    def __init__(self) -> None:
        self.tables = [_table(*[[]] * len(_COLUMNS))]
        self._rows = 0
        self._limit = _MOST_ROWS

    def add(self, table: pa.Table) -> None:
        """Add a table of counts."""
        self.tables.append(table)
        self._rows += table.num_rows
        if self._rows > self._limit:
            self.tables = [self._sum()]
            self._rows = self.tables[0].num_rows
            self._limit = max(_MOST_ROWS, 2 * self._rows)

    def counts(self, *others: _Total) -> Counts:
        """Return the sums, including those of other totals."""
        table = self._sum(*others)
        return Counts(*(to_micros(table.column(name)) for name in _COLUMNS))

    def _sum(self, *others: _Total) -> pa.Table:
        table = pa.concat_tables([table for total in (self, *others) for table in total.tables])
        summed = table.group_by(list(_COLUMNS[:4])).aggregate([("pairs", "sum"), ("records", "sum")])
        return summed.rename_columns({"pairs_sum": "pairs", "records_sum": "records"}).select(list(_COLUMNS))


def read_recorded(graph: m.Graph, reports: Iterable[StepReport]) -> Disorder:
    """Bound the counts that a run has recorded.

    Raise InputError if the run has recorded none, or recorded them for partitions that the pipeline does not have.
    """
    known = fed_operators(graph)
    counted = defaultdict[int, Histogram](Histogram)
    for report in reports:
        for name, histogram in report.lateness.items():
            counted[graph.partition_number(name)] += histogram
    if not counted:
        msg = "the history of the run does not record how late records are: use --log to read the log itself"
        raise InputError(msg)
    judging = [operator for operator in known if operator.judges]
    nearest = min((operator.nearest or 0 for operator in judging), default=None)
    # where another operator has read records too, those counted need not be of an operator that judges them
    is_direct = all(operator.judges and not operator.is_behind for operator in known)
    farthest = max(operator.farthest or 0 for operator in judging) if judging and is_direct else None
    upper = (*BOUNDS, MAX_TIME)
    lower = (_NEVER, *(bound + 1 for bound in BOUNDS))

    def counts(behind: Sequence[int], reach: int | None) -> Counts:
        rows = [
            (number, 0, value, _NEVER if reach is None else max(value - reach, _NEVER), found, found)
            for number, histogram in counted.items()
            for value, found in zip(behind, histogram.counts, strict=False)
        ]
        return Counts(*np.array(rows, dtype=np.int64).reshape(-1, len(_COLUMNS)).T)

    return Disorder(known, counts(lower, farthest), counts(upper, nearest), by_operator=False)
