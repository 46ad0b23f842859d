"""Checks of rules: their fields and lists, expressions and texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from windrow import model as m
from windrow.authoring.checks.base import is_field, no_field, type_of, valid_record_fields
from windrow.declare.findings import Finding, error, is_name, too_long, warning
from windrow.errors import PipelineError
from windrow.expressions import RulesSpec, nullable_fields
from windrow.expressions.rules import RULE_WORDS, RuleScope, uses_next

_MOST_RECENT: Final = 10_000
ALERT_COLUMNS: Final = ("alert_id", "rule", "severity", "rule_hash", "subject", "event_time", "text", "evidence")


def alert_columns(spec: RulesSpec) -> Iterator[Finding]:
    """Check that no key field has the name of a column of the alerts table."""
    columns = ", ".join(ALERT_COLUMNS)
    for index, name in enumerate(spec.key):
        if name.lower() in ALERT_COLUMNS:
            yield error(
                f"key.{index}",
                f"{name!r} is a column that every alert has ({columns}); derive a field with a different name",
            )


def rule_words(spec: RulesSpec) -> Iterator[Finding]:
    """Check that no field has a name with a special meaning in rules, such as `prev`."""
    names = [("decode", field.name) for field in spec.decode.fields]
    names += [("derive", derived.name) for derived in spec.derive]
    for section, name in names:
        if name.lower() in RULE_WORDS or name.lower().startswith(tuple(f"{word}." for word in RULE_WORDS)):
            message = f"{name!r} refers to other records in rules; rename the field, with alias: [{name}]"
            yield error(f"{section}.{name}", message)


def unique_field(spec: RulesSpec) -> Iterator[Finding]:
    """Check that the `unique` field is never null, and that its type can identify a record."""
    name = spec.node.rules.unique
    if name is None:
        return
    where, type_ = "unique.by", type_of(spec, name)
    if not is_field(spec, name):
        yield error(where, no_field(spec, name))
    elif isinstance(type_, m.DoubleType | m.BooleanType | m.ArrayType):
        yield error(where, f"{name!r} is a {type_}, which does not identify a record; use a string or a long")
    elif type_ is not None and name in _nullable(spec):
        yield error(where, f"{name!r} can be null, but each record must have it; derive it: coalesce({name}, ...)")


def _nullable(spec: RulesSpec) -> frozenset[str]:
    try:
        return nullable_fields(spec)
    except PipelineError:
        return frozenset()  # reported by another rule


def recent_records(spec: RulesSpec) -> Iterator[Finding]:
    """Check that the bounds of `recent` are positive and not too large, and that the lateness is not negative."""
    recent = spec.node.rules.recent
    if not 1 <= recent.last <= _MOST_RECENT:
        yield error("recent.last", f"must be 1 to {_MOST_RECENT:,}, not {recent.last}: it limits the state of a key")
    if recent.within <= 0:
        yield error("recent.within", "must be longer than 0")
    yield from too_long("recent.within", recent.within)
    if spec.node.rules.lateness < 0:
        yield error("emit.lateness", "must not be negative")
    yield from too_long("emit.lateness", spec.node.rules.lateness)
    if not spec.node.rules.lateness:
        message = "is 0s: no rule is applied to records further out of order than `delay`; give, for example, 10m"
        yield warning("emit.lateness", message)


def list_names(spec: RulesSpec) -> Iterator[Finding]:
    """Check that list names are identifiers and not fields, and that each list has its own file or topic."""
    for entries in spec.node.rules.lists:
        where, name = f"lists.{entries.name}", entries.name
        if not name.isidentifier():
            yield error(where, f"{name!r} must be a plain word, because rules use it: x in NAME")
        elif is_field(spec, name) or name.lower() in RULE_WORDS:
            message = f"{name!r} is a field, or `prev`, `next` or `recent`, in rules; give the list another name"
            yield error(where, message)
        if isinstance(entries, m.FileList):
            if not entries.path.strip():
                yield error(f"{where}.file", "is empty; give a file")
        elif not isinstance(spec.source, m.KafkaSource):
            yield error(
                f"{where}.kafka", "must be a topic on the source's brokers, but the source is not Kafka; use a file"
            )
        elif not entries.topic.strip() or entries.topic == spec.source.topic:
            yield error(f"{where}.kafka.topic", "must be a topic of its own, not the topic of the source")


def rule_names(spec: RulesSpec) -> Iterator[Finding]:
    """Check that there are rules, with valid and unique names."""
    if not spec.node.rules.rules:
        yield error("rules", "is empty; give at least one rule: - {name: large, when: amount > 1000}")
    counts = Counter(rule.name for rule in spec.node.rules.rules)
    for index, rule in enumerate(spec.node.rules.rules):
        where = f"rules.{index}.name"
        if not is_name(rule.name):
            yield error(where, f"{rule.name!r} must be printable, without spaces around it")
        elif counts[rule.name] > 1 and rule.name in {rule.name for rule in spec.node.rules.rules[:index]}:
            yield error(
                where,
                f"{rule.name!r} is the name of another rule too, but it identifies alerts; choose a different name",
            )


def rule_expressions(spec: RulesSpec) -> Iterator[Finding]:
    """Check the conditions, evidence and texts of the rules."""
    scope = RuleScope.of(spec, valid_record_fields(spec))
    for index, rule in enumerate(spec.node.rules.rules):
        where = f"rules.{index}"
        yield from _problem(f"{where}.when", scope.condition, rule.when)
        for name, sql in rule.evidence:
            yield from _problem(f"{where}.with.{name}", scope.analyse, sql)
        if rule.say is not None and "\0" in rule.say:
            yield error(f"{where}.say", "contains U+0000, which is not allowed in text")
        elif rule.say is not None:
            yield from _text(where, scope, rule)
        if not spec.node.rules.revise:
            yield from _next(where, rule)


def _problem(where: str, analyse: Callable[[str], object], text: str) -> Iterator[Finding]:
    try:
        analyse(text)
    except PipelineError as exc:
        yield error(where, exc.message)


def _text(where: str, scope: RuleScope, rule: m.Rule) -> Iterator[Finding]:
    evidence = {}
    for name, sql in rule.evidence:
        try:
            evidence[name] = scope.analyse(sql)
        except PipelineError:
            return  # reported already
    try:
        parts, values = scope.text(rule.say or "", evidence)
    except PipelineError as exc:
        yield error(f"{where}.say", exc.message)
        return
    for part in parts:
        if part.name is not None and part.format:
            type_ = values[part.name].type
            try:
                for sample in _samples(type_):
                    format(sample, part.format)
            except (ValueError, OverflowError) as exc:
                message = f"{{{part.name}:{part.format}}} is not a format for a {type_}: {exc}"
                yield error(f"{where}.say", message)


def _next(where: str, rule: m.Rule) -> Iterator[Finding]:
    """Find uses of `next` in a rule, if alerts are not revised when a later record arrives."""
    parts = {"when": rule.when} | {f"with.{name}": sql for name, sql in rule.evidence}
    rules = [(name, m.Rule(rule.name, sql)) for name, sql in parts.items()]
    rules += [] if rule.say is None else [("say", m.Rule(rule.name, "true", say=rule.say))]
    for part, single in rules:
        with suppress(PipelineError, ValueError):  # reported already
            if uses_next(single):
                message = (
                    "uses `next`, the following record, which arrives only after the rule has been applied; "
                    "set emit: {revise: true} to apply the rule again then"
                )
                yield error(f"{where}.{part}", message)


def _samples(type_: m.DataType) -> tuple[Any, ...]:
    """Return values of a type with which to test a format."""
    match type_:
        case m.LongType():
            return 1, 2**63 - 1
        case m.DoubleType():
            return (1.0,)
        case m.DecimalType():
            return (Decimal(1),)
        case m.TimestampType():
            return datetime(2026, 1, 1, tzinfo=UTC), datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
        case m.StringType() | m.BooleanType() | m.ArrayType():
            return ("x",)
