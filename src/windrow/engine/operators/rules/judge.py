"""Evaluation of rules: their versions, input columns and conditions, and the evidence and text of alerts.

A record is judged by the versions of rules and lists that are in force at its partition and offset. This holds for all
of its judgements, including those caused by a late record or by the next record. So the findings are a function of the
log and the journal (`windrow.model.RulesJournal`) alone, no matter when a judgement is made.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeVar, assert_never

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine.columns import distinct, to_micros, whole
from windrow.engine.decode.field_columns import all_but
from windrow.engine.duckdb_sql import Projection, identifier
from windrow.engine.halving import evaluate_in_halves
from windrow.engine.lists import read_entries
from windrow.engine.operators.rules.histories import Histories, Mask, Places
from windrow.engine.schema import OFFSET, PARTITION, TIME
from windrow.expressions import Expression, RulesSpec
from windrow.expressions import rules as rule_sql
from windrow.expressions.rules import InList, NeighbourField, RecentCount, RecentField, RuleExpressions

T = TypeVar("T")

_NEVER: Final = 2**63 - 1


@dataclass(frozen=True)
class Finding:
    """The text of an alert, and its evidence as JSON."""

    text: str
    evidence: str


@dataclass(frozen=True)
class Verdicts:
    """The findings for each judgement and rule number, and the reason for each failed judgement.

    A failed judgement has no findings.
    """

    found: dict[tuple[int, int], Finding]
    failed: dict[int, str]


IsListed = Callable[[str, pa.Array, Places, Places], pa.Array]
"""Returns whether each value is in the named list at its partition and offset; null for a null value."""


class Judge:
    """Evaluates a pipeline's rules."""

    def __init__(self, spec: RulesSpec, is_listed: IsListed) -> None:
        self._rules = rule_sql.rule_expressions(spec)
        self._is_listed = is_listed
        self._columns = tuple(dict.fromkeys(column for rule in self._rules for column in rule.columns))
        self._struct = tuple(field.name for field in rule_sql.RuleScope.of(spec).fields)
        expressions = [rule.when for rule in self._rules]
        expressions += [sql for rule in self._rules for _, sql in (*rule.evidence, *rule.values)]
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
        self._shown = [_projection([sql for _, sql in (*rule.evidence, *rule.values)]) for rule in self._rules]

    def judge(self, records: pa.Table, order: Places, judged: Places, histories: Histories) -> Verdicts:
        """Evaluate the rules for each judgement, and return the findings and failures.

        `records` must have `fields`, partition, offset and `TIME`. `order` maps the record numbers in `judged` and
        `histories` to rows of `records`.
        """
        failed: dict[int, str] = {}
        table = self._columns_of(_Sight(records, self._struct, order, judged, histories), failed)
        holds = self._conditions_of(table, failed)
        found: dict[tuple[int, int], Finding] = {}
        for number, rule in enumerate(self._rules):
            rows = np.flatnonzero(holds[:, number])
            if len(rows):
                made, why = self._findings(rule, self._shown[number], table.take(pa.array(rows)))
                found |= {(row, number): finding for row, finding in zip(rows.tolist(), made, strict=True)}
                failed |= {int(rows[row]): text for row, text in why.items()}
        return Verdicts(found, failed)

    def _columns_of(self, sight: _Sight, failed: dict[int, str]) -> pa.Table:
        """Return the input columns of rules, a row for each judgement; add the reasons for failed rows to `failed`."""
        table = {name: sight.own(name) for name in self._own}
        table["__row"] = pa.array(np.arange(len(sight.judged)))  # a table needs a column
        for column in self._columns:
            if isinstance(column, InList):
                values = self._value(column, table, failed)
                table[column.name] = self._is_listed(column.list, values, *sight.places)
            else:
                table[column.name] = sight.column(column)
        return pa.table(table)

    def _value(self, column: InList, columns: Mapping[str, pa.Array], failed: dict[int, str]) -> pa.Array:
        """Return the values to look up in a list; a value is null if its expression fails."""
        of = column.of
        if of.columns and of.text in {of.columns[0], identifier(of.columns[0])}:
            return columns[of.columns[0]]
        table = pa.table(columns)
        parts, why = _evaluate(self._listed[column.name].table, table, "rules")
        failed |= why
        if not parts:
            return pa.nulls(table.num_rows, pa.string())
        values = whole(pa.concat_tables(parts).column("c0"))
        if not why:
            return values
        is_made = all_but(table.num_rows, why)
        return values.take(pa.array(np.cumsum(is_made) - 1, mask=~is_made))

    def _conditions_of(self, table: pa.Table, failed: dict[int, str]) -> Mask:
        """Return a mask by row and rule of the conditions that hold; no condition holds in a failed row."""
        made, why = _evaluate(self._conditions.masks, table, "rules")
        holds = np.zeros((table.num_rows, len(self._rules)), dtype=np.bool_)
        if made:
            holds[np.delete(np.arange(table.num_rows), list(why)) if why else slice(None)] = np.concatenate(made)
        failed |= why
        holds[list(failed)] = False
        return holds

    def _findings(
        self, rule: RuleExpressions, shown: Projection, table: pa.Table
    ) -> tuple[list[Finding], dict[int, str]]:
        """Return a finding for each row, and the reasons for failed rows, whose evidence and values are null."""
        if not rule.evidence and not rule.values:
            return [Finding(_text(rule.text, {}), "{}")] * table.num_rows, {}
        where = f"rules.{rule.rule.name}"
        made, failed = _evaluate(shown.table, table, where)
        rows = (row for part in made for row in zip(*(column.to_pylist() for column in part.columns), strict=True))
        nulls = (None,) * (len(rule.evidence) + len(rule.values))
        found = []
        for row in range(table.num_rows):
            values = nulls if row in failed else next(rows)
            if any(isinstance(value, str) and "\0" in value for value in values):
                values, failed[row] = nulls, f"expression: {where}: the result holds U+0000"
            evidence = dict(zip((name for name, _ in rule.evidence), values, strict=False))
            shown_values = dict(zip((name for name, _ in rule.values), values[len(evidence) :], strict=True))
            found.append(Finding(_text(rule.text, shown_values), evidence_text(evidence)))
        return found, failed


