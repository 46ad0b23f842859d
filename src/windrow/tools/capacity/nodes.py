"""The expected state and changes of each node of a pipeline under a load whose records arrive at random (Poisson).

The input of a node (`Input`) is the output of its upstream nodes. Joins, lookups, tables, deduplications and rules keep
their records in sorted runs.

At the clock T, a window of width w that began `age` = T - start seconds ago has received those of its records that are
not too far behind to have arrived: M(age) = rate * integral of F(age - u) over u from 0 to w, where F(x) is the
fraction of records that are at most x behind (`Behind.within`). The window has a row for each key with at least one
record: A(M), the sum of 1 - exp(-share * M) over the keys (`Keys.active`). Windows begin every p seconds and are held
until the low watermark, T - delay - skew, has passed the window's end plus the lateness, so the number of rows is the
integral of A(M(age)) / p over the ages at which windows are held. The rows that a step writes are the same integral
over the windows that the step touches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

import numpy as np

from windrow import model as m
from windrow.expressions import join_spans, revise_of, stream_of
from windrow.tools.capacity.expected import Input, NodeExpected, StateRows
from windrow.tools.capacity.load import SECOND, Floats, Keys, Load

_RUNS: Final = 1.15
"""Rows in runs by rows that are needed, as a run is dropped when all of it is past: measured on the memory host."""
_POINTS: Final = 3000
"""Ages at which an integral is computed."""
_DAYS: Final = {"hour": 1 / 24, "day": 1.0, "week": 7.0, "month": 30.44}
_FANOUT: Final = 4
"""Fanout of the tree of slices (`windrow.engine.operators.window.slices`)."""
_BUCKETS: Final = 64
"""Buckets of the sessions of a key group (`windrow.engine.operators.session.operator`)."""
_DAY: Final = 86_400.0
_ENDLESS: Final = 50.0
"""Expected records in a gap from which on a session does not end."""
_SAMPLED: Final = 32
"""Windows, slices or nodes of slices that are computed, in place of all that differ."""


@dataclass(frozen=True)
class _Ages:
    """Windows of `width` seconds that begin every `every` seconds and are held from the age `first` to `until`.

    At the age `made` a step fires them or merges them from other windows; None if it does neither.
    """

    width: float
    every: float
    first: float
    until: float
    made: float | None = None


def expected(graph: m.Graph, load: Load, step: float) -> list[NodeExpected]:
    """Return the expected input, state and output of each node with an operator, in steps of `step` seconds."""
    model = _Model(graph, load, step)
    return [model.of(node) for node in graph.computed]


class _Model:
    """Computes the expected values of the nodes of a graph, each once."""

    def __init__(self, graph: m.Graph, load: Load, step: float) -> None:
        self._graph = graph
        self._load = load
        self._step = step
        self._known: dict[str, NodeExpected] = {}

    def of(self, node: m.KeyedNode | m.SinkNode) -> NodeExpected:
        if node.name not in self._known:
            self._known[node.name] = self._compute(node)
        return self._known[node.name]

    def _compute(self, node: m.KeyedNode | m.SinkNode) -> NodeExpected:  # noqa: PLR0911 - a case for each kind
        stated = self._load.shares.get(("", node.name), 1.0)
        inputs = (self._input(name, node.name) for name in node.inputs)
        flows = [replace(flow, rate=flow.rate * stated) for flow in inputs]
        keys = self._load.keys_of(node.name)
        match node:
            case m.WindowNode():
                return self._window(node, flows[0], keys)
            case m.JoinNode():
                return self._join(node, flows[0], flows[1], keys)
            case m.DeduplicateNode():
                return self._deduplicate(node, flows[0], keys)
            case m.LookupNode():
                return self._lookup(node, flows[0], flows[1], keys)
            case m.TableNode() | m.TableJoinNode():
                return self._table(node, flows, keys)
            case m.RulesNode():
                return self._rules(node, flows[0], keys)
            case m.ProcessNode():
                unknown = "the state of a process function depends on its code: measure it (windrow state)"
                return NodeExpected(node, flows[0].rate, updates=flows[0].rate, output=flows[0].rate, unknown=unknown)
            case m.SinkNode():
                rate = sum(flow.rate for flow in flows)
                return NodeExpected(node, rate, inserts=rate, changelog=rate, doubts=flows[0].doubts)
            case _:  # a row for each key
                (flow,) = flows
                held = self._merged_runs("keys", keys.number, min(flow.rate, keys.number / self._step))
                doubt = f"{node.name}: its keys are assumed to be the load's (override with --keys {node.name}=NUMBER)"
                doubts = flow.doubts if node.name in self._load.keys else (*flow.doubts, doubt)
                output = flow.rate * node.share
                return NodeExpected(node, flow.rate, 0.0, (held,), output=output, doubts=doubts, expired=flow.expired)

    def _input(self, stream: str, reader: str) -> Input:
        """Return the records of a stream on their way to the node `reader`."""
        node = self._graph.producer(stream)
        match node:
            case m.SourceNode():
                delay, doubts = delay_of(node, self._load)
                behind, rate, expired = self._load.behind, self._load.rates[node.name], 0.0
                rate *= self._load.shares.get((node.name, reader), 1.0)
                if node.lateness is not None:
                    limit = delay + node.lateness / SECOND
                    lost = float(1 - behind.within(limit))
                    behind, rate, expired = behind.cut(limit), rate * (1 - lost), rate * lost
                return Input(rate, behind, delay, expired, doubts)
            case m.SelectNode() | m.SplitNode() | m.FlatMapNode() | m.ChangesNode():
                flows = [self._input(name, reader) for name in node.inputs]
                doubts = tuple(doubt for flow in flows for doubt in flow.doubts)
                if not any(name == reader for _, name in self._load.shares):
                    doubts = (
                        *doubts,
                        f"{node.name} is assumed to pass all records (override with --share {reader}=SHARE)",
                    )
                return Input(
                    sum(flow.rate for flow in flows), flows[0].behind, flows[0].delay,
                    sum(flow.expired for flow in flows), doubts,
                )  # fmt: skip
            case m.TableNode() if stream != node.name:  # its versions are its records
                return self._input(node.input, reader)
            case _:
                if not isinstance(node, m.KeyedNode):
                    msg = f"{stream} has no records"
                    raise TypeError(msg)
                made, flow = self.of(node), self._input(node.inputs[0], node.name)
                return Input(made.output, flow.behind, flow.delay, doubts=made.doubts)

    def _join(self, node: m.JoinNode, left: Input, right: Input, keys: Keys) -> NodeExpected:
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
                f"{node.name}: records are assumed to match by chance (override with --partners {node.name}=NUMBER)"
            )
        state, alone = [], 0.0
        for side, flow, span in zip(("left", "right"), (left, right), join_spans(self._graph, node), strict=True):
            state.append(self._runs(side, flow, span.kept / SECOND))
            if node.how in {side, "full"} and flow.rate:
                alone += flow.rate * float(np.exp(-pairs / flow.rate))
        made = pairs + alone
        return NodeExpected(
            node, left.rate + right.rate, 0.0, tuple(state), inserts=made, output=made, doubts=tuple(doubts),
            changelog=made, expired=left.expired + right.expired,
        )  # fmt: skip

    def _runs(self, kind: str, flow: Input, kept: float) -> StateRows:
        """Return the state of records in log-structured runs, kept until the watermark is `kept` seconds past them."""
        until = kept + flow.delay + self._load.skew
        rows = flow.rate * float(flow.behind.integral(until))
        return self._merged_runs(kind, rows * (_RUNS if self._step < until else 1.0), flow.rate)

    def _deduplicate(self, node: m.DeduplicateNode, flow: Input, keys: Keys) -> NodeExpected:
        bound, within = stream_of(self._graph, node.input).bound, node.within / SECOND
        if node.name in self._load.accepted:
            accepted = flow.rate * self._load.accepted[node.name]
        else:  # a record a key in each span and the time until the next record arrives
            accepted = (1 - self._load.duplicates) * sum(
                number * flow.rate * share / (1 + flow.rate * share * within)
                for number, share in zip(keys.numbers, keys.shares, strict=True)
            )
        doubts = flow.doubts
        if node.name not in self._load.keys:
            stated = f"{node.name}: its keys are assumed to be the load's (override with --keys {node.name}=NUMBER)"
            doubts = (*doubts, stated)
        if bound is None:
            unknown = "it keeps every key forever: give its source a lateness"
            return NodeExpected(node, flow.rate, output=accepted, unknown=unknown, doubts=doubts)
        state = self._runs("keys", replace(flow, rate=accepted), within + bound / SECOND)
        return NodeExpected(node, flow.rate, 0.0, (state,), output=accepted, doubts=doubts, expired=flow.expired)

    def _table(self, node: m.TableNode | m.TableJoinNode, flows: list[Input], keys: Keys) -> NodeExpected:
        rate = sum(flow.rate for flow in flows)
        doubts = tuple(doubt for flow in flows for doubt in flow.doubts)
        if isinstance(node, m.TableJoinNode):
            doubts = (*doubts, f"{node.name}: each row of a table is assumed to have one partner")
        state = (self._merged_runs("rows", keys.number * len(flows), rate),)
        return NodeExpected(node, rate, 0.0, state, updates=rate, output=2 * rate, doubts=doubts, changelog=2 * rate)

    def _lookup(self, node: m.LookupNode, left: Input, right: Input, keys: Keys) -> NodeExpected:
        """Compute a lookup.

        It keeps the last version of each key, versions that can still be looked up, and waiting records.
        """
        bound = stream_of(self._graph, node.left).bound
        revise = revise_of(self._graph, node) / SECOND
        doubts = [*left.doubts, *right.doubts]
        kept = right.delay + self._load.skew + max((bound or 0) / SECOND, revise)
        copies = self._graph.key_groups if node.broadcast else 1
        versions = copies * (keys.number + right.rate * kept)
        if bound is None:
            doubts.append(f"{node.name}: its records have no lateness, so it keeps every version and grows forever")
        state = [self._merged_runs("versions", versions, copies * right.rate)]
        if node.as_of == "event_time":
            state.append(self._runs("left", left, revise))
            doubts.append(f"{node.name}: revisions by versions that arrive after their records are not counted")
        return NodeExpected(
            node, left.rate + right.rate, 0.0, tuple(state), inserts=left.rate, output=left.rate, doubts=tuple(doubts),
            changelog=left.rate, expired=left.expired + right.expired,
        )  # fmt: skip

    def _rules(self, node: m.RulesNode, flow: Input, keys: Keys) -> NodeExpected:
        """Compute rules, which keep the newest records of each key and those that may still be evaluated again."""
        recent, low = node.rules.recent, flow.delay + self._load.skew + node.rules.lateness / SECOND
        rows = sum(
            number * (min(recent.last, flow.rate * share * recent.within / SECOND) + flow.rate * share * low)
            for number, share in zip(keys.numbers, keys.shares, strict=True)
        )
        state = self._merged_runs("records", rows, flow.rate)
        doubts = (*flow.doubts, f"{node.name or 'rules'}: the number of alerts is unknown, so none are counted")
        return NodeExpected(node, flow.rate, flow.rate, (state,), doubts=doubts, expired=flow.expired)

    def _merged_runs(self, kind: str, rows: float, rate: float) -> StateRows:
        """Return the state of `rows` rows in sorted runs if `rate` rows arrive per second.

        A row is written when it arrives and each time its run is merged. A run is merged with the later ones when these
        have at least a quarter of its rows (`windrow.engine.state.runs`). So run sizes grow fivefold, and a row is
        written again about each time the number of rows has doubled.
        """
        step, groups = self._step, self._graph.key_groups
        steps = max(1.0, rows / max(rate * step, 1e-9))
        runs, times = 1 + math.log(steps, 5), 1 + math.log2(steps)
        return StateRows(kind, rows, groups * runs, min(rate, rows / step) * times, groups * 2 / step, are_records=True)

    def _window(self, node: m.WindowNode, flow: Input, keys: Keys) -> NodeExpected:
        if stream_of(self._graph, node.input).is_changelog:
            return self._changelog_windows(node, flow, keys)
        match node.window:
            case m.Session():
                return self._session(node, node.window, flow, keys)
            case m.Global():
                return self._global(node, flow, keys)
            case window:
                return self._spans(node, window, flow, keys)

    def _spans(
        self, node: m.WindowNode, window: m.Tumbling | m.Hopping | m.Cumulate | m.Calendar, flow: Input, keys: Keys
    ) -> NodeExpected:
        emit, low = node.emit, flow.delay + self._load.skew
        lateness = emit.lateness / SECOND
        state: list[StateRows] = []
        doubts = list(flow.doubts)
        total = dict.fromkeys(_TOTALS, 0.0)
        for width, every in spans(window):
            late, expired = flow.behind.past(flow.delay, width), flow.behind.past(flow.delay + lateness, width)
            pairs = flow.rate * width / every
            ontime = float(keys.active(flow.rate * width * (1 - late))) / every
            inserts = float(keys.active(flow.rate * width * (1 - expired))) / every
            late_pairs = pairs * (late - expired)
            begun = self._late_revisions(emit, flow, keys, (width, every), late_pairs)
            early = _early(emit.early, flow.rate, keys, width, ontime * every)
            total["pairs"] += pairs
            total["late"] += late_pairs
            total["expired"] += pairs * expired
            total["inserts"] += inserts
            total["updates"] += max(0.0, begun - (inserts - ontime)) + early / every
            fired = width + low
            if isinstance(window, m.Sliced):
                state.append(self._parts(window, flow, keys, (width, every), fired))
            first = fired if isinstance(window, m.Sliced) else 0.0
            state.append(self._held("panes", flow, keys, _Ages(width, every, first, fired + lateness, fired)))
        if isinstance(window, m.Sliced):
            state += self._slices(window, flow, keys, low)
        if emit.early is not None:
            doubts.append(f"{node.name or 'early'}: early panes depend on when records arrive within a window")
        return _expected(node, flow, total, state, doubts)

    def _slices(self, window: m.Hopping | m.Cumulate, flow: Input, keys: Keys, low: float) -> Iterator[StateRows]:
        """Yield the slices of overlapping windows and the tree nodes above them.

        Each is held until the last window that needs it has fired.
        """
        width, size = window.slice / SECOND, window.size / SECOND
        every = (window.slide if isinstance(window, m.Hopping) else window.size) / SECOND
        slices, step = window.size // window.slice, round(every / width)
        for number, weight in _sample(range(step)):
            yield self._held("slices", flow, keys, _Ages(width, every / weight, 0.0, size - number * width + low))
        node = _FANOUT
        while node <= slices:
            starts = range(0, math.lcm(node, step), node)
            for start, weight in _sample(starts):
                # in slices: the ends of the first window that has the whole node, and of the last that has its start
                last = start // step * step + slices
                first = start + node if isinstance(window, m.Cumulate) else last - (last - start - node) // step * step
                if first < last:
                    made, until = ((end - start) * width + low for end in (first, last))
                    ages = _Ages(node * width, len(starts) * node * width / weight, made, until, made)
                    yield self._held("nodes of slices", flow, keys, ages)
            node *= _FANOUT

    def _parts(
        self, window: m.Hopping | m.Cumulate, flow: Input, keys: Keys, span: tuple[float, float], fired: float
    ) -> StateRows:
        """Return the panes of windows that have not fired, for records that are late for some of their windows.

        Such records are too far behind for the first of their windows. Their fraction, 1 - `whole`, is in no slice.
        """
        width, every = span
        whole = 1 - flow.behind.past(
            flow.delay, (window.slide if isinstance(window, m.Hopping) else window.step) / SECOND
        )
        least = flow.behind.quantile(whole)
        edges = np.linspace(min(least, fired), fired, _POINTS)
        age = (edges[1:] + edges[:-1]) / 2
        since = np.maximum(age - width, least)
        records = flow.rate * (flow.behind.integral(age) - flow.behind.integral(since) - whole * (age - since))
        before = age - self._step
        coming = flow.rate * (flow.behind.integral(age) - flow.behind.integral(np.maximum(before, least)))
        coming = np.minimum(np.maximum(records, 0.0), coming)
        return self._integrate("panes", keys, np.maximum(records, 0.0), coming, np.diff(edges) / every)

    def _held(self, kind: str, flow: Input, keys: Keys, ages: _Ages) -> StateRows:
        """Return the rows of windows, integrated over their ages.

        A step writes the windows that receive records, and those that it fires or merges from others.
        """
        width, first, until, made, step = ages.width, ages.first, ages.until, ages.made, self._step
        ends = [np.linspace(first, until, _POINTS), np.linspace(first, min(until, first + width), _POINTS)]
        if made is not None:
            ends.append(np.array([age for age in (made, made + step) if first < age < until]))
        edges = np.unique(np.concatenate(ends))
        age = (edges[1:] + edges[:-1]) / 2

        def arrived(at: Floats) -> Floats:
            found: Floats = flow.rate * (flow.behind.integral(at) - flow.behind.integral(at - width))
            return found

        coming = arrived(age) - arrived(age - step)
        if made is not None:
            coming = np.where((age >= made) & (age < made + step), np.inf, coming)
        return self._integrate(kind, keys, arrived(age), coming, np.diff(edges) / ages.every)

    def _integrate(self, kind: str, keys: Keys, records: Floats, coming: Floats, weights: Floats) -> StateRows:
        """Sum the state of windows of each age, which hold `records`; `coming` of these arrived in the last step."""
        groups, step = self._graph.key_groups, self._step
        rows, blobs = keys.active(records), groups * -np.expm1(-records / groups)
        touched = -np.expm1(-coming / groups) / step
        return StateRows(
            kind,
            float((rows * weights).sum()),
            float((blobs * weights).sum()),
            float((rows * touched * weights).sum()),
            float((blobs * touched * weights).sum()),
        )

    def _late_revisions(
        self, emit: m.Emit, flow: Input, keys: Keys, span: tuple[float, float], late_pairs: float
    ) -> float:
        """Return the number of revisions per second that late records cause."""
        width, every = span
        match emit.late:
            case "each":
                return late_pairs
            case m.Records(number):
                return late_pairs / number
            case "batch":
                first = width + flow.delay
                edges = np.linspace(first, first + emit.lateness / SECOND, _POINTS)
                age = (edges[1:] + edges[:-1]) / 2
                coming = flow.rate * (flow.behind.within(age) - flow.behind.within(age - width))
                touched = keys.active(coming * self._step) * np.diff(edges) / every
                return float(touched.sum()) / self._step
            case _:
                assert_never(emit.late)

    def _session(self, node: m.WindowNode, window: m.Session, flow: Input, keys: Keys) -> NodeExpected:
        """Compute sessions of records that arrive at random: a renewal process in which a longer gap ends a session."""
        gap, lateness, low = window.gap / SECOND, node.emit.lateness / SECOND, flow.delay + self._load.skew
        late = float(1 - flow.behind.within(flow.delay + gap))
        expired = float(1 - flow.behind.within(flow.delay + gap + lateness))
        # an on-time record can be so far behind that an earlier session, which it touches, has fired already: no other
        # record of the key is in the gap around it, and the last record of that session is `ago` or less before it
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
            # a late record waits for its session to fire: by renewal theory, for as long as a session lasts
            waiting += revised * (1 - apart) * math.expm1(min(kept * gap, _ENDLESS)) / kept if kept else 0.0
            inserts += first + again + revised
            deletes += again + revised * touched
            changes += first + 2 * again + revised * (1 + touched)
        buckets = self._graph.key_groups * _BUCKETS
        filled = buckets * -float(np.expm1(-held / buckets))
        step = self._step
        touched_share = -float(np.expm1(-flow.rate * step / buckets))
        due = -float(np.expm1(-2 * begun * step / buckets))
        touched_share = touched_share + (1 - touched_share) * due
        rows = StateRows("sessions", held, filled, held * touched_share / step, filled * touched_share / step)
        doubts = list(flow.doubts)
        if waiting > held / 10:
            doubts.append(f"{node.name or 'window'}: late records that wait for long sessions to fire are not counted")
        if window.by is not None:
            doubts.append(f"{node.name or 'window'}: each record has its own gap; the longest is assumed for all")
        if node.emit.early is not None:
            doubts.append(f"{node.name or 'window'}: early panes of sessions are not counted")
        return NodeExpected(
            node, flow.rate, flow.rate, (rows,), inserts, 0.0, deletes, flow.rate * (late - expired),
            flow.rate * expired + flow.expired, changes, tuple(doubts), None, changes,
        )  # fmt: skip

    def _global(self, node: m.WindowNode, flow: Input, keys: Keys) -> NodeExpected:
        step = self._step
        # without a trigger, other streams read it and see each record change its row
        updates = flow.rate
        if node.emit.early is not None:
            updates = _early(node.emit.early, flow.rate, keys, _DAY, keys.number) / _DAY
        touched = -float(np.expm1(-flow.rate * step / self._graph.key_groups))
        groups = float(min(self._graph.key_groups, keys.number))
        state = StateRows("panes", keys.number, groups, keys.number * touched / step, groups * touched / step)
        doubts = (*flow.doubts, f"{node.name or 'window'}: the global window keeps every key forever")
        rows = 2 if node.emit.mode == "retract" else 1
        return NodeExpected(
            node, flow.rate, flow.rate, (state,), updates=updates, output=updates * rows, doubts=doubts,
            changelog=updates * rows,
        )  # fmt: skip

    def _changelog_windows(self, node: m.WindowNode, flow: Input, keys: Keys) -> NodeExpected:
        """Compute windows over a changelog, which keep its rows; these arrive when the upstream window has fired."""
        stream = stream_of(self._graph, node.input)
        name = node.name
        if isinstance(node.window, m.Session | m.Global):
            doubts = (*flow.doubts, f"{name}: a window over a changelog is assumed to hold one row per key")
            return self._global(node, Input(flow.rate, flow.behind, flow.delay, 0.0, doubts), keys)
        kept = (stream.hold + (stream.bound or 0)) / SECOND + flow.delay + self._load.skew
        total, state = dict.fromkeys(_TOTALS, 0.0), []
        groups, step = min(self._graph.key_groups, keys.number), self._step
        for width, every in spans(node.window):
            rows = float(flow.rate * (width / 2 + kept) * width / every)
            # a step writes the windows that have begun and not ended
            touched = -math.expm1(-flow.rate * step / groups) / step * width / every
            blobs, written = groups * (width + kept) / every, flow.rate * width / 2 * touched
            state.append(StateRows("rows", rows, blobs, written, groups * touched))
            total["pairs"] += flow.rate * width / every
            total["inserts"] += float(keys.active(flow.rate * width)) / every
            total["updates"] += flow.rate * width / every * flow.behind.past(flow.delay, width)
        return _expected(
            node, flow, total, state, [*flow.doubts, f"{name}: its input is rows of other windows, which can change"]
        )


def delay_of(source: m.SourceNode, load: Load) -> tuple[float, tuple[str, ...]]:
    """Return the watermark delay of a source in seconds, and doubts about it."""
    match source.time.watermark:
        case m.Delay(micros):
            return micros / SECOND, ()
        case m.DelayByPartition() as delays:
            return delays.default / SECOND, (f"{source.name}: the default delay is assumed for all partitions",)
        case m.Adaptive(target, least, most):
            found = min(max(load.behind.quantile(target), least / SECOND), most / SECOND)
            return found, (f"{source.name}: its adaptive delay is {found:.3g} s, given the load's disorder",)
        case m.Punctuated():
            return 0.0, (f"{source.name}: the watermark in its log is assumed to be at the newest event time",)


_TOTALS: Final = ("pairs", "inserts", "updates", "late", "expired")


def _expected(
    node: m.WindowNode, flow: Input, total: Mapping[str, float], state: Sequence[StateRows], doubts: Sequence[str]
) -> NodeExpected:
    """Return the rates of a node from the sums over its windows (`_TOTALS`); state of the same kind is summed."""
    changelog = total["inserts"] + total["updates"] * (2 if node.emit.mode == "retract" else 1)
    by_kind = tuple(
        StateRows(kind, *(sum(getattr(part, name) for part in state if part.kind == kind) for name in _NUMBERS))
        for kind in dict.fromkeys(part.kind for part in state)
    )
    return NodeExpected(
        node, flow.rate, total["pairs"], by_kind, total["inserts"], total["updates"], 0.0, total["late"],
        total["expired"] + flow.expired, changelog, tuple(doubts), None, changelog,
    )  # fmt: skip


_NUMBERS: Final = ("rows", "blobs", "written_rows", "written_blobs")


def _sample(numbers: range) -> list[tuple[int, float]]:
    """Return evenly spread numbers, each with the count of numbers that it represents."""
    number = min(_SAMPLED, len(numbers))
    weight = len(numbers) / number
    return [(numbers[int((place + 0.5) * weight)], weight) for place in range(number)]


def spans(window: m.Tumbling | m.Hopping | m.Cumulate | m.Calendar) -> list[tuple[float, float]]:
    """Return at most `_SAMPLED` pairs of a window width and the interval at which such windows begin, in seconds."""
    match window:
        case m.Tumbling(size):
            return [(size / SECOND, size / SECOND)]
        case m.Hopping(size, slide):
            return [(size / SECOND, slide / SECOND)]
        case m.Cumulate(size, step):
            numbers = _sample(range(1, size // step + 1))
            return [(number * step / SECOND, size / SECOND / weight) for number, weight in numbers]
        case m.Calendar(number, unit):
            days = number * _DAYS[unit]
            return [(days * _DAY, days * _DAY)]
        case _:
            assert_never(window)


def _early(trigger: m.Trigger | None, rate: float, keys: Keys, width: float, windows: float) -> float:
    """Return the number of early panes, beyond the first row of each window, of all windows that begin together.

    There is one such window for each key.
    """
    records, classes = rate * width, list(zip(keys.numbers, keys.shares, strict=True))
    match trigger:
        case None | m.When():
            return 0.0
        case m.Records(number):
            full = 1 if number == 1 else float(min(1.0, records / max(windows, 1e-9) / number))
            return sum(n * (share * records / number) for n, share in classes) * full
        case m.Every(micros) | m.EveryEventTime(micros):
            often = micros / SECOND
            return sum(n * width / (often + 1 / max(share * rate, 1e-12)) for n, share in classes)
        case m.AnyOf(triggers):
            return sum(_early(part, rate, keys, width, windows) for part in triggers)
        case m.AllOf(triggers):
            return min(_early(part, rate, keys, width, windows) for part in triggers)
        case m.Repeat(inner, times):
            return min(_early(inner, rate, keys, width, windows), times * windows)
        case _:
            assert_never(trigger)
