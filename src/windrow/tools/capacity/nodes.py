"""Expected state and changes of each node of a pipeline under a load.

A node is given what the nodes before it give (`Inflow`); windows are those of `windrow.tools.capacity.windows`. Records
that joins, lookups, tables, deduplications and rules keep are in runs, as these keep them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from windrow import model as m
from windrow.expressions import join_spans, revise_of, stream_of
from windrow.tools.capacity.expected import Held, Inflow, NodeExpected, Setting
from windrow.tools.capacity.load import SECOND, Keys, Load
from windrow.tools.capacity.windows import WindowModel

_RUNS: Final = 1.15
"""Runs hold so many times the rows that are needed, as one goes when all of it is past: measured on the memory host."""


def expected(graph: m.Graph, load: Load, setting: Setting) -> list[NodeExpected]:
    """Return what each node with an operator takes, holds and gives, in the order of the graph."""
    model = _Model(graph, load, setting)
    return [model.of(node) for node in graph.computed]


class _Model:
    """Goes through a graph once."""

    def __init__(self, graph: m.Graph, load: Load, setting: Setting) -> None:
        self._graph = graph
        self._load = load
        self._setting = setting
        self._windows = WindowModel(graph, load, setting)
        self._known: dict[str, NodeExpected] = {}

    def of(self, node: m.KeyedNode | m.SinkNode) -> NodeExpected:
        """Return what is expected of a node."""
        if node.name not in self._known:
            self._known[node.name] = self._of(node)
        return self._known[node.name]

    def _of(self, node: m.KeyedNode | m.SinkNode) -> NodeExpected:  # noqa: PLR0911 - a case for each kind
        stated = self._load.shares.get(("", node.name), 1.0)
        flows = [self._inflow(name, node.name) for name in node.inputs]
        flows = [replace(flow, rate=flow.rate * stated) for flow in flows]
        keys = self._load.keys_of(node.name)
        match node:
            case m.WindowNode():
                return self._windows.of(node, flows[0], keys)
            case m.JoinNode():
                return self._join(node, flows[0], flows[1])
            case m.DeduplicateNode():
                return self._deduplicate(node, flows[0])
            case m.LookupNode():
                return self._lookup(node, flows[0], flows[1], keys)
            case m.TableNode() | m.TableJoinNode():
                return self._table(node, flows, keys)
            case m.RulesNode():
                return self._rules(node, flows[0], keys)
            case m.ProcessNode():
                unknown = "what a process function keeps is in its code: measure it (windrow state)"
                return NodeExpected(node, flows[0].rate, updates=flows[0].rate, given=flows[0].rate, unknown=unknown)
            case m.SinkNode():
                rate = sum(flow.rate for flow in flows)
                return NodeExpected(node, rate, inserts=rate, changelog=rate, doubts=flows[0].doubts)
            case _:  # a row for each key
                (flow,) = flows
                held = self._merged_runs("keys", keys.number, min(flow.rate, keys.number / self._setting.step))
                return NodeExpected(node, flow.rate, 0.0, (held,), given=flow.rate * node.share, doubts=flow.doubts)

    def _inflow(self, stream: str, taker: str) -> Inflow:
        """Return the records of a stream on their way to a node."""
        node = self._graph.producer(stream)
        match node:
            case m.SourceNode():
                delay, doubts = delay_of(node, self._load)
                behind, rate, expired = self._load.behind, self._load.rates[node.name], 0.0
                rate *= self._load.shares.get((node.name, taker), 1.0)
                if node.lateness is not None:
                    limit = delay + node.lateness / SECOND
                    lost = float(1 - behind.within(limit))
                    behind, rate, expired = behind.cut(limit), rate * (1 - lost), rate * lost
                return Inflow(rate, behind, delay, expired, doubts)
            case m.SelectNode() | m.SplitNode() | m.FlatMapNode():
                flows = [self._inflow(name, taker) for name in node.inputs]
                doubts = tuple(doubt for flow in flows for doubt in flow.doubts)
                if not any(name == taker for _, name in self._load.shares):
                    doubts = (*doubts, f"{node.name}: all records are taken to pass it (say --share {taker}=SHARE)")
                return Inflow(
                    sum(flow.rate for flow in flows), flows[0].behind, flows[0].delay,
                    sum(flow.expired for flow in flows), doubts,
                )  # fmt: skip
            case m.TableNode() if stream != node.name:  # its versions are its records
                return self._inflow(node.input, taker)
            case _:
                if not isinstance(node, m.KeyedNode):
                    msg = f"{stream} gives no records"
                    raise TypeError(msg)
                made, flow = self.of(node), self._inflow(node.inputs[0], node.name)
                return Inflow(made.given, flow.behind, flow.delay, doubts=made.doubts)

    def _join(self, node: m.JoinNode, left: Inflow, right: Inflow) -> NodeExpected:
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

    def _deduplicate(self, node: m.DeduplicateNode, flow: Inflow) -> NodeExpected:
        bound = stream_of(self._graph, node.input).bound
        within, keys = node.within / SECOND, self._load.keys_of(node.name)
        if node.name in self._load.accepted:
            accepted = flow.rate * self._load.accepted[node.name]
        else:  # of a key, one record in the span and in the time until the next one comes
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

    def _table(self, node: m.TableNode | m.TableJoinNode, flows: list[Inflow], keys: Keys) -> NodeExpected:
        rate = sum(flow.rate for flow in flows)
        doubts = tuple(doubt for flow in flows for doubt in flow.doubts)
        if isinstance(node, m.TableJoinNode):
            doubts = (*doubts, f"{node.name}: each row of a table is taken to have one partner")
        held = self._merged_runs("rows", keys.number * len(flows), rate)
        return NodeExpected(
            node, rate, 0.0, (held,), updates=rate, given=2 * rate, doubts=doubts, changelog=2 * rate
        )  # fmt: skip

    def _lookup(self, node: m.LookupNode, left: Inflow, right: Inflow, keys: Keys) -> NodeExpected:
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

    def _rules(self, node: m.RulesNode, flow: Inflow, keys: Keys) -> NodeExpected:
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

        A run is merged with what came after it when that has a quarter of its rows or more
        (`windrow.engine.state.runs`). So the rows of runs grow fivefold, while a row is written again about each time
        that twice as many have come.
        """
        step, groups = self._setting.step, self._setting.groups
        steps = max(1.0, rows / max(rate * step, 1e-9))
        runs, times = 1 + math.log(steps, 5), 1 + math.log2(steps)
        return Held(kind, rows, groups * runs, min(rate, rows / step) * times, groups * 2 / step, are_records=True)


def delay_of(source: m.SourceNode, load: Load) -> tuple[float, tuple[str, ...]]:
    """Return the delay of a source in seconds, and what is in doubt of it."""
    match source.time.watermark:
        case m.Delay(micros):
            return micros / SECOND, ()
        case m.DelayByPartition() as delays:
            return delays.default / SECOND, (f"{source.name}: the default delay is taken for all partitions",)
        case m.Adaptive(target, least, most):
            found = min(max(load.behind.quantile(target), least / SECOND), most / SECOND)
            return found, (f"{source.name}: its delay adapts; by the load's disorder it is {found:.3g} s",)
        case m.Punctuated():
            return 0.0, (f"{source.name}: its watermark is in the log; it is taken to be at the newest event time",)