class _Sight:
    """The input columns of judgements, computed from the judged records and their histories.

    `judged` has the indexes of the judged records in `order`.
    """

    def __init__(
        self, records: pa.Table, names: Sequence[str], order: Places, judged: Places, histories: Histories
    ) -> None:
        self._records = records
        self._names = names
        self._histories = histories
        rows, seen = order[judged], order[histories.places]
        self.judged, self._seen = pa.array(rows), pa.array(seen)
        times = to_micros(records.column(TIME))
        self._ages = np.repeat(times[rows], histories.counts) - times[seen]
        is_first = histories.counts == 0
        before = seen[np.where(is_first, 0, histories.ends - 1)] if len(seen) else np.zeros(len(judged), np.int64)
        self._neighbours: dict[rule_sql.Neighbour, pa.Array] = {
            "prev": pa.array(before, mask=is_first),
            "next": pa.array(order[histories.after], mask=histories.after < 0),
        }

    @property
    def places(self) -> tuple[Places, Places]:
        """The partitions and offsets of the judged records."""
        return to_micros(self.own(PARTITION)), to_micros(self.own(OFFSET))

    def own(self, name: str) -> pa.Array:
        return whole(self._records.column(name)).take(self.judged)

    def column(self, column: NeighbourField | RecentCount | RecentField) -> pa.Array:
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


class Entries:
    """The entries of a pipeline's lists, from the journal or, in partitions without a journal, from the lists."""

    def __init__(self, spec: RulesSpec) -> None:
        self._constant = read_entries(spec.node.rules.lists)
        self._moves: defaultdict[tuple[str, int], dict[str, list[int]]] = defaultdict(dict)
        """For each list and partition, the offsets at which each entry was alternately added and removed."""
        self.add(spec.node.rules.journal.changes)

    def add(self, changes: Iterable[m.ListChange]) -> None:
        """Add changes of lists, ordered by offset."""
        for change in changes:
            moves = self._moves[change.list, change.partition]
            for entries, is_there in ((change.removed, True), (change.added, False)):
                for entry in entries:
                    offsets = moves.setdefault(entry, [])
                    if (len(offsets) % 2 == 1) == is_there:
                        offsets.append(change.offset)

    def contain(self, name: str, values: pa.Array, partitions: Places, offsets: Places) -> pa.Array:
        """Return whether each value is in a list at the partition and offset of its record; null for a null value."""
        encoded = values.dictionary_encode()
        texts = list(map(str, encoded.dictionary.to_pylist()))
        codes = encoded.indices.fill_null(len(texts)).to_numpy()
        found = np.zeros(len(codes), dtype=np.bool_)
        for partition in distinct(partitions):
            rows = np.flatnonzero(partitions == partition)
            moves = self._moves.get((name, partition))
            if moves is None:
                # earlier rules can name a list that has been removed, or never had an entry
                known = [text in self._constant.get(name, ()) for text in texts]
                found[rows] = np.array([*known, False])[codes[rows]]
                continue
            listed = [moves.get(text, [_NEVER]) for text in texts]
            found[rows] = np.array([times[0] for times in listed] + [_NEVER])[codes[rows]] <= offsets[rows]
            for code in (number for number, times in enumerate(listed) if len(times) > 1):
                some = rows[codes[rows] == code]
                found[some] = np.searchsorted(listed[code], offsets[some], side="right") % 2 == 1
        return pa.array(found, mask=codes == len(texts))


