"""What a graph means, in the most obvious plain Python: each stream is a query over the records up to a watermark.

A stream at the logical time w is the function ``rows(name, w)`` of the records whose watermark is at most w. The final
table of a window is that at infinity, its on-time pane that at the last watermark before its end. There are no clocks
and no state here, and no code of the operators.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from windrow.expressions import stream_of
from windrow.model import (
    MAX_PARTITIONS,
    Aggregate,
    Avg,
    Count,
    Cumulate,
    DeduplicateNode,
    Delay,
    FlatMapNode,
    Formula,
    Global,
    Graph,
    Hopping,
    JoinNode,
    LookupNode,
    Max,
    ProcessNode,
    Punctuated,
    SampleNode,
    SelectNode,
    Session,
    SourceNode,
    SplitNode,
    Sum,
    TableJoinNode,
    TableNode,
    Tumbling,
    WindowNode,
    is_behind_process,
    is_by_branch,
)
from windrow.testing.oracle.clock import BEFORE_ALL, Clock

FOREVER = 10**18
BEGINNING = -(10**18)
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


class FormulaError(Exception):
    """A formula fails for a row, which is in no table and no stream then."""


Values = dict[str, Any]
Expression = Callable[[Values], Any]
Gap = Callable[["Record"], int]


class ReadingsClock(Clock):
    """The clock of a file whose rows have the time of reading: a reading moves the clock for the next readings."""

    def __init__(self, delay: int, floors: Sequence[tuple[int, int]]) -> None:
        super().__init__(Delay(delay), floors, 0)
        self._reading: float = BEFORE_ALL

    def data(self, offset: int, time: int, *, is_checked: bool = False) -> None:
        """Add the reading of a record, which comes before the record is judged."""
        if self._reading != BEFORE_ALL and time > self._reading:
            super().data(offset, int(self._reading), is_checked=is_checked)
        self._reading = max(self._reading, time)


@dataclass(frozen=True)
class Record:
    """A record, or a row of a window or a join: event time, watermark, place in the log, fields.

    `places` are what it is made of: its own place, or those of the records in a row of a join, behind the branches by
    which they came. No stream has two with the same. `part` is the number of ends before it was read.
    `op` is the operation of a change of a database: d for a deletion, t for a truncation, which only tables see.
    """

    time: int
    watermark: float
    partition: int
    offset: int
    values: Values
    places: str
    part: int = 0
    op: str = "c"


class GraphOracle:
    """Answers for a graph over a log: the records of each partition, as (time, fields) in order.

    `expressions` evaluates the texts of conditions and formulas in the graph (or raises `FormulaError`), and of gaps of
    sessions in seconds. `floors` are what the clock journal says of the watermark of a partition: from which offset on
    it was at least how much. `parts` has how often the input had ended before each record of a partition, if a run
    resumed after an end. `fails` says whether a record with these fields is a dead letter of the step with this name.
    """

    def __init__(  # noqa: PLR0917 - what an answer depends on
        self,
        graph: Graph,
        log: Mapping[int, Sequence[tuple[int, Values]]],
        expressions: Mapping[str, Expression],
        floors: Mapping[int, Sequence[tuple[int, int]]] | None = None,
        parts: Mapping[int, Sequence[int]] | None = None,
        fails: Callable[[str, Values], bool] = lambda *_: False,
    ) -> None:
        self._graph = graph
        self._fails = fails
        self._expressions = expressions
        self._known: dict[tuple[str, int], list[Record]] = {}
        self._files = {partition for partition in log if graph.source_of(partition).is_by_reading}
        self._records: list[Record] = []
        for partition, records in log.items():
            settings, is_file = graph.source_of(partition).time, partition in self._files
            how = settings.watermark
            clock = Clock(how, (floors or {}).get(partition, ()), partition % MAX_PARTITIONS, settings.jump)
            if is_file and isinstance(how, Delay):
                clock = ReadingsClock(how.micros, (floors or {}).get(partition, ()))
            for offset, (time, values) in enumerate(records):
                op = values.get("op", "c")
                if fails("decode", values) or (op == "t" and not self._has_table(graph.source_of(partition))):
                    continue
                label = graph.source_of(partition).source.label
                place = f"{label}/{partition % MAX_PARTITIONS}/{offset}"
                part = 0 if parts is None else parts[partition][offset]
                if is_file:
                    clock.data(offset, time)
                # what a file had when it was first read is before all else
                watermark = max(BEGINNING - is_file, clock.at(offset) if is_file else clock.at(offset, time))
                row = {name: value for name, value in values.items() if name != "op"}
                self._records.append(Record(time, watermark, partition, offset, row, place, part, op))
                if not is_file:
                    clock.data(offset, time)
                if isinstance(how, Punctuated) and values[how.field] is not None:
                    clock.mark(values[how.field])

    def rows(self, name: str, until: int) -> list[Record]:
        """Return a stream as of a logical time."""
        if (name, until) not in self._known:
            found = self._known[name, until] = self._rows(name, until)
            assert len({one.places for one in found}) == len(found), name
        return self._known[name, until]

    def _rows(self, name: str, until: int) -> list[Record]:  # noqa: C901 - a case for each kind of node
        node = self._graph.producer(name)
        found: list[Record]
        match node:
            case SourceNode():
                found = [one for one in self._in_time(node, until) if one.op != "t"]
            case SelectNode():
                found = self._selected(node, until)
            case FlatMapNode():
                found = self._elements(node, until)
            case SplitNode():
                found = self._split(node, name, until)
            case DeduplicateNode():
                accepted, duplicates = self._deduplicated(node, until)
                found = duplicates if name.endswith(".duplicates") else accepted
            case SampleNode():
                found = self._sampled(node, until)
            case JoinNode():
                found = self._joined(node, until)
            case TableNode():
                found = self._table(node, until)
            case LookupNode():
                found = self._looked_up(node, until)
            case TableJoinNode():
                found = self._tables_joined(node, until)
            case ProcessNode() | WindowNode():
                found = self._results(node, until)
            case _:
                raise TypeError(node)
        return found

    def _in_time(self, node: SourceNode, until: int) -> list[Record]:
        """Return the records of a source as of a logical time, including truncations."""
        return [
            one
            for one in self._records
            if self._graph.source_of(one.partition) == node
            and one.watermark <= until
            and (node.lateness is None or one.watermark < one.time + node.lateness)
        ]

    def _truncations(self, name: str, until: int) -> list[Record]:
        """Return the truncations in the changes that a table is made of."""
        given = [one for source in self._changed_by(name) for one in self._in_time(source, until)]
        return [one for one in given if one.op == "t"]

    def _has_table(self, source: SourceNode) -> bool:
        """Return whether a table is made of the changes of a source; without one, a truncation is no record."""
        tables = [node for node in self._graph.nodes if isinstance(node, TableNode)]
        return any(source in self._changed_by(table.input) for table in tables)

    def _changed_by(self, name: str) -> list[SourceNode]:
        """Return the sources whose changes a stream has: a selection has those of its inputs."""
        node = self._graph.producer(name)
        if isinstance(node, SourceNode):
            return [node]
        return [one for each in node.inputs for one in self._changed_by(each)] if isinstance(node, SelectNode) else []

    def hold(self, name: str) -> int:
        """Return how far behind its event time a change of a stream can be and yet be on time."""
        node = self._graph.producer(name)
        holds = [self.hold(one) for one in node.inputs]
        if isinstance(node, JoinNode):
            holds += [node.after + holds[1]] if node.how in {"left", "full"} else []
            holds += [node.before + holds[0]] if node.how in {"right", "full"} else []
        return max(holds, default=0)

    def changes(self, name: str) -> bool:
        """Return whether rows of a stream are taken back."""
        node = self._graph.producer(name)
        is_outer = isinstance(node, JoinNode) and node.how != "inner"
        if isinstance(node, LookupNode):
            return node.as_of == "event_time"
        return (
            is_outer or isinstance(node, WindowNode | TableNode | TableJoinNode) or any(map(self.changes, node.inputs))
        )

    def table(self, name: str) -> dict[tuple[int, int, tuple[Any, ...]], Values]:
        """Return the final table of a window: by start, end and key."""
        node = self._window(name)
        return self._panes(node, self.rows(node.input, FOREVER), FOREVER)

    def on_time(self, name: str) -> dict[tuple[int, int, tuple[Any, ...]], Values]:
        """Return the on-time panes of a window."""
        node = self._window(name)
        if isinstance(node.window, Session):
            raise TypeError(node)
        times = [one.time for one in self._records]
        windows = {
            one
            for time in range(min(times, default=0) - HOUR, max(times, default=0) + HOUR, MINUTE)
            for one in windows_of(node.window, time)
        }
        found = {}
        for start, end in windows:
            until = end - 1 + self.hold(node.input)
            panes = self._panes(node, self.rows(node.input, until), until)
            found.update({group: values for group, values in panes.items() if group[:2] == (start, end)})
        return found

    def _window(self, name: str) -> WindowNode:
        node = self._graph.producer(name)
        assert isinstance(node, WindowNode)
        return node

    def _selected(self, node: SelectNode, until: int) -> list[Record]:
        where = node.where
        given = [one for stream in node.inputs for one in self.rows(stream, until)]
        if is_by_branch(self._graph, node):
            given = [
                replace(one, places=f"{stream}/{one.places}")
                for stream in node.inputs
                for one in self.rows(stream, until)
            ]
        if where is not None:
            given = [
                one for one in given if not self._fails("where", one.values) and self._expressions[where](one.values)
            ]
        held = [one for one in given if where is None or self._expressions[where](one.values)]
        held = [one for one in held if not (node.derive and self._fails("derive", one.values))]
        if node.select is None:
            return held
        # derived fields are copies of others here
        copies = {one.name: one.sql for one in node.derive}
        return [replace(one, values={name: one.values[copies.get(name, name)] for name in node.select}) for one in held]

    def _results(self, node: ProcessNode | WindowNode, until: int) -> list[Record]:
        return self._counted(node, until) if isinstance(node, ProcessNode) else self._window_rows(node, until)

    def _window_rows(self, node: WindowNode, until: int) -> list[Record]:
        if isinstance(node.window, Global):
            panes = self._panes(node, self.rows(node.input, until), until)
            return [
                Record(0, until, 0, 0, dict(zip(node.key, key, strict=True)) | row, f"{node.name}/{key}")
                for (*_, key), row in panes.items()
            ]
        hold = self.hold(node.input)
        return [
            Record(
                end - 1,
                end - 1 + hold,
                0,
                0,
                {"window_start": start, "window_end": end} | dict(zip(node.key, key, strict=True)) | values,
                f"{node.name}/{start}/{end}/{key}",
            )
            for (start, end, key), values in self._panes(node, self.rows(node.input, until), until).items()
            if end - 1 + hold <= until
        ]

    def _split(self, node: SplitNode, name: str, until: int) -> list[Record]:
        found = []
        for one in self.rows(node.input, until):
            held = node.other
            for output in node.outputs:
                if self._fails(f"split.{output.name}", one.values) or self._expressions[output.sql](one.values):
                    held = None if self._fails(f"split.{output.name}", one.values) else output.name
                    break
            if f"{node.name}.{held}" == name:
                found.append(one)
        return found

    def _elements(self, node: FlatMapNode, until: int) -> list[Record]:
        found = []
        for one in self.rows(node.input, until):
            if self._fails("flat_map", one.values):
                continue
            others = {name: value for name, value in one.values.items() if name not in {node.field, "id", "v"}}
            elements = [
                (f"{index:03}", {**each, "line": index}) for index, each in enumerate(one.values[node.field] or ())
            ]
            if not elements and node.outer:
                elements = [("", {"id": None, "v": None, "line": None})]
            found += [replace(one, values=others | each, places=f"{one.places}#{index}") for index, each in elements]
        return found

    def _deduplicated(self, node: DeduplicateNode, until: int) -> tuple[list[Record], list[Record]]:
        times: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        accepted, duplicates = [], []
        for one in sorted(self.rows(node.input, until), key=in_order_of_reading):
            key = tuple(one.values[name] for name in node.key)
            if any(abs(one.time - other) < node.within for other in times[key]):
                duplicates.append(one)
            else:
                times[key].append(one.time)
                accepted.append(one)
        return accepted, duplicates

    def _sampled(self, node: SampleNode, until: int) -> list[Record]:
        counts: Counter[tuple[Any, ...]] = Counter()
        found = []
        for row in sorted(self.rows(node.input, until), key=in_order_of_reading):
            key = tuple(row.values[name] for name in node.key)
            counts[key] += 1
            found += [row] if counts[key] % node.every == 0 else []
        return found

    def _counted(self, node: ProcessNode, until: int) -> list[Record]:
        """The rows of `counted`, in the order of the log or of event time."""
        in_event_time = node.process.order == "event_time"
        given = self.rows(node.input, until)
        by_key: defaultdict[Any, list[Record]] = defaultdict(list)
        if in_event_time:
            given = [
                replace(one, watermark=one.time) for one in given if one.watermark <= one.time and one.time <= until
            ]
        order = in_order_of_time if in_event_time else in_merged_order
        for one in sorted(given, key=order):
            by_key[one.values["user"]].append(one)
        name = node.name if is_behind_process(self._graph, node.input) else ""
        return [row for key, own in by_key.items() for row in Counting(key, in_event_time, name).rows(own, until)]

    def _joined(self, node: JoinNode, until: int) -> list[Record]:
        left, right = self.rows(node.left, until), self.rows(node.right, until)
        pairs = [
            (one, other)
            for one in left
            for other in right
            if [one.values[name] for name in node.key] == [other.values[name] for name in node.right_key]
            and -node.before <= other.time - one.time <= node.after
        ]
        keys = dict(zip(node.right_key, node.key, strict=True))
        taken = {one.name for one in stream_of(self._graph, node.left).fields}
        names = {
            name: keys.get(name, f"{name}_right" if name in taken else name) for other in right for name in other.values
        }
        found = []
        for one, other in pairs:
            last = max(one, other, key=in_merged_order)
            times = {"left": one.time, "right": other.time}
            values = {names[name]: value for name, value in other.values.items()} | one.values
            time = times.get(node.how, max(one.time, other.time))
            places = f"{one.places}+{other.places}"
            found.append(Record(time, last.watermark, last.partition, last.offset, values, places))
        if node.how in {"left", "full"}:
            settled = until - node.after - self.hold(node.right)
            alone = [one for one in left if one.time <= settled and not any(one is pair[0] for pair in pairs)]
            found += [replace(one, values=defaultdict(none, one.values), places=f"{one.places}+") for one in alone]
        if node.how in {"right", "full"}:
            settled = until - node.before - self.hold(node.left)
            alone = [one for one in right if one.time <= settled and not any(one is pair[1] for pair in pairs)]
            for one in alone:
                values = {names[name]: value for name, value in one.values.items()}
                found.append(replace(one, values=defaultdict(none, values), places=f"+{one.places}"))
        return found

    def _table(self, node: TableNode, until: int) -> list[Record]:
        last: dict[tuple[Any, ...], Record] = {}
        given = [*self.rows(node.input, until), *self._truncations(node.input, until)]
        for one in sorted(given, key=in_merged_order):
            if one.op == "t":
                # a partition has the order of its own rows only
                last = {key: row for key, row in last.items() if row.partition != one.partition}
            else:
                last[tuple(one.values[name] for name in node.key)] = one
        there = [one for one in last.values() if not self._removes(node, one)]
        return [replace(one, places=f"{node.name}/{one.places}") for one in there]

    def _removes(self, node: TableNode, version: Record) -> bool:
        return version.op == "d" or (node.deleted is not None and self._expressions[node.deleted](version.values))

    def _revise(self, node: LookupNode) -> int:
        if node.as_of == "order":
            return 0
        if node.revise is not None:
            return node.revise
        lateness = [self._lateness(name) for name in (node.table, node.left)]
        return next((one for one in lateness if one is not None), 0)

    def _lateness(self, name: str) -> int | None:
        """Return the lateness of the sources of a stream that no operator changes."""
        node = self._graph.producer(name)
        if isinstance(node, SourceNode):
            return node.lateness
        found = [self._lateness(one) for one in node.inputs]
        return None if None in found else max(one for one in found if one is not None)

    def _looked_up(self, node: LookupNode, until: int) -> list[Record]:
        table = self._graph.producer(node.table)
        assert isinstance(table, TableNode)
        found = []
        for one in self.rows(node.left, until):
            versions = [
                other
                for other in self.rows(table.input, until)
                if [one.values[name] for name in node.key] == [other.values[name] for name in node.right_key]
            ]
            held: Record | None
            if node.as_of == "order":
                # the row that is in the table when the record is read
                read = [other for other in versions if in_order_of_reading(other)[:4] < in_order_of_reading(one)[:4]]
                held = max(read, key=in_merged_order, default=None)
            else:
                place = in_merged_order(one)[:3]
                before = [other for other in versions if in_merged_order(other)[:3] < place]
                late = [other for other in versions if other.watermark < one.time + self._revise(node)]
                since = self._since(table, versions)
                known = [other for other in [*before, *late] if since[other.places] <= one.time]
                held = max(known, key=lambda other: (since[other.places], in_merged_order(other)), default=None)
            if held is not None and not self._removes(table, held) and not self._is_truncated(node, one, held, until):
                names = dict(zip(node.right_key, node.key, strict=True))
                values = {names.get(name, name): value for name, value in held.values.items()}
                places = f"{one.places}+{held.places}"
                found.append(replace(one, values=values | one.values, places=places, op="c"))
            elif node.how == "left":
                found.append(replace(one, values=defaultdict(none, one.values), places=f"{one.places}+", op="c"))
        return found

    def _is_truncated(self, node: LookupNode, record: Record, version: Record, until: int) -> bool:
        """Return whether a truncation of the version's partition is between it and the record that looks it up."""
        table = self._graph.producer(node.table)
        assert isinstance(table, TableNode)
        own = [one for one in self._truncations(table.input, until) if one.partition == version.partition]
        if node.as_of == "order":
            read = [one for one in own if in_order_of_reading(one)[:4] < in_order_of_reading(record)[:4]]
            return any(in_merged_order(one) > in_merged_order(version) for one in read)
        known = [
            one
            for one in own
            if in_merged_order(one)[:3] < in_merged_order(record)[:3]
            or one.watermark < record.time + self._revise(node)
        ]
        return any((version.time, version.offset) < (one.time, one.offset) and one.time <= record.time for one in known)

    def _since(self, table: TableNode, versions: Sequence[Record]) -> dict[str, int]:
        """Return from when on each of the versions of a key holds: of a file, the first one always has."""
        since = {one.places: one.time for one in versions}
        first = min(versions, key=in_merged_order, default=None)
        if first is not None and first.partition in self._files and not self._removes(table, first):
            since[first.places] = BEGINNING
        return since

    def _tables_joined(self, node: TableJoinNode, until: int) -> list[Record]:
        left, right = self.rows(node.left, until), self.rows(node.right, until)
        pairs = [
            (one, other)
            for one in left
            for other in right
            if [one.values[name] for name in node.key] == [other.values[name] for name in node.right_key]
        ]
        keys = dict(zip(node.right_key, node.key, strict=True))
        taken = {name for one in left for name in one.values}

        def named(values: Values) -> Values:
            return {keys.get(name, f"{name}_right" if name in taken else name): value for name, value in values.items()}

        found = [
            replace(one, values=named(other.values) | one.values, places=f"{one.places}+{other.places}")
            for one, other in pairs
        ]
        if node.how in {"left", "full"}:
            alone = [one for one in left if not any(one is pair[0] for pair in pairs)]
            found += [replace(one, values=defaultdict(none, one.values), places=f"{one.places}+") for one in alone]
        if node.how in {"right", "full"}:
            alone = [one for one in right if not any(one is pair[1] for pair in pairs)]
            for one in alone:
                found.append(replace(one, values=defaultdict(none, named(one.values)), places=f"+{one.places}"))
        return found

    def _panes(
        self, node: WindowNode, records: Sequence[Record], until: int
    ) -> dict[tuple[int, int, tuple[Any, ...]], Values]:
        all_in_time = self.changes(node.input)
        records = [one for one in records if not any(self._fails(step, one.values) for step in ("key", "exchange"))]
        groups: defaultdict[tuple[int, int, tuple[Any, ...]], list[Values]] = defaultdict(list)
        if isinstance(node.window, Session):
            by_key: defaultdict[tuple[Any, ...], list[Record]] = defaultdict(list)
            gap = self._gap(node.window)
            for one in records:
                if one.watermark < one.time + gap(one) + node.emit.lateness:
                    by_key[tuple(one.values[name] for name in node.key)].append(one)
            for key, own in by_key.items():
                for start, end, linked in sessions_at(own, gap, until):
                    groups[start, end, key] += [one.values for one in linked]
            records = []
        for one in records:
            for start, end in windows_of(node.window, one.time):
                if all_in_time or isinstance(node.window, Global) or one.watermark < end + node.emit.lateness:
                    groups[start, end, tuple(one.values[name] for name in node.key)].append(one.values)
        found = {}
        for group, rows in groups.items():
            with suppress(FormulaError):
                found[group] = self._values(node, rows)
        return found

    def _values(self, node: WindowNode, rows: Sequence[Values]) -> Values:
        plain = [item for item in node.aggregates if not isinstance(item.function, Formula)]
        values = {item.name: aggregate(item, rows) for item in plain}
        of = {item.name: item.function.sql for item in node.aggregates if isinstance(item.function, Formula)}
        return values | {name: self._expressions[sql](values) for name, sql in of.items()}

    def _gap(self, window: Session) -> Gap:
        seconds = None if window.by is None else self._expressions[window.by]
        return lambda one: window.gap if seconds is None else seconds(one.values) * SECOND


