"""Evaluation of rules: the columns that they see, their conditions, and the evidence and text of alerts."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeVar, assert_never

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine.columns import to_micros, whole
from windrow.engine.duckdb_sql import Projection, evaluate_in_halves, identifier
from windrow.engine.operators.rules.histories import Histories, Mask, Places
from windrow.engine.schema import OFFSET, PARTITION, TIME
from windrow.expressions import Expression, RulesSpec
from windrow.expressions.rules import (
    InList,
    Neighbour,
    NeighbourField,
    RecentCount,
    RecentField,
    RuleExpressions,
    RuleScope,
    TextPart,
    rule_expressions,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """The text of an alert, and its evidence as JSON."""

    text: str
    evidence: str


@dataclass(frozen=True)
class Verdicts:
    """Findings by judgement and number of the rule; and by judgement why rules failed, which then find nothing."""

    found: dict[tuple[int, int], Finding]
    failed: dict[int, str]


IsListed = Callable[[str, pa.Array, Places, Places], pa.Array]
"""Says of values whether they are in the list of a name, for records by partition and offset; null of null."""


class Judge:
    """Evaluates a pipeline's rules."""

    def __init__(self, spec: RulesSpec, is_listed: IsListed) -> None:
        self._rules = rule_expressions(spec)
        self._is_listed = is_listed
        self._columns = tuple(dict.fromkeys(column for rule in self._rules for column in rule.columns))
        self._struct = tuple(field.name for field in RuleScope.of(spec).fields)
        expressions = [
            one for rule in self._rules for one in (rule.when, *dict((*rule.evidence, *rule.values)).values())
        ]
        expressions += [column.of for column in self._columns if isinstance(column, InList)]
        used = {name for expression in expressions for name in expression.columns}
        self._own = tuple(name for name in self._struct if name in used)
        others = {column.field for column in self._columns if isinstance(column, NeighbourField | RecentField)}
        self.fields = (
            self._struct if None in others else tuple(name for name in self._struct if name in used or name in others)
        )
        self._conditions = Projection.of(
            [f"coalesce({rule.when.sql}, false)" for rule in self._rules],
            [name for rule in self._rules for name in rule.when.columns],
            grows=any(rule.when.grows for rule in self._rules),
        )
        self._listed = {column.name: _projection([column.of]) for column in self._columns if isinstance(column, InList)}
        self._shown = [_projection([one for _, one in (*rule.evidence, *rule.values)]) for rule in self._rules]

    def judge(self, records: pa.Table, order: Places, judged: Places, histories: Histories) -> Verdicts:
        """Judge records; they have `fields`, place and `TIME`, and are numbered as in `order`."""
        failed: dict[int, str] = {}
        table = self._seen(_Sight(records, self._struct, order, judged, histories), failed)
        holds = self._holding(table, failed)
        found: dict[tuple[int, int], Finding] = {}
        for number, rule in enumerate(self._rules):
            rows = np.flatnonzero(holds[:, number])
            if len(rows):
                made, why = self._findings(rule, self._shown[number], table.take(pa.array(rows)))
                found |= {(row, number): one for row, one in zip(rows.tolist(), made, strict=True)}
                failed |= {int(rows[row]): text for row, text in why.items()}
        return Verdicts(found, failed)

    def _seen(self, sight: _Sight, failed: dict[int, str]) -> pa.Table:
        """Return the columns that rules see, a row for each judgement; `failed` says by row why one has no value."""
        table = {name: sight.own(name) for name in self._own}
        table["__row"] = sight.numbers  # there is always a column
        for column in self._columns:
            if isinstance(column, InList):
                values = self._value(column, table, failed)
                table[column.name] = self._is_listed(column.list, values, *sight.places)
            else:
                table[column.name] = sight.column(column)
        return pa.table(table)

    def _value(self, column: InList, columns: Mapping[str, pa.Array], failed: dict[int, str]) -> pa.Array:
        """Return the values that are looked for in a list, null where their expression fails."""
        of = column.of
        if of.columns and of.text in {of.columns[0], identifier(of.columns[0])}:
            return columns[of.columns[0]]
        table = pa.table(columns)
        parts, why = _evaluated(self._listed[column.name].table, table, "rules")
        if not parts:
            failed |= why
            return pa.nulls(table.num_rows, pa.string())
        made = pa.concat_tables(parts)
        if not why:
            return whole(made.column("c0"))
        failed |= why
        is_made = np.ones(table.num_rows, dtype=np.bool_)
        is_made[list(why)] = False
        return whole(made.column("c0")).take(pa.array(np.cumsum(is_made) - 1, mask=~is_made))

    def _holding(self, table: pa.Table, failed: dict[int, str]) -> Mask:
        """Return for each row which rules hold: none where a condition fails."""
        made, why = _evaluated(self._conditions.masks, table, "rules")
        holds = np.zeros((table.num_rows, len(self._rules)), dtype=np.bool_)
        if made:
            holds[np.delete(np.arange(table.num_rows), list(why)) if why else slice(None)] = np.concatenate(made)
        failed |= why
        holds[list(failed)] = False
        return holds

    def _findings(
        self, rule: RuleExpressions, shown: Projection, table: pa.Table
    ) -> tuple[list[Finding], dict[int, str]]:
        """Return a finding for each row; evidence and values are null where they fail, and why they do."""
        if not rule.evidence and not rule.values:
            return [Finding(_text(rule.text, {}), "{}")] * table.num_rows, {}
        where = f"rules.{rule.rule.name}"
        made, failed = _evaluated(shown.table, table, where)
        values = (row for part in made for row in zip(*(column.to_pylist() for column in part.columns), strict=True))
        nothing = (None,) * (len(rule.evidence) + len(rule.values))
        found = []
        for row in range(table.num_rows):
            given = nothing if row in failed else next(values)
            if any(isinstance(value, str) and "\0" in value for value in given):
                given, failed[row] = nothing, f"expression: {where}: the result holds U+0000"
            evidence = dict(zip((name for name, _ in rule.evidence), given, strict=False))
            shown_values = dict(zip((name for name, _ in rule.values), given[len(evidence) :], strict=True))
            found.append(Finding(_text(rule.text, shown_values), evidence_text(evidence)))
        return found, failed


