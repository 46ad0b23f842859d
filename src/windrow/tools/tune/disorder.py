"""How far the records of a log are out of order, and so how many are late for each delay and lateness.

With C the clock of a record's partition (its greatest event time before the record) and b the end of one of its
windows, the record is late for that window under a delay d exactly if C - b >= d, and expired under a lateness L if
C - b >= d + L. C does not depend on d, so the counts by C - b answer for every d and L. Only a partition that joined
late or was idle is otherwise: its watermark is raised to the low watermark, which depends on the delays.

`read_log` computes C - b of every record and window, so its answers are exact where nothing stands between the source
and the window. A run records C - t for the event time t of each record, in the buckets of
`windrow.telemetry.histogram`. As b - t is at most the size of the window, `read_recorded` bounds C - b from both sides.

Behind an operator (a deduplication, a lookup, a join, a window ...) the rows that are judged are made of records, and a
row may be late only if a record of it is: its watermark is that of a record, and its event time is that of the record
or later. So the records are counted as if they came to the window themselves, which is how many are late at most; the
operator may drop each of them, so at least none is. Where a row can be earlier than its record (an outer join, which
waits for that; a process function) the record is late at most if it is behind the clock by more than the delay.
"""

from __future__ import annotations

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
"""In the place of all durations below 0: so far from late that no delay matters."""
_HOUR: Final = 3_600_000_000
_UNITS: Final = {"hour": _HOUR, "day": 24 * _HOUR, "week": 7 * 24 * _HOUR, "month": 31 * 24 * _HOUR}
_HELD: Final = 1 << 20
"""Rows of counts that are held before equal ones are added up."""


@dataclass(frozen=True)
class FedOperator:
    """An operator that is fed by sources; its records can be late, or expired by its `lateness`.

    `path` is where that stands in a pipeline file, None if it is none of its settings. Of each record, the end of its
    windows is at least `nearest` and at most `farthest` microseconds after the event time; both are None where nothing
    is late. A key holds as many windows at once as `step` fits into the time that they are held. With `is_behind` it
    takes rows of another operator (too).
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
        """Whether its records can be late."""
        return self.nearest is not None

    def held(self, delay: int, lateness: int) -> float:
        """Return how many windows a key holds at once (without windows: microseconds of event time)."""
        return (delay + lateness + (self.farthest or 0)) / self.step


def fed_operators(graph: m.Graph) -> tuple[FedOperator, ...]:
    """Return the operators that take records of a source, and those behind them that judge time.

    The former come first: their records have passed no other operator.
    """
    behind = {name for one in graph.computed if _is_first(graph, one) for name in _judges_behind(graph, one)}
    firsts = [one for one in graph.computed if _is_first(graph, one)]
    others = [one for one in graph.computed if one.name in behind - _names(firsts)]
    return tuple(replace(_fed_operator(graph, first), is_behind=first.name in behind) for first in [*firsts, *others])


def _names(nodes: Iterable[m.Node]) -> set[str]:
    return {node.name for node in nodes}


def _is_first(graph: m.Graph, node: m.KeyedNode | m.SinkNode) -> bool:
    return any(_is_of_source(graph, name) for name in node.inputs)


def _judges_behind(graph: m.Graph, node: m.Node) -> dict[str, bool]:
    """Return the operators behind one that judge time, and whether their rows can be earlier than their records."""
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
    """Return whether some of a stream's records have passed no operator."""
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
            given = stream_of(graph, node.input)
            if given.is_changelog:
                # nothing expires within a graph: rows that change are in time as long as their records are
                bound = m.MAX_DURATION if given.bound is None else given.bound
                return FedOperator(node, None, bound, 1, size, step)
            return FedOperator(node, path, emit.lateness, 1, size, step)
        case m.RulesNode(rules=rules):
            return FedOperator(node, path, rules.lateness, 0, 0, 1)
        case m.ProcessNode(process=process) if process.order == "event_time":
            return FedOperator(node, None, 0, 1, 1, 1)
        case _:
            return FedOperator(node, None, 0, None, None, 1)


def _lengths(window: m.Window) -> tuple[int, int]:
    """Return how long a window can be, and how far apart windows are that a key has at once."""
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
"""The lateness of operators by path, in microseconds, in place of their own."""


@dataclass(frozen=True)
class Counts:
    """Records, and pairs of a record and a window, by how far behind they are: an array a column, microseconds.

    `behind` is how far before the clock the event time is, `over` how far before it the window's end is; below 0 is
    `-1`. `operator` is the number of the operator, of all together 0.
    """

    partition: Micros
    operator: Micros
    behind: Micros
    over: Micros
    pairs: Micros
    records: Micros

    def where(self, mask: npt.NDArray[np.bool_]) -> Counts:
        """Return the rows of a mask."""
        return Counts(*(column[mask] for column in vars(self).values()))

    def missed(self, delay: int, lateness: Micros, source_lateness: int | None) -> tuple[int, int]:
        """Return how many pairs are not on time, and how many of them are expired.

        `lateness` is that of each operator, `source_lateness` that of the source, whose expired records miss all of
        their windows.
        """
        is_out = (
            np.zeros(len(self.over), dtype=np.bool_)
            if source_lateness is None
            else self.behind >= delay + source_lateness
        )
        is_late = is_out | (self.over >= delay)
        is_expired = is_out | (self.over >= delay + lateness[self.operator])
        return int(self.pairs[is_late].sum()), int(self.pairs[is_expired].sum())

    def out(self, limit: int) -> int:
        """Return how many records are as far behind the clock as a limit, or farther."""
        return int(self.records[self.behind >= limit].sum())

    def quantile(self, share: float) -> int:
        """Return how far behind the clock a share of the records is at most."""
        order = np.argsort(self.behind)
        reached = np.cumsum(self.records[order])
        if not len(reached) or not reached[-1]:
            return 0
        place = np.searchsorted(reached, np.ceil(share * reached[-1]))
        return max(0, int(self.behind[order][min(place, len(order) - 1)]))