LAST = 2**31 - 1
BEHIND = 2**30


class Counting:
    """A key's calls of `counted` (see `test_graphs`), one by one; `name` is that of one that has others above it."""

    def __init__(self, key: Any, in_event_time: bool, name: str) -> None:  # noqa: ANN401, FBT001 - of any type
        self.key, self.in_event_time, self.name = key, in_event_time, name
        self.count = 0
        self.timers: dict[str, int] = {}
        self.made: list[Record] = []
        self.place: tuple[float, int, int] = (-FOREVER, 0, 0)
        self.cause, self.number = "", 0

    def rows(self, records: Sequence[Record], until: int) -> list[Record]:
        """Return what the calls for the records, and for the timers up to a logical time, emit."""
        for one in records:
            self.fire(one.watermark)
            at = (one.watermark, one.partition, one.offset)
            self.place = (one.time, one.partition | BEHIND, one.offset) if self.in_event_time else at
            self.cause, self.number = one.places, 0
            self.record(one)
            self.fire(one.watermark, is_own=True)
        self.fire(until + 1)
        return self.made

    def record(self, one: Record) -> None:
        self.count += 1
        value = one.values["v"]
        self.emit(one.time, one.values["id"], value, self.count)
        if value is not None and value > 6:
            self.emit(one.time, "again", self.count, self.count)
        if self.count % 2 == 0:
            self.timers["later"] = max(one.time + 4 * MINUTE, int(one.watermark))
        if self.count % 3 == 0:
            self.timers["now"] = max(one.time - 10 * MINUTE, int(one.watermark))

    def fire(self, reached: float, *, is_own: bool = False) -> None:
        while self.timers:
            due, name = min((due, name) for name, due in self.timers.items())
            if due > reached:
                return
            del self.timers[name]
            at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=due)
            timer = f"{self.key}@{at.isoformat()}" + (f"@{self.name}" if self.name else "")
            if not is_own and timer != self.cause:
                self.place, self.cause, self.number = (due - 1, LAST, FOREVER), timer, 0
            self.emit(due, name, self.count, -self.count)

    def emit(self, time: int, id_: str, v: Any, n: int) -> None:  # noqa: ANN401 - a number or None
        places = self.cause + (f"#{self.number:04d}" if self.number or self.name else "")
        self.number += 1
        values = {"user": self.key, "id": id_, "v": v, "n": n}
        self.made.append(Record(time, *self.place, values, places))


