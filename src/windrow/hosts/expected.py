"""Expected state and changes of a pipeline under a load: by model, for records that come at random (Poisson).

With the clock T, a window that began `age` = T - start seconds ago has had, of the records of its span w, those that
are not too far behind to have come: M(age) = rate * integral of F(age - u) over u from 0 to w, where F is the share of
records at most so far behind (`Behind.within`). It has a row for each key with one or more records: A(M), the sum of
1 - exp(-share * M) over the keys (`Keys.active`). Windows begin every p seconds and are held until the low watermark
T - delay - skew has passed the end and the lateness, so the rows are the integral of A(M(age)) / p over the ages that
are held. What a step writes is the same integral over the windows that it touches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, assert_never

import numpy as np

from windrow.expressions import join_spans, revise_of, stream_of
from windrow.hosts.load import SECOND, Behind, Floats, Keys, Load
from windrow.model import (
    Adaptive,
    AllOf,
    AnyOf,
    Calendar,
    Cumulate,
    DeduplicateNode,
    Delay,
    DelayByPartition,
    Emit,
    Every,
    EveryEventTime,
    FlatMapNode,
    Global,
    Graph,
    Hopping,
    JoinNode,
    KeyedNode,
    LookupNode,
    ProcessNode,
    Punctuated,
    Records,
    Repeat,
    RulesNode,
    SelectNode,
    Session,
    SinkNode,
    Sliced,
    SourceNode,
    SplitNode,
    TableJoinNode,
    TableNode,
    Trigger,
    Tumbling,
    When,
    WindowNode,
)

_POINTS: Final = 3000
"""Ages at which an integral is computed."""
_DAYS: Final = {"hour": 1 / 24, "day": 1.0, "week": 7.0, "month": 30.44}
_FANOUT: Final = 4
"""Of the tree of slices (`windrow.core.operators.window.slices`)."""
_BUCKETS: Final = 64
"""Of the sessions of a key group (`windrow.core.operators.session.operator`)."""
_DAY: Final = 86_400.0
_ENDLESS: Final = 50.0
"""Of so many records expected in each gap, a session does not end."""
_RUNS: Final = 1.15
"""Runs hold so many times the rows that are needed, as one goes when all of it is past: measured on the memory host."""
_SOME: Final = 32
"""Of windows, slices and nodes that differ, so many are looked at, for all of them."""


@dataclass(frozen=True)
class Held:
    """State of one kind: rows, the blobs that they are in, and how many of both are written a second.

    The rows of results are alike, those of records (`are_records`) are not, and so take more when compressed.
    """

    kind: str
    rows: float
    blobs: float
    written_rows: float
    written_blobs: float
    are_records: bool = False


@dataclass(frozen=True)
class NodeExpected:
    """Rates of a node, a second: its input and output; and its state.

    `taken` are records, `pairs` those of a record and a window. `inserts` and `updates` are changes of rows, `deletes`
    rows that go; `late` and `expired` are pairs. `given` are records for the nodes behind it. `doubts` say why a figure
    is only within a factor of 2, `unknown` why the state cannot be planned.
    """

    node: KeyedNode | SinkNode
    taken: float
    pairs: float = 0.0
    held: tuple[Held, ...] = ()
    inserts: float = 0.0
    updates: float = 0.0
    deletes: float = 0.0
    late: float = 0.0
    expired: float = 0.0
    given: float = 0.0
    doubts: tuple[str, ...] = ()
    unknown: str | None = None
    changelog: float = 0.0
    """Rows of the changelog a second."""

    @property
    def rows(self) -> float:
        """The rows of state."""
        return sum(one.rows for one in self.held)

    @property
    def rows_made(self) -> float:
        """The rows of results a second."""
        return self.inserts + self.updates + self.deletes


@dataclass(frozen=True)
class Setting:
    """How a pipeline is run: seconds of a step, and key groups."""

    step: float
    groups: int


@dataclass(frozen=True)
class Inflow:
    """Records on their way to a node: how many a second, how far behind, and by which delay and lateness of theirs.

    `doubts` are those of the nodes that made them.
    """

    rate: float
    behind: Behind
    delay: float
    expired: float = 0.0
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Ages:
    """Windows of a width, one begun `every` so often, that are held from an age until another; seconds.

    At the age `made` a step fires them, or makes them of others; None if neither.
    """

    width: float
    every: float
    first: float
    until: float
    made: float | None = None


def expected(graph: Graph, load: Load, setting: Setting) -> list[NodeExpected]:
    """Return what each node with an operator takes, holds and gives, in the order of the graph."""
    model = _Model(graph, load, setting)
    return [model.of(node) for node in graph.computed]


class _Model:
    """Goes through a graph once."""

    def __init__(self, graph: Graph, load: Load, setting: Setting) -> None:
        self._graph = graph
        self._load = load
        self._setting = setting
        self._known: dict[str, NodeExpected] = {}

    def of(self, node: KeyedNode | SinkNode) -> NodeExpected:
        """Return what is expected of a node."""
        if node.name not in self._known:
            self._known[node.name] = self._of(node)
        return self._known[node.name]

    def _of(self, node: KeyedNode | SinkNode) -> NodeExpected:  # noqa: PLR0911 - a case for each kind
        stated = self._load.shares.get(("", node.name), 1.0)
        flows = [self._inflow(name, node.name) for name in node.inputs]
        flows = [replace(flow, rate=flow.rate * stated) for flow in flows]
        keys = self._load.keys_of(node.name)
        match node:
            case WindowNode():
                is_changelog = stream_of(self._graph, node.input).is_changelog
                return self._rows_of_rows(node, flows[0], keys) if is_changelog else self._window(node, flows[0], keys)
            case JoinNode():
                return self._join(node, flows[0], flows[1])
            case DeduplicateNode():
                return self._deduplicate(node, flows[0])
            case LookupNode():
                return self._lookup(node, flows[0], flows[1], keys)
            case TableNode() | TableJoinNode():
                return self._table(node, flows, keys)
            case RulesNode():
                return self._rules(node, flows[0], keys)
            case ProcessNode():
                unknown = "what a process function keeps is in its code: measure it (windrow state)"
                return NodeExpected(node, flows[0].rate, updates=flows[0].rate, given=flows[0].rate, unknown=unknown)
            case SinkNode():
                rate = sum(flow.rate for flow in flows)
                return NodeExpected(node, rate, inserts=rate, changelog=rate, doubts=flows[0].doubts)
            case _:
                assert_never(node)

    def _inflow(self, stream: str, taker: str) -> Inflow:
        """Return the records of a stream on their way to a node."""
        node = self._graph.producer(stream)
        match node:
            case SourceNode():
                delay, doubts = delay_of(node, self._load)
                behind, rate, expired = self._load.behind, self._load.rates[node.name], 0.0
                rate *= self._load.shares.get((node.name, taker), 1.0)
                if node.lateness is not None:
                    limit = delay + node.lateness / SECOND
                    lost = float(1 - behind.within(limit))
                    behind, rate, expired = behind.cut(limit), rate * (1 - lost), rate * lost
                return Inflow(rate, behind, delay, expired, doubts)
            case SelectNode() | SplitNode() | FlatMapNode():
                flows = [self._inflow(name, taker) for name in node.inputs]
                doubts = tuple(one for flow in flows for one in flow.doubts)
                if not any(name == taker for _, name in self._load.shares):
                    doubts = (*doubts, f"{node.name}: all records are taken to pass it (say --share {taker}=SHARE)")
                return Inflow(
                    sum(one.rate for one in flows), flows[0].behind, flows[0].delay, sum(one.expired for one in flows),
                    doubts,
                )  # fmt: skip
            case TableNode() if stream != node.name:  # its versions are its records
                return self._inflow(node.input, taker)
            case _:
                if not isinstance(node, KeyedNode):
                    msg = f"{stream} gives no records"
                    raise TypeError(msg)
                made, flow = self.of(node), self._inflow(node.inputs[0], node.name)
                return Inflow(made.given, flow.behind, flow.delay, doubts=made.doubts)

    def _window(self, node: WindowNode, flow: Inflow, keys: Keys) -> NodeExpected:
        match node.window:
            case Session():
                return self._session(node, node.window, flow, keys)
            case Global():
                return self._global(node, flow, keys)
            case window:
                return self._spans(node, window, flow, keys)

    def _spans(
        self, node: WindowNode, window: Tumbling | Hopping | Cumulate | Calendar, flow: Inflow, keys: Keys
    ) -> NodeExpected:
        emit, total = node.emit, _Sum()
        lateness, low = emit.lateness / SECOND, flow.delay + self._load.skew
        held: list[Held] = []
        doubts = list(flow.doubts)
        for width, every in spans(window):
            late, expired = flow.behind.past(flow.delay, width), flow.behind.past(flow.delay + lateness, width)
            pairs = flow.rate * width / every
            ontime = float(keys.active(flow.rate * width * (1 - late))) / every
            inserts = float(keys.active(flow.rate * width * (1 - expired))) / every
            late_pairs = pairs * (late - expired)
            begun = self._late_revisions(emit, flow, keys, (width, every), late_pairs)
            early = _early(emit.early, flow.rate, keys, width, ontime * every)
            total.pairs += pairs
            total.late += late_pairs
            total.expired += pairs * expired
            total.inserts += inserts
            total.updates += max(0.0, begun - (inserts - ontime)) + early / every
            fired = width + low
            if isinstance(window, Sliced):
                held.append(self._parts(window, flow, keys, (width, every), fired))
            first = fired if isinstance(window, Sliced) else 0.0
            held.append(self._held("panes", flow, keys, _Ages(width, every, first, fired + lateness, fired)))
        if isinstance(window, Sliced):
            held += self._slices(window, flow, keys, low)
        if emit.early is not None:
            doubts.append(f"{node.name or 'early'}: early panes depend on when records come within a window")
        return total.of(node, flow, _merged(held), doubts, emit)

    def _slices(self, window: Hopping | Cumulate, flow: Inflow, keys: Keys, low: float) -> Iterator[Held]:
        """Yield the slices of windows that overlap, and the nodes above them: each until its last window has fired."""
        width, size = window.slice / SECOND, window.size / SECOND
        every = (window.slide if isinstance(window, Hopping) else window.size) / SECOND
        slices, step = window.size // window.slice, round(every / width)
        for number, weight in _some(range(step)):
            yield self._held("slices", flow, keys, _Ages(width, every / weight, 0.0, size - number * width + low))
        node = _FANOUT
        while node <= slices:
            starts = range(0, math.lcm(node, step), node)
            for start, weight in _some(starts):
                # in slices: the ends of the first window that has all of the node, and of the last that has its start
                last = start // step * step + slices
                first = start + node if isinstance(window, Cumulate) else last - (last - start - node) // step * step
                if first < last:
                    made, gone = ((end - start) * width + low for end in (first, last))
                    ages = _Ages(node * width, len(starts) * node * width / weight, made, gone, made)
                    yield self._held("nodes of slices", flow, keys, ages)
            node *= _FANOUT

    def _parts(
        self, window: Hopping | Cumulate, flow: Inflow, keys: Keys, span: tuple[float, float], fired: float
    ) -> Held:
        """Return the panes of windows that have not fired, of records that are on time for some of their windows only.

        Those are too far behind for the first of their windows: their share 1 - G is in no slice.
        """
        width, every = span
        whole = 1 - flow.behind.past(
            flow.delay, (window.slide if isinstance(window, Hopping) else window.step) / SECOND
        )
        least = flow.behind.quantile(whole)
        edges = np.linspace(min(least, fired), fired, _POINTS)
        age = (edges[1:] + edges[:-1]) / 2
        since = np.maximum(age - width, least)
        records = flow.rate * (flow.behind.integral(age) - flow.behind.integral(since) - whole * (age - since))
        before = age - self._setting.step
        coming = flow.rate * (flow.behind.integral(age) - flow.behind.integral(np.maximum(before, least)))
        coming = np.minimum(np.maximum(records, 0.0), coming)
        return self._integrated("panes", keys, np.maximum(records, 0.0), coming, np.diff(edges) / every)

    def _held(self, kind: str, flow: Inflow, keys: Keys, ages: _Ages) -> Held:
        """Return the rows of windows by their ages.

        A step writes those to which it brings records, and those that it fires, or makes of others.
        """
        width, first, until, made, step = ages.width, ages.first, ages.until, ages.made, self._setting.step
        ends = [np.linspace(first, until, _POINTS), np.linspace(first, min(until, first + width), _POINTS)]
        if made is not None:
            ends.append(np.array([one for one in (made, made + step) if first < one < until]))
        edges = np.unique(np.concatenate(ends))
        age = (edges[1:] + edges[:-1]) / 2

        def come(at: Floats) -> Floats:
            found: Floats = flow.rate * (flow.behind.integral(at) - flow.behind.integral(at - width))
            return found

        coming = come(age) - come(age - step)
        if made is not None:
            coming = np.where((age >= made) & (age < made + step), np.inf, coming)
        return self._integrated(kind, keys, come(age), coming, np.diff(edges) / ages.every)

    def _integrated(self, kind: str, keys: Keys, records: Floats, coming: Floats, weights: Floats) -> Held:
        """Add up windows by age, that have had so many records, so many of them in the last step."""
        groups, step = self._setting.groups, self._setting.step
        rows, blobs = keys.active(records), groups * -np.expm1(-records / groups)
        touched = -np.expm1(-coming / groups) / step
        return Held(
            kind,
            float((rows * weights).sum()),
            float((blobs * weights).sum()),
            float((rows * touched * weights).sum()),
            float((blobs * touched * weights).sum()),
        )

    def _late_revisions(
        self, emit: Emit, flow: Inflow, keys: Keys, span: tuple[float, float], late_pairs: float
    ) -> float:
        """Return the revisions a second that late records make."""
        width, every = span
        match emit.late:
            case "each":
                return late_pairs
            case Records(number):
                return late_pairs / number
            case "batch":
                first = width + flow.delay
                edges = np.linspace(first, first + emit.lateness / SECOND, _POINTS)
                age = (edges[1:] + edges[:-1]) / 2
                coming = flow.rate * (flow.behind.within(age) - flow.behind.within(age - width))
                touched = keys.active(coming * self._setting.step) * np.diff(edges) / every
                return float(touched.sum()) / self._setting.step
            case _:
                assert_never(emit.late)

    def _session(self, node: WindowNode, window: Session, flow: Inflow, keys: Keys) -> NodeExpected:
        """Sessions of records that come at random: a renewal process, whose gaps are longer than the gap by chance."""
        gap, lateness, low = window.gap / SECOND, node.emit.lateness / SECOND, flow.delay + self._load.skew
        late = float(1 - flow.behind.within(flow.delay + gap))
        expired = float(1 - flow.behind.within(flow.delay + gap + lateness))
        # an on-time record that is so far behind that a session before it, which it touches, has fired by then: none
        # of that session's key is in the gap around it, and the last one of the session is `ago` or less before it
        span = np.linspace(0, gap, _POINTS // 10)
        coming = np.diff(flow.behind.within(flow.delay + span))
        begun = held = changes = inserts = deletes = waiting = 0.0
        for number, share in zip(keys.numbers, keys.shares, strict=True):
            rate = flow.rate * share
            kept, alone = rate * (1 - expired), float(np.exp(-rate * (1 - late) * gap))
            apart = float(np.exp(-kept * gap))
            begun += number * kept * apart
            held += number * ((1 - apart) + kept * apart * (low + gap + lateness))
            ago = (span[1:] + span[:-1]) / 2
            again = number * rate * float((coming * rate * (1 - late) * ago * alone).sum())
            first = number * rate * (1 - late) * alone
            touched = 2 * (1 - apart) - (1 - apart * (1 + kept * gap))
            revised = number * rate * (late - expired)
            # a late record waits for its session to fire: by renewal theory, for as long as one lasts
            waiting += revised * (1 - apart) * math.expm1(min(kept * gap, _ENDLESS)) / kept if kept else 0.0
            inserts += first + again + revised
            deletes += again + revised * touched
            changes += first + 2 * again + revised * (1 + touched)
        buckets = self._setting.groups * _BUCKETS
        filled = buckets * -float(np.expm1(-held / buckets))
        step = self._setting.step
        touched_share = -float(np.expm1(-flow.rate * step / buckets))
        due = -float(np.expm1(-2 * begun * step / buckets))
        touched_share = touched_share + (1 - touched_share) * due
        rows = Held("sessions", held, filled, held * touched_share / step, filled * touched_share / step)
        doubts = list(flow.doubts)
        if waiting > held / 10:
            doubts.append(f"{node.name or 'window'}: late records wait in long sessions for these to fire; not counted")
        if window.by is not None:
            doubts.append(f"{node.name or 'window'}: each record has a gap of its own; the longest is taken for all")
        if node.emit.early is not None:
            doubts.append(f"{node.name or 'window'}: early panes of sessions are not counted")
        return NodeExpected(
            node, flow.rate, flow.rate, (rows,), inserts, 0.0, deletes, flow.rate * (late - expired),
            flow.rate * expired + flow.expired, changes, tuple(doubts), None, changes,
        )  # fmt: skip

    def _global(self, node: WindowNode, flow: Inflow, keys: Keys) -> NodeExpected:
        step = self._setting.step
        # without a trigger it is read by other streams, which see each record change its row
        updates = flow.rate
        if node.emit.early is not None:
            updates = _early(node.emit.early, flow.rate, keys, _DAY, keys.number) / _DAY
        touched = -float(np.expm1(-flow.rate * step / self._setting.groups))
        groups = float(min(self._setting.groups, keys.number))
        held = Held("panes", keys.number, groups, keys.number * touched / step, groups * touched / step)
        doubts = (*flow.doubts, f"{node.name or 'window'}: the global window keeps every key that was ever seen")
        rows = 2 if node.emit.mode == "retract" else 1
        return NodeExpected(
            node, flow.rate, flow.rate, (held,), updates=updates, given=updates * rows, doubts=doubts,
            changelog=updates * rows,
        )  # fmt: skip

    def _rows_of_rows(self, node: WindowNode, flow: Inflow, keys: Keys) -> NodeExpected:
        """Windows over rows that change keep these rows; they come when the window before them has fired."""
        stream = stream_of(self._graph, node.input)
        name = node.name
        if isinstance(node.window, Session | Global):
            doubts = (*flow.doubts, f"{name}: a window over rows that change is taken to hold a row a key")
            return self._global(node, Inflow(flow.rate, flow.behind, flow.delay, 0.0, doubts), keys)
        kept = (stream.hold + (stream.bound or 0)) / SECOND + flow.delay + self._load.skew
        total, held = _Sum(), []
        for width, every in spans(node.window):
            rows = float(flow.rate * (width / 2 + kept) * width / every)
            fired = float(keys.active(flow.rate * width)) / every
            groups, step = min(self._setting.groups, keys.number), self._setting.step
            # a step writes the windows that have begun and not ended
            touched = -math.expm1(-flow.rate * step / groups) / step * width / every
            held.append(
                Held("rows", rows, groups * (width + kept) / every, flow.rate * width / 2 * touched, groups * touched)
            )
            total.pairs += flow.rate * width / every
            total.inserts += fired
            total.updates += flow.rate * width / every * flow.behind.past(flow.delay, width)
        more = [*flow.doubts, f"{name}: its input are rows of other windows, which change"]
        return total.of(node, flow, _merged(held), more, node.emit)

    def _join(self, node: JoinNode, left: Inflow, right: Inflow) -> NodeExpected:
        keys = self._load.keys_of(node.name)
        spans_ = join_spans(self._graph, node)
        reach = (node.before + node.after) / SECOND
        doubts = [*left.doubts, *right.doubts]
        by_chance = sum(
            number * share * share * left.rate * right.rate * reach
            for number, share in zip(keys.numbers, keys.shares, strict=True)
        )
        each = self._load.partners.get(node.name)
        pairs = by_chance if each is None else left.rate * each
        if each is None:
            doubts.append(
                f"{node.name}: records are taken to meet by chance, among its keys (say --partners {node.name}=NUMBER)"
            )
        held = [
            self._runs(kind, flow, span.kept / SECOND)
            for kind, flow, span in zip(("left", "right"), (left, right), spans_, strict=True)
        ]
        alone = 0.0
        for side, flow in (("left", left), ("right", right)):
            if node.how in {side, "full"} and flow.rate:
                alone += flow.rate * float(np.exp(-pairs / flow.rate))
        made = pairs + alone
        return NodeExpected(
            node, left.rate + right.rate, 0.0, tuple(held), inserts=made, given=made, doubts=tuple(doubts),
            changelog=made, expired=left.expired + right.expired,
        )  # fmt: skip

    def _runs(self, kind: str, flow: Inflow, kept: float) -> Held:
        """Records that are kept until the watermark is so far past them, in runs that double (log-structured)."""
        until = kept + flow.delay + self._load.skew
        rows = flow.rate * float(flow.behind.integral(until))
        return self._merged_runs(kind, rows * (_RUNS if self._setting.step < until else 1.0), flow.rate)

    def _deduplicate(self, node: DeduplicateNode, flow: Inflow) -> NodeExpected:
        bound = stream_of(self._graph, node.input).bound
        within, keys = node.within / SECOND, self._load.keys_of(node.name)
        # of a key, one record in the span and in the time until the next one comes
        accepted = (1 - self._load.duplicates) * sum(
            number * flow.rate * share / (1 + flow.rate * share * within)
            for number, share in zip(keys.numbers, keys.shares, strict=True)
        )
        doubts = flow.doubts
        if node.name not in self._load.keys:
            doubts = (
                *doubts,
                f"{node.name}: its keys are taken to be those of the load (say --keys {node.name}=NUMBER)",
            )
        if bound is None:
            unknown = "it keeps every key for ever: give its source a lateness"
            return NodeExpected(node, flow.rate, given=accepted, unknown=unknown, doubts=doubts)
        held = self._runs("keys", replace(flow, rate=accepted), within + bound / SECOND)
        return NodeExpected(node, flow.rate, 0.0, (held,), given=accepted, doubts=doubts, expired=flow.expired)

    def _table(self, node: TableNode | TableJoinNode, flows: list[Inflow], keys: Keys) -> NodeExpected:
        rate = sum(flow.rate for flow in flows)
        doubts = tuple(one for flow in flows for one in flow.doubts)
        if isinstance(node, TableJoinNode):
            doubts = (*doubts, f"{node.name}: each row of a table is taken to have one partner")
        held = self._merged_runs("rows", keys.number * len(flows), rate)
        return NodeExpected(
            node, rate, 0.0, (held,), updates=rate, given=2 * rate, doubts=doubts, changelog=2 * rate
        )  # fmt: skip

    def _lookup(self, node: LookupNode, left: Inflow, right: Inflow, keys: Keys) -> NodeExpected:
        """A lookup keeps the last version of each key, those that can still be looked up, and records that wait."""
        bound = stream_of(self._graph, node.left).bound
        revise = revise_of(self._graph, node) / SECOND
        doubts = [*left.doubts, *right.doubts]
        kept = right.delay + self._load.skew + max((bound or 0) / SECOND, revise)
        copies = self._setting.groups if node.broadcast else 1
        versions = copies * (keys.number + right.rate * kept)
        if bound is None:
            doubts.append(f"{node.name}: without a lateness of its records every version is kept, so it grows for ever")
        held = [self._merged_runs("versions", versions, copies * right.rate)]
        if node.as_of == "event_time":
            held.append(self._runs("left", left, revise))
            doubts.append(
                f"{node.name}: versions that come after the records that they are for revise these; not counted"
            )
        return NodeExpected(
            node, left.rate + right.rate, 0.0, tuple(held), inserts=left.rate, given=left.rate, doubts=tuple(doubts),
            changelog=left.rate, expired=left.expired + right.expired,
        )  # fmt: skip

    def _rules(self, node: RulesNode, flow: Inflow, keys: Keys) -> NodeExpected:
        """Rules keep of each key the newest records that are seen, and all that can still be judged again, in runs."""
        recent, low = node.rules.recent, flow.delay + self._load.skew + node.rules.lateness / SECOND
        rows = sum(
            number * (min(recent.last, flow.rate * share * recent.within / SECOND) + flow.rate * share * low)
            for number, share in zip(keys.numbers, keys.shares, strict=True)
        )
        held = self._merged_runs("records", rows, flow.rate)
        doubts = (*flow.doubts, f"{node.name or 'rules'}: how many alerts there are is not known; none are counted")
        return NodeExpected(node, flow.rate, flow.rate, (held,), doubts=doubts, expired=flow.expired)

    def _merged_runs(self, kind: str, rows: float, rate: float) -> Held:
        """Rows in runs, to which so many come a second: each is written when it comes, and when its run is merged.

        A run is merged with what came after it when that has a quarter of its rows or more (`windrow.core.state.runs`).
        So the rows of runs grow fivefold, while a row is written again about each time that twice as many have come.
        """
        step, groups = self._setting.step, self._setting.groups
        steps = max(1.0, rows / max(rate * step, 1e-9))
        runs, times = 1 + math.log(steps, 5), 1 + math.log2(steps)
        return Held(kind, rows, groups * runs, min(rate, rows / step) * times, groups * 2 / step, are_records=True)


class _Sum:
    """Adds up the windows of a node."""

    def __init__(self) -> None:
        self.pairs = self.late = self.expired = self.inserts = self.updates = 0.0

    def of(self, node: WindowNode, flow: Inflow, held: tuple[Held, ...], doubts: list[str], emit: Emit) -> NodeExpected:
        """Return them as those of the node."""
        changelog = self.inserts + self.updates * (2 if emit.mode == "retract" else 1)
        return NodeExpected(
            node, flow.rate, self.pairs, held, self.inserts, self.updates, 0.0, self.late,
            self.expired + flow.expired, changelog, tuple(doubts), None, changelog,
        )  # fmt: skip


def _merged(held: list[Held]) -> tuple[Held, ...]:
    """Add up state of one kind."""
    kinds = dict.fromkeys(one.kind for one in held)
    return tuple(
        Held(kind, *(sum(getattr(one, name) for one in held if one.kind == kind) for name in _NUMBERS))
        for kind in kinds
    )


_NUMBERS: Final = ("rows", "blobs", "written_rows", "written_blobs")


def _some(numbers: range) -> list[tuple[int, float]]:
    """Return some of many numbers, evenly spread, each with how many of them it stands for."""
    number = min(_SOME, len(numbers))
    weight = len(numbers) / number
    return [(numbers[int((place + 0.5) * weight)], weight) for place in range(number)]


def spans(window: Tumbling | Hopping | Cumulate | Calendar) -> list[tuple[float, float]]:
    """Return the windows as pairs of a width and how often one begins, in seconds; of many, some for all of them."""
    match window:
        case Tumbling(size):
            return [(size / SECOND, size / SECOND)]
        case Hopping(size, slide):
            return [(size / SECOND, slide / SECOND)]
        case Cumulate(size, step):
            numbers = _some(range(1, size // step + 1))
            return [(number * step / SECOND, size / SECOND / weight) for number, weight in numbers]
        case Calendar(number, unit):
            days = number * _DAYS[unit]
            return [(days * _DAY, days * _DAY)]
        case _:
            assert_never(window)


def delay_of(source: SourceNode, load: Load) -> tuple[float, tuple[str, ...]]:
    """Return the delay of a source in seconds, and what is in doubt of it."""
    match source.time.watermark:
        case Delay(micros):
            return micros / SECOND, ()
        case DelayByPartition() as delays:
            return delays.default / SECOND, (f"{source.name}: the default delay is taken for all partitions",)
        case Adaptive(target, least, most):
            found = min(max(load.behind.quantile(target), least / SECOND), most / SECOND)
            return found, (f"{source.name}: its delay adapts; by the load's disorder it is {found:.3g} s",)
        case Punctuated():
            return 0.0, (f"{source.name}: its watermark is in the log; it is taken to be at the newest event time",)


def _early(trigger: Trigger | None, rate: float, keys: Keys, width: float, windows: float) -> float:
    """Return how many early panes the windows of all keys that begin at once have, beside the first row of each."""
    records = rate * width

    def panes(one: Trigger | None) -> float:  # noqa: PLR0911 - a case for each trigger
        match one:
            case None:
                return 0.0
            case Records(number):
                return sum(
                    n * (share * records / number) for n, share in zip(keys.numbers, keys.shares, strict=True)
                ) * (1 if number == 1 else float(min(1.0, records / max(windows, 1e-9) / number)))
            case Every(micros) | EveryEventTime(micros):
                often = micros / SECOND
                return sum(
                    n * width / (often + 1 / max(share * rate, 1e-12))
                    for n, share in zip(keys.numbers, keys.shares, strict=True)
                )
            case AnyOf(triggers):
                return sum(map(panes, triggers))
            case AllOf(triggers):
                return min(map(panes, triggers))
            case Repeat(inner, times):
                return min(panes(inner), times * windows)
            case When():
                return 0.0
            case _:
                assert_never(one)

    return panes(trigger)
