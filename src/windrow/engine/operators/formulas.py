"""Formulas over results, computed for the rows that leave a window operator.

A row for which a formula fails becomes a dead letter and appears in no table or stream. Its earlier revision is
deleted, and the next revision that does not fail is inserted. Whether a formula fails is a function of the results in
the row. So every change shows whether the previous row exists, without state and however the log is cut into steps. A
double that is not finite becomes null and is not a failure: a ratio may divide by zero, and a sum of doubles may be
infinite. A formula also fails if its computation ends with an unexpected error for the row alone
(`windrow.engine.halving`).

Earlier versions wrote null where a formula failed. States of those versions, and of runs without formulas, keep that
rule for the windows that had begun before the resume, because the rows of those windows exist and must be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine.columns import MIN_TIME, pack, to_micros
from windrow.engine.decode.evaluation import Evaluator
from windrow.engine.decode.field_columns import all_but
from windrow.engine.messages import DeadLetters, Packet
from windrow.engine.operators.base import Mask, Operator, OperatorOutput, OperatorStep
from windrow.engine.operators.dead_letters import ResultDeadLetters
from windrow.engine.operators.window.operator import change_diffs
from windrow.engine.schema import DIFF
from windrow.engine.state.migrate import StoredState
from windrow.engine.state.store import OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.expressions import Computed, WindowSpec, formulas, results

_NULL_UNTIL: Final = "null_until"
"""Key in the summary of the latest window start for which a formula that fails is null."""


def has_formulas(spec: WindowSpec) -> bool:
    """Return True if a result of the pipeline is a formula over other results."""
    return any(isinstance(aggregate.function, m.Formula) for aggregate in spec.node.aggregates)


def inner_spec(spec: WindowSpec) -> WindowSpec:
    """Return the spec of the inner window operator. Formulas need each revision with the row that it replaces."""
    if has_formulas(spec) and spec.node.emit.mode == "accumulate":
        return replace(spec, node=replace(spec.node, emit=replace(spec.node.emit, mode="retract")))
    return spec


class FormulaOperator:
    """Computes the formulas of a pipeline in the rows of an inner operator, which is built from `inner_spec`.

    The inner operator returns null for each formula, and places each `update_after` directly after its `update_before`.
    """

    def __init__(self, graph: m.Graph, spec: WindowSpec, operator: Operator) -> None:
        self._name = spec.node.name
        self._retracts = spec.node.emit.mode != "accumulate"
        self._operator = operator
        made = formulas(spec, results(spec))
        self._formulas = tuple(Computed(name, name, formula) for name, formula in made.items())
        self._evaluator = Evaluator(self._formulas)
        self._dead_letters = ResultDeadLetters(graph, spec.node)

    @property
    def state(self) -> Mapping[str, StoreKind]:
        """The kinds of blobs of the inner operator."""
        return self._operator.state

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        fields = dict(state.summary or {})
        until = MIN_TIME if state.summary is None else fields.pop(_NULL_UNTIL, step.time.reached)
        own = OperatorState(state.name, state.blobs, fields or None)
        output = self._operator.process(step, own)
        state.summary = {**own.summary, _NULL_UNTIL: until}
        return self._add_formulas(output, until, step.group) if output.changes.num_rows else output

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:
        """Migrate the state of the inner operator."""
        known = [dict(summary) for summary, _ in states]
        bounds = [fields.pop(_NULL_UNTIL, None) for fields in known]
        inner = [(fields, state) for fields, (_, state) in zip(known, states, strict=True)]
        migrated = self._operator.migrate(change, low, inner)
        own = {} if None in bounds else {_NULL_UNTIL: max(bounds)}
        return [({**summary, **own}, state) for summary, state in migrated]

    def _add_formulas(self, output: OperatorOutput, until: int, group: int) -> OperatorOutput:
        """Return the output with formulas computed; rows for which a formula fails are replaced by dead letters."""
        columns, failed = self._evaluator.with_failures("formula", self._evaluator.compute_nulls, output.changes)
        by_name = dict(zip((formula.name for formula in self._formulas), columns, strict=True))
        changes, *records = (_set_columns(table, by_name) for table in (output.changes, *output.records))
        starts = to_micros(changes.column("window_start")) if failed else np.zeros(0)
        reasons = {row: failed[row] for row in sorted(failed) if starts[row] > until}
        left, kept = _drop_failed(changes, ~all_but(changes.num_rows, reasons), retracts=self._retracts)
        packets: Sequence[Packet] = ()
        if reasons:
            # only insertions become dead letters
            rows = changes.take(pa.array(list(reasons)))
            dead = self._dead_letters(rows.append_column(DIFF, change_diffs(rows)), list(reasons.values()))
            packets = (Packet(group, DeadLetters(self._name, pack(dead))),) if dead.num_rows else ()
        return replace(
            output,
            changes=left,
            records=tuple(table.filter(pa.array(kept)) for table in records),
            packets=(*output.packets, *packets),
        )


def _set_columns(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), values)
    return table


def _drop_failed(changes: pa.Table, failed: Mask, *, retracts: bool) -> tuple[pa.Table, Mask]:
    """Return the changes without failed rows, and the mask of the changes that are kept.

    A revision of a failed row becomes an insertion, and a row whose next revision fails is deleted. All other
    `update_before` rows are kept only if the pipeline `retracts`.
    """
    ops = changes.column("op")
    is_before, is_after = (pc.equal(ops, op).to_numpy() for op in ("update_before", "update_after"))
    is_insert = is_after & np.append(False, failed[:-1])
    is_delete = is_before & np.append(failed[1:], False)
    kept = ~failed if retracts else ~failed & (~is_before | is_delete)
    if kept.all():
        return changes, kept
    ops = pc.if_else(pa.array(is_insert), "insert", pc.if_else(pa.array(is_delete), "delete", ops))
    return _set_columns(changes, {"op": ops}).filter(pa.array(kept)), kept