def in_order_of_time(record: Record) -> tuple[int, int, int, str]:
    """Return what the order of event time goes by."""
    return record.time, record.partition, record.offset, record.places


def in_merged_order(record: Record) -> tuple[float, int, int, str]:
    """Return what the merged order goes by."""
    return record.watermark, record.partition, record.offset, record.places


def in_order_of_reading(record: Record) -> tuple[int, float, int, int, str]:
    """Return what the merged order goes by if a run resumes after the end of its input."""
    return record.part, *in_merged_order(record)


def linked(records: Sequence[Record], gap: Gap) -> list[tuple[int, int, list[Record]]]:
    """Return the records whose own windows, of a gap, overlap, as (start, end, records)."""
    found: list[tuple[int, int, list[Record]]] = []
    for one in sorted(records, key=lambda record: record.time):
        if found and one.time < found[-1][1]:
            start, end, before = found.pop()
            found.append((start, max(end, one.time + gap(one)), [*before, one]))
        else:
            found.append((one.time, one.time + gap(one), [one]))
    return found


def sessions_at(records: Sequence[Record], gap: Gap, until: int) -> list[tuple[int, int, list[Record]]]:
    """Return the sessions of a key as of a logical time: those that no session that is open then touches.

    A record is on time if its watermark is before its own end. On-time records that came before the end of their
    session have fired; the late ones, and those that have fired, are linked, and those on time that have not are open.
    """
    on_time = [one for one in records if one.watermark < one.time + gap(one)]
    fired: list[Record] = []
    for end in {one.time + gap(one) for one in on_time}:
        if end - 1 <= until:
            came = linked([one for one in on_time if one.watermark < end], gap)
            fired += [one for _, at, session in came if at == end for one in session if one not in fired]
    still_open = linked([one for one in on_time if one not in fired], gap)
    late = [one for one in records if one.watermark >= one.time + gap(one)]
    return [
        (start, end, session)
        for start, end, session in linked([*fired, *late], gap)
        if not any(start < other_end and other_start < end for other_start, other_end, _ in still_open)
    ]