@dataclass(frozen=True)
class Version:
    """A version of the rules with the hash of each rule, its judge, and whether its rules see the next record."""

    rules: m.RulesVersion
    hashes: tuple[str, ...]
    judge: Judge
    sees_next: bool


class Versions:
    """The versions of a pipeline's rules.

    `last` and `within` are the maximum over all versions; `sees_next` is true if any version uses `next`.
    """

    def __init__(self, spec: RulesSpec) -> None:
        rules = spec.node.rules
        self._entries = Entries(spec)
        self._places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """For each partition, the first offset of each version and the number of the version."""
        numbers: dict[m.RulesVersion, int] = {}
        for version in rules.journal.versions:
            number = numbers.setdefault(replace(version, partition=0, offset=0), len(numbers))
            self._places[version.partition].append((version.offset, number))
        self._own = numbers.setdefault(m.RulesVersion.of(rules), len(numbers))
        self.all = tuple(self._build_version(spec, version) for version in numbers)
        self.last = max(version.recent.last for version in numbers)
        self.within = max(version.recent.within for version in numbers)
        self.sees_next = any(version.sees_next for version in self.all)
        self.fields = tuple(dict.fromkeys(name for version in self.all for name in version.judge.fields))

    def add(self, changes: Iterable[m.ListChange]) -> None:
        """Add changes of lists, which take effect for later records."""
        self._entries.add(changes)

    def numbers(self, partitions: Places, offsets: Places) -> Places:
        """Return the index in `all` of the version that judges each record."""
        found = np.full(len(partitions), self._own)
        if len(self.all) > 1:
            for partition, places in self._places.items():
                rows = np.flatnonzero(partitions == partition)
                begins, numbers = np.array(places).T
                found[rows] = numbers[np.maximum(np.searchsorted(begins, offsets[rows], side="right") - 1, 0)]
        return found

    def _build_version(self, spec: RulesSpec, version: m.RulesVersion) -> Version:
        lists = tuple(m.FileList(name, "", entries=()) for name in version.lists)
        rules = replace(spec.node.rules, rules=version.rules, recent=version.recent, lists=lists)
        judge = Judge(replace(spec, node=replace(spec.node, rules=rules)), self._entries.contain)
        sees_next = any(map(rule_sql.uses_next, version.rules))
        return Version(version, tuple(map(rule_hash, version.rules)), judge, sees_next)


def rule_hash(rule: m.Rule) -> str:
    """Return a hash of a rule's definition."""
    text = json.dumps([rule.when, rule.severity, rule.say, rule.evidence], ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def alert_id(pipeline: str, rule: str, key: Sequence[Any], subject: str, partition: int) -> str:
    """Return the identity of the alert that a rule raises for a record, identical on every host and in every run.

    A key is judged separately in each partition, so equal names in two partitions have two alerts. For partition 0 the
    identity does not include the partition. Earlier versions never included it, so tables of a single partition keep
    their identities.
    """
    parts = [pipeline, rule, [_plain(value) for value in key], subject, *([partition] if partition else [])]
    digest = hashlib.blake2b(json.dumps(parts, ensure_ascii=False).encode(), digest_size=16).digest()
    return base64.b32encode(digest).decode().rstrip("=").lower()


def evidence_text(values: Mapping[str, Any]) -> str:
    """Return evidence as a JSON object: decimals as text, times in ISO 8601, doubles that are not finite as null."""
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
    """Return a field's value as text."""
    return format_value(value, "")


def time_text(value: datetime) -> str:
    """Return a time as ISO 8601 text in UTC, with a fraction only if it is not zero.

    In Kafka records, times always have six digits (`windrow.connectors.kafka.rows`), so that the texts of a topic sort
    by time. The text returned here is hashed into the identities of alerts and must not change.
    """
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _text(parts: Iterable[rule_sql.TextPart], values: Mapping[str, Any]) -> str:
    return "".join(
        part.literal + ("" if part.name is None else format_value(values[part.name], part.format)) for part in parts
    )


_WORDS: Final = {None: "null", True: "true", False: "false"}


def format_value(value: Any, spec: str) -> str:  # noqa: ANN401 - a value of any field
    """Apply a Python format to a value, for the text of an alert; raise ValueError if the format does not fit.

    A double that is not finite is shown as null, as in the evidence.
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


def _evaluate(evaluate: Callable[[pa.Table], T], table: pa.Table, where: str) -> tuple[list[T], dict[int, str]]:
    """Return the results of the rows that do not fail, in parts, and the reason for each failed row."""
    parts, failed = evaluate_in_halves(evaluate, table)
    return parts, {row: f"expression: {where}: {why}" for row, why in failed.items()}


def _projection(expressions: Sequence[Expression]) -> Projection:
    return Projection.of(
        [expression.sql for expression in expressions],
        [column for expression in expressions for column in expression.columns],
        grows=any(expression.grows for expression in expressions),
    )