class _Sight:
    """The input columns of judgements: the records at the places `judged` of an order, and their histories."""

    def __init__(
        self,
        records: pa.Table,
        names: Sequence[str],
        order: Places,
        judged: Places,
        histories: Histories,
    ) -> None:
        self._records = records
        self._names = names
        self._histories = histories
        rows, seen = order[judged], order[histories.places]
        self._judged, self._seen = pa.array(rows), pa.array(seen)
        times = to_micros(records.column(TIME))
        self._ages = np.repeat(times[rows], histories.counts) - times[seen]
        is_first = histories.counts == 0
        before = seen[np.where(is_first, 0, histories.ends - 1)] if len(seen) else np.zeros(len(judged), np.int64)
        neighbours: dict[Neighbour, pa.Array] = {
            "prev": pa.array(before, mask=is_first),
            "next": pa.array(order[histories.after], mask=histories.after < 0),
        }
        self._neighbours = neighbours

    @property
    def numbers(self) -> pa.Array:
        """A number for each judgement."""
        return pa.array(np.arange(len(self._judged)))

    @property
    def places(self) -> tuple[Places, Places]:
        """The partitions and offsets of the records that are judged."""
        return to_micros(self.own(PARTITION)), to_micros(self.own(OFFSET))

    def own(self, name: str) -> pa.Array:
        """Return a field of the records that are judged."""
        return whole(self._records.column(name)).take(self._judged)

    def column(self, column: NeighbourField | RecentCount | RecentField) -> pa.Array:
        """Return a column, a row for each judgement."""
        match column:
            case NeighbourField(_, record, field):
                return whole(self._records.column(field)).take(self._neighbours[record])
            case RecentCount(_, span):
                return pa.array(self._histories.counts if span is None else self._histories.count(self._ages <= span))
            case RecentField(_, field, span):
                seen, counts = self._seen, self._histories.counts
                if span is not None:
                    is_near = self._ages <= span
                    seen, counts = seen.filter(pa.array(is_near)), self._histories.count(is_near)
                ends = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
                return pa.ListArray.from_arrays(ends, self._values(field, seen))
            case _:
                assert_never(column)

    def _values(self, field: str | None, rows: pa.Array) -> pa.Array:
        if field is not None:
            return whole(self._records.column(field)).take(rows)
        members = [whole(self._records.column(name)).take(rows) for name in self._names]
        return pa.StructArray.from_arrays(members, names=self._names)