@dataclass(frozen=True)
class Bounds:
    """A number that is known to be in a range; it is exact if both ends are equal."""

    least: int
    most: int


@dataclass(frozen=True)
class Missed:
    """Of `pairs` of a record and a window, how many are not `on_time`: late or expired; and how many are expired."""

    pairs: int
    late: Bounds
    expired: Bounds


@dataclass(frozen=True)
class Disorder:
    """How far records are behind: counts from below (`low`) and from above (`high`), the same object if they are exact.

    Counts of a log are `by_operator`, those that a run has recorded are of all operators together.
    """

    operators: tuple[FedOperator, ...]
    low: Counts
    high: Counts
    by_operator: bool

    @property
    def is_exact(self) -> bool:
        """Whether both are the same."""
        return self.low is self.high

    @property
    def is_log_exact(self) -> bool:
        """Whether counts of the log are exact."""
        return not any(operator.is_behind for operator in self.operators)

    @property
    def partitions(self) -> list[int]:
        """The partitions that had records."""
        numbers: list[int] = np.unique(self.high.partition).tolist()
        return numbers

    @cached_property
    def records(self) -> int:
        """The number of records; one that several operators take counts for each."""
        return int(self.high.records.sum())

    def of(self, partitions: Iterable[int], path: str | None = None) -> Disorder:
        """Return the records of some partitions; with `path`, of the operators that have their lateness there."""

        def part(counts: Counts) -> Counts:
            mask = np.isin(counts.partition, list(partitions))
            if path is not None and self.by_operator:
                own = [number for number, one in enumerate(self.operators) if one.path == path]
                mask &= np.isin(counts.operator, own)
            return counts.where(mask)

        low = part(self.low)
        high = low if self.is_exact else part(self.high)
        if self.by_operator:
            return replace(self, low=low, high=high)
        # what is recorded is of all operators together, and bounds the records of each
        own = tuple(operator for operator in self.operators if path in {None, operator.path})
        return replace(self, operators=own, low=low, high=high)

    def missed(self, delay: int, source_lateness: int | None, changed: Lateness) -> Missed:
        """Count under a delay, a lateness of the source, and other latenesses of operators."""
        own = np.array(
            [changed.get(operator.path or "", operator.lateness) for operator in self.operators], dtype=np.int64
        )
        shortest, longest = (own, own) if self.by_operator else (own.min(keepdims=True), own.max(keepdims=True))
        late_low, expired_low = self.low.missed(delay, longest, source_lateness)
        late_high, expired_high = self.high.missed(delay, shortest, source_lateness)
        pairs = int(self.high.pairs.sum())
        return Missed(pairs, Bounds(late_low, late_high), Bounds(expired_low, expired_high))


def read_log(graph: m.Graph) -> Disorder:
    """Measure all that the sources hold now; raise the errors of `Source.read_all`."""
    return measure(graph, open_sources(graph).read_all())


