"""Expected state and changes of each node of a pipeline under a load.

The input of a node (`Input`) is the output of its upstream nodes; windows are computed by
`windrow.tools.capacity.windows`. Joins, lookups, tables, deduplications and rules keep their records in sorted runs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, assert_never

import numpy as np

from windrow import model as m
from windrow.expressions import join_spans, revise_of, stream_of
from windrow.tools.capacity.expected import Input, NodeExpected, Setting, StateRows
from windrow.tools.capacity.load import SECOND, Keys, Load
from windrow.tools.capacity.windows import WindowModel

_RUNS: Final = 1.15
"""Rows in runs by rows that are needed, as a run is dropped when all of it is past: measured on the memory host."""


def expected(graph: m.Graph, load: Load, setting: Setting) -> list[NodeExpected]:
    """Return the input, state and output of each node with an operator, in the order of the graph."""
    model = _Model(graph, load, setting)
    return [model.of(node) for node in graph.computed]


class _Model:
    """Computes the nodes of a graph, each once."""

    def __init__(self, graph: m.Graph, load: Load, setting: Setting) -> None:
        self._graph = graph
        self._load = load
        self._setting = setting
        self._windows = WindowModel(graph, load, setting)
        self._known: dict[str, NodeExpected] = {}

    def of(self, node: m.KeyedNode | m.SinkNode) -> NodeExpected:
        """Return what is expected of a node."""
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
                return self._windows.of(node, flows[0], keys)
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
                unknown = "what a process function keeps is in its code: measure it (windrow state)"
                return NodeExpected(node, flows[0].rate, updates=flows[0].rate, output=flows[0].rate, unknown=unknown)
            case m.SinkNode():
                rate = sum(flow.rate for flow in flows)
                return NodeExpected(node, rate, inserts=rate, changelog=rate, doubts=flows[0].doubts)
            case _:
                assert_never(node)

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
            case m.SelectNode() | m.SplitNode() | m.FlatMapNode():
                flows = [self._input(name, reader) for name in node.inputs]
                doubts = tuple(doubt for flow in flows for doubt in flow.doubts)
                if not any(name == reader for _, name in self._load.shares):
                    doubts = (*doubts, f"{node.name}: all records are taken to pass it (say --share {reader}=SHARE)")
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
                f"{node.name}: records are taken to meet by chance, among its keys (say --partners {node.name}=NUMBER)"
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
        """Return records that are kept until the watermark is `kept` past them, in log-structured runs."""
        until = kept + flow.delay + self._load.skew
        rows = flow.rate * float(flow.behind.integral(until))
        return self._merged_runs(kind, rows * (_RUNS if self._setting.step < until else 1.0), flow.rate)

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
            stated = f"{node.name}: its keys are taken to be those of the load (say --keys {node.name}=NUMBER)"
            doubts = (*doubts, stated)
        if bound is None:
            unknown = "it keeps every key for ever: give its source a lateness"
            return NodeExpected(node, flow.rate, output=accepted, unknown=unknown, doubts=doubts)
        state = self._runs("keys", replace(flow, rate=accepted), within + bound / SECOND)
        return NodeExpected(node, flow.rate, 0.0, (state,), output=accepted, doubts=doubts, expired=flow.expired)

    def _table(self, node: m.TableNode | m.TableJoinNode, flows: list[Input], keys: Keys) -> NodeExpected:
        rate = sum(flow.rate for flow in flows)
        doubts = tuple(doubt for flow in flows for doubt in flow.doubts)
        if isinstance(node, m.TableJoinNode):
            doubts = (*doubts, f"{node.name}: each row of a table is taken to have one partner")
        state = (self._merged_runs("rows", keys.number * len(flows), rate),)
        return NodeExpected(node, rate, 0.0, state, updates=rate, output=2 * rate, doubts=doubts, changelog=2 * rate)

    def _lookup(self, node: m.LookupNode, left: Input, right: Input, keys: Keys) -> NodeExpected:
        """Compute a lookup: it keeps the last version of each key, those still to be looked up, and waiting records."""
        bound = stream_of(self._graph, node.left).bound
        revise = revise_of(self._graph, node) / SECOND
        doubts = [*left.doubts, *right.doubts]
        kept = right.delay + self._load.skew + max((bound or 0) / SECOND, revise)
        copies = self._setting.groups if node.broadcast else 1
        versions = copies * (keys.number + right.rate * kept)
        if bound is None:
            doubts.append(f"{node.name}: without a lateness of its records every version is kept, so it grows for ever")
        state = [self._merged_runs("versions", versions, copies * right.rate)]
        if node.as_of == "event_time":
            state.append(self._runs("left", left, revise))
            doubts.append(f"{node.name}: versions that arrive after their records revise these, which is not counted")
        return NodeExpected(
            node, left.rate + right.rate, 0.0, tuple(state), inserts=left.rate, output=left.rate, doubts=tuple(doubts),
            changelog=left.rate, expired=left.expired + right.expired,
        )  # fmt: skip

    def _rules(self, node: m.RulesNode, flow: Input, keys: Keys) -> NodeExpected:
        """Compute rules: they keep the newest records of each key, and those that can still be evaluated again."""
        recent, low = node.rules.recent, flow.delay + self._load.skew + node.rules.lateness / SECOND
        rows = sum(
            number * (min(recent.last, flow.rate * share * recent.within / SECOND) + flow.rate * share * low)
            for number, share in zip(keys.numbers, keys.shares, strict=True)
        )
        state = self._merged_runs("records", rows, flow.rate)
        doubts = (*flow.doubts, f"{node.name or 'rules'}: the number of alerts is unknown; none are counted")
        return NodeExpected(node, flow.rate, flow.rate, (state,), doubts=doubts, expired=flow.expired)

    def _merged_runs(self, kind: str, rows: float, rate: float) -> StateRows:
        """Return rows in runs, `rate` of them arriving a second: a row is written then, and when its run is merged.

        A run is merged with the later ones when these have a quarter of its rows or more
        (`windrow.engine.state.runs`). So the rows of runs grow fivefold, while a row is written again about each time
        that the number of rows has doubled.
        """
        step, groups = self._setting.step, self._setting.groups
        steps = max(1.0, rows / max(rate * step, 1e-9))
        runs, times = 1 + math.log(steps, 5), 1 + math.log2(steps)
        return StateRows(kind, rows, groups * runs, min(rate, rows / step) * times, groups * 2 / step, are_records=True)


def delay_of(source: m.SourceNode, load: Load) -> tuple[float, tuple[str, ...]]:
    """Return the delay of a source in seconds, and doubts about it."""
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