def rule_hash(rule: m.Rule) -> str:
    """Return a hash of a rule's definition, which changes with the rule."""
    said = json.dumps([rule.when, rule.severity, rule.say, rule.evidence], ensure_ascii=False)
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def alert_id(pipeline: str, rule: str, key: Sequence[Any], subject: str, partition: int) -> str:
    """Return the identity of the alert of a rule for a record: the same on every host and in every run.

    A key is judged in each partition by itself, so what has one name in two of them has two alerts. For partition 0 the
    identity has no partition, as once that of every alert: a table of one partition keeps its identities.
    """
    named = [pipeline, rule, [_plain(value) for value in key], subject, *([partition] if partition else [])]
    digest = hashlib.blake2b(json.dumps(named, ensure_ascii=False).encode(), digest_size=16).digest()
    return base64.b32encode(digest).decode().rstrip("=").lower()


def evidence_text(values: Mapping[str, Any]) -> str:
    """Return evidence as a JSON object: decimals as text, times in ISO 8601, a double that is not finite as null."""
    return json.dumps({name: _plain(value) for name, value in values.items()}, ensure_ascii=False)


def _plain(value: Any) -> str | bool | float | None:  # noqa: ANN401 - a value of any field
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime():
            return time_text(value)
        case float():
            return value + 0.0 if math.isfinite(value) else None
        case _:
            return value  # type: ignore[no-any-return]


def value_text(value: Any) -> str:  # noqa: ANN401 - a value of any field
    """Return a value as text."""
    return formatted(value, "")


def time_text(value: datetime) -> str:
    """Return a time in ISO 8601, in UTC, with a fraction only if it has one.

    A Kafka record has another text of it (`windrow.connectors.kafka.rows`), always with six digits, so that texts of
    one topic sort by time. This one is hashed into the identities of alerts, and must stay as it is.
    """
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _text(parts: Iterable[TextPart], values: Mapping[str, Any]) -> str:
    return "".join(
        part.literal + ("" if part.name is None else formatted(values[part.name], part.format)) for part in parts
    )


_WORDS: Final = {None: "null", True: "true", False: "false"}


def formatted(value: Any, spec: str) -> str:  # noqa: ANN401 - a value of any field
    """Return a value in a format of Python's, as it stands in the text of an alert; raise ValueError if none fits.

    A double that is not finite is null, as in the evidence.
    """
    if isinstance(value, float) and not math.isfinite(value):
        value = None
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, datetime):
        return format(value.astimezone(UTC), spec) if spec else time_text(value)
    if isinstance(value, float):
        value = value + 0.0
    return format(value, spec) if spec else str(_plain(value))


def _evaluated(evaluate: Callable[[pa.Table], T], table: pa.Table, where: str) -> tuple[list[T], dict[int, str]]:
    """Return what comes of the rows for which it does not fail, in parts, and the reasons of the others by number."""
    parts, failed = evaluate_in_halves(evaluate, table)
    return parts, {row: f"expression: {where}: {why}" for row, why in failed.items()}


def _projection(expressions: Sequence[Expression]) -> Projection:
    return Projection.of(
        [expression.sql for expression in expressions],
        [column for expression in expressions for column in expression.columns],
        grows=any(expression.grows for expression in expressions),
    )