def decode_records(graph: m.Graph, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the good records of raw records, each table with the name of the operator that reads it."""
    for packet in Ingest(graph).run(batches):
        message = packet.message
        if isinstance(message, Records):
            yield message.to, unpack(message.blob)


def measure(graph: m.Graph, batches: Iterable[pa.RecordBatch]) -> Disorder:
    """Measure raw records (`windrow.engine.schema.RAW`) of a log, each partition's in the order of its offsets."""
    graph = _without_delays(graph)
    known = fed_operators(graph)
    numbers = {one.node.name: number for number, one in enumerate(known)}
    behind = {one.node.name: _judges_behind(graph, one.node) for one in known}
    exact, least, most = _Total(), _Total(), _Total()
    for reader, records in decode_records(graph, batches):
        number, judges = numbers[reader], behind[reader]
        if known[number].judges or not judges:
            exact.add(_measured(known[number], number, records))
        else:
            exact.add([_read(records, number, pairs=0)])
        for name, is_earlier in judges.items():
            pairs = _pairs(known[numbers[name]], numbers[name], records, is_earlier=is_earlier)
            most.add([pairs])
            least.add([_never_late(pairs)])
    if not any(one.is_behind for one in known):
        counts = exact.counts()
        return Disorder(known, counts, counts, by_operator=True)
    low, high = (_Total.of(exact, one).counts() for one in (least, most))
    return Disorder(known, low, high, by_operator=True)


def _without_delays(graph: m.Graph) -> m.Graph:
    """Return a pipeline whose watermarks are the clocks of the partitions, with one key group."""

    def plain(node: m.Node) -> m.Node:
        if not isinstance(node, m.SourceNode) or isinstance(node.time.watermark, m.Punctuated):
            return node
        return replace(node, time=replace(node.time, watermark=m.Delay(0)))

    return replace(graph.map_nodes(plain), key_groups=1)


def _measured(operator: FedOperator, number: int, records: pa.Table) -> Iterator[pa.Table]:
    """Count the records of an operator, and their windows."""
    if not operator.judges:
        yield _read(records, number, pairs=1)
        return
    yield _read(records, number, pairs=0)
    yield _pairs(operator, number, records, is_earlier=False)


def _read(records: pa.Table, number: int, *, pairs: int) -> pa.Table:
    """Count records of an operator that judges none of them."""
    behind = _since(records, to_micros(records.column(TIME)))
    return _rows(records, number, behind, np.full_like(behind, _NEVER), pairs=pairs, records=1)


def _pairs(operator: FedOperator, number: int, records: pa.Table, *, is_earlier: bool) -> pa.Table:
    """Count pairs of a record and a window of an operator that judges them; of one without windows, records.

    With `is_earlier`, the rows that are judged can be earlier than the records, by as much as the operator waits.
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


def _never_late(pairs: pa.Table) -> pa.Table:
    """Return counts of pairs as if each was dropped before it was judged."""
    place = _COLUMNS.index("over")
    return pairs.set_column(place, "over", pa.array(np.full(pairs.num_rows, _NEVER)))


def _since(records: pa.Table, times: Micros) -> Micros:
    """Return how far times are before the clock at their records; there is none at the first of a partition."""
    clocks = to_micros(records.column(WATERMARK))
    return np.where(clocks == MIN_TIME, _NEVER, np.maximum(clocks - times, _NEVER))


def _rows(table: pa.Table, number: int, behind: Micros, over: Micros, *, pairs: int, records: int) -> pa.Table:
    size = len(behind)
    return _table(
        table.column(PARTITION).to_numpy(), np.full(size, number), behind, over, np.full(size, pairs),
        np.full(size, records),
    )  # fmt: skip


_COLUMNS: Final = ("partition", "operator", "behind", "over", "pairs", "records")


def _table(*columns: npt.NDArray[np.generic] | Sequence[int]) -> pa.Table:
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=list(_COLUMNS))


class _Total:
    """Adds up counts."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._limit = _HELD

    @staticmethod
    def of(*totals: _Total) -> _Total:
        """Return several totals as one."""
        made = _Total()
        for total in totals:
            made.add(total._tables)  # noqa: SLF001 - its own
        return made

    def add(self, tables: Iterable[pa.Table]) -> None:
        """Add tables of counts."""
        for table in tables:
            self._tables.append(table)
            self._rows += table.num_rows
        if self._rows > self._limit:
            self._tables = [self._sum()]
            self._rows = self._tables[0].num_rows
            self._limit = max(_HELD, 2 * self._rows)

    def counts(self) -> Counts:
        """Return the sums."""
        table = self._sum()
        return Counts(*(to_micros(table.column(name)) for name in _COLUMNS))

    def _sum(self) -> pa.Table:
        table = pa.concat_tables([_table(*[[]] * len(_COLUMNS)), *self._tables])
        summed = table.group_by(list(_COLUMNS[:4])).aggregate([("pairs", "sum"), ("records", "sum")])
        return summed.rename_columns({"pairs_sum": "pairs", "records_sum": "records"}).select(list(_COLUMNS))


def read_recorded(graph: m.Graph, reports: Iterable[StepReport]) -> Disorder:
    """Bound what a run has recorded; raise InputError if its partitions are not those of the graph, or it has none."""
    known = fed_operators(graph)
    counted: dict[int, Histogram] = {}
    for report in reports:
        for name, histogram in report.lateness.items():
            number = graph.partition_number(name)
            counted[number] = counted.get(number, Histogram()) + histogram
    if not counted:
        msg = "the history of the run has no lateness of records: give --log, which reads the log itself"
        raise InputError(msg)
    judging = [one for one in known if one.judges]
    nearest = min((one.nearest or 0 for one in judging), default=None)
    # where another operator has taken records too, none of those counted need be of one that judges them
    is_direct = all(one.judges and not one.is_behind for one in known)
    farthest = max(one.farthest or 0 for one in judging) if judging and is_direct else None
    upper = (*BOUNDS, MAX_TIME)
    lower = (_NEVER, *(bound + 1 for bound in BOUNDS))

    def counts(behind: Sequence[int], reach: int | None) -> Counts:
        total = _Total()
        for number, histogram in counted.items():
            for value, found in zip(behind, histogram.counts, strict=False):
                over = _NEVER if reach is None else max(value - reach, _NEVER)
                total.add([_table([number], [0], [value], [over], [found], [found])])
        return total.counts()

    return Disorder(known, counts(lower, farthest), counts(upper, nearest), by_operator=False)