MEAN_DIGITS = 6
"""The number of digits after the point that a mean of whole numbers has."""


def mean(values: Sequence[int]) -> Decimal:
    """Return the mean; what is just between two is rounded away from zero."""
    units, rest = divmod(abs(sum(values)) * 10**MEAN_DIGITS, len(values))
    units += 2 * rest >= len(values)
    return Decimal(-units if sum(values) < 0 else units).scaleb(-MEAN_DIGITS)


def none() -> None:
    """Return the value of a field that a record without a partner lacks."""


def windows_of(window: object, time: int) -> list[tuple[int, int]]:
    """Return the windows of a time."""
    match window:
        case Tumbling(size):
            return [(time // size * size, time // size * size + size)]
        case Hopping(size, slide):
            last = time // slide * slide
            return [(start, start + size) for start in range(last, time - size, -slide)]
        case Global():
            return [(BEGINNING, FOREVER)]
        case Cumulate(size, step):
            start = time // size * size
            return [(start, start + length) for length in range(step, size + 1, step) if time < start + length]
        case _:
            raise TypeError(window)


def aggregate(item: Aggregate, rows: Sequence[Values]) -> Any:  # noqa: ANN401 - a number
    """Return a result."""
    match item.function:
        case Count():
            return len(rows)
        case Sum(of):
            given = [row[of] for row in rows if row[of] is not None]
            return sum(given) if given else None
        case Avg(of):
            given = [row[of] for row in rows if row[of] is not None]
            return mean(given) if given else None
        case Max(of):
            return max((row[of] for row in rows if row[of] is not None), default=None)
        case _:
            raise TypeError(item)
