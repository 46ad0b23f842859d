"""Defines the results of rules: the history of each record, and the changes of alerts, one record at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow import model as m
from windrow.expressions.rules import uses_next
from windrow.testing.oracle.clock import Clock

Fields = Mapping[str, Any]
Finding = tuple[str, dict[str, Any]]
"""An alert's text and evidence."""
Condition = Callable[[Fields, Sequence[Fields], Fields | None], Finding | None]
"""A rule in Python. Its arguments are a record, its visible history (oldest first), and the next record or None.

It returns its finding, or None if it does not hold. It raises ConditionError if its condition fails, and EvidenceError
if its evidence fails.
"""


class ConditionError(Exception):
    """Raised if a condition fails. No rule of the pipeline then holds for the record."""


class EvidenceError(Exception):
    """Raised if the evidence fails. The rule holds, and `finding` has nulls in its evidence."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


@dataclass(frozen=True)
class Purchase:
    """A valid record: its offset, event time (microseconds), key, id (or None) and fields."""

    offset: int
    time: int
    key: tuple[Any, ...]
    id: Any
    fields: Fields


@dataclass(frozen=True)
class AlertChange:
    """A change of the alert that a rule raises for a record; `subject` is the record's offset."""

    op: str
    pane: str
    revision: int
    rule: str
    subject: int
    finding: Finding


@dataclass
class RulesAnswer:
    """The changelog of a partition, and the offsets of records that were not judged or for which a rule failed."""

    changes: list[AlertChange] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    contradicting: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Resume:
    """Records below `offset` were judged with a different `lateness`; those that expired stay expired."""

    offset: int
    lateness: int


def judge(
    rules: m.RuleSet,
    conditions: Mapping[str, Condition],
    watermark: m.Watermark,
    log: Sequence[Purchase],
    partition: int,
    *,
    resume: Resume | None = None,
) -> RulesAnswer:
    """Judge the records of a partition in order of offsets; `conditions` maps rule names to the rules in Python."""
    answer, clock = RulesAnswer(), Clock(watermark, (), partition)
    # while a record can be judged again, its id stays reserved
    ahead = _ahead([*rules.journal.versions, m.RulesVersion.of(rules)])
    forgotten = -math.inf
    accepted: list[Purchase] = []
    alerts: dict[tuple[int, str], tuple[int, Finding | None]] = {}
    for record in log:
        at = clock.at(record.offset)
        clock.data(record.offset, record.time)
        lateness = rules.lateness
        if resume is not None and record.offset < resume.offset:
            lateness = resume.lateness
            forgotten = max(forgotten, at - lateness)
        expired_until = max(at - lateness, forgotten)
        if record.time <= expired_until:
            answer.expired.append(record.offset)
            continue
        known = [other for other in accepted if other.key == record.key]
        copies = [other for other in known if other.id == record.id and other.time > expired_until - ahead]
        if rules.unique is not None and copies:
            (answer.repeated if copies[0].fields == record.fields else answer.contradicting).append(record.offset)
            continue
        accepted.append(record)
        in_force = {other.offset: _in_force(rules, partition, other.offset) for other in [*known, record]}
        behind = [
            other
            for other in known
            if _order(other) > _order(record) and other.time - in_force[other.offset].recent.within <= record.time
        ]
        behind += [
            other
            for other in known
            if _sees_next(in_force[other.offset])
            and _following(in_force[other.offset].recent, other, [*known, record]) is record
        ]
        judged = [record, *(sorted(behind, key=_order) if rules.revise else ())]
        for subject in judged:
            version = in_force[subject.offset]
            history = _history(version.recent, subject, [*known, record])
            pane = "on_time" if subject is record and at < record.time else "late"
            following = _following(version.recent, subject, [*known, record])
            findings, has_failed = _findings(version.rules, conditions, subject, history, following)
            if has_failed and subject is record:
                answer.failed.append(record.offset)
            for rule in version.rules:
                finding, name = findings.get(rule.name), (subject.offset, rule.name)
                revision, before = alerts.get(name, (-1, None))
                if finding == before:
                    continue
                alerts[name] = revision + 1, finding
                answer.changes += _changes(before, finding, (pane, revision, rule.name, subject.offset))
    return answer


def _findings(
    rules: Sequence[m.Rule],
    conditions: Mapping[str, Condition],
    subject: Purchase,
    history: Sequence[Purchase],
    following: Purchase | None,
) -> tuple[dict[str, Finding | None], bool]:
    """Return the finding of each rule, and True if a rule failed."""
    found: dict[str, Finding | None] = {}
    has_failed = False
    seen, after = [other.fields for other in history], None if following is None else following.fields
    for rule in rules:
        try:
            found[rule.name] = conditions[rule.name](subject.fields, seen, after)
        except ConditionError:
            return {}, True
        except EvidenceError as exc:
            found[rule.name], has_failed = exc.finding, True
    return found, has_failed


def _in_force(rules: m.RuleSet, partition: int, offset: int) -> m.RulesVersion:
    """Return the version of the rules that judges a record: the one that was in force when the record was read."""
    versions = [version for version in rules.journal.versions if version.partition == partition]
    return next(
        (version for version in reversed(versions) if version.offset <= offset),
        [*versions, m.RulesVersion.of(rules)][0],
    )


def _sees_next(version: m.RulesVersion) -> bool:
    return any(map(uses_next, version.rules))


def _ahead(versions: Sequence[m.RulesVersion]) -> int:
    """Return for how long later records can cause a record to be judged again, for the widest of some versions."""
    return max(version.recent.within for version in versions) if any(map(_sees_next, versions)) else 0


def _order(record: Purchase) -> tuple[Any, ...]:
    return record.time, record.offset if record.id is None else record.id


def _history(recent: m.Recent, subject: Purchase, known: Sequence[Purchase]) -> list[Purchase]:
    before = [
        other for other in known if _order(other) < _order(subject) and other.time >= subject.time - recent.within
    ]
    return sorted(before, key=_order)[-recent.last :]


def _following(recent: m.Recent, subject: Purchase, known: Sequence[Purchase]) -> Purchase | None:
    after = [other for other in known if _order(other) > _order(subject) and other.time <= subject.time + recent.within]
    return min(after, key=_order, default=None)


def _changes(before: Finding | None, now: Finding | None, name: tuple[str, int, str, int]) -> list[AlertChange]:
    pane, revision, rule, subject = name
    if now is None:
        return [] if before is None else [AlertChange("delete", pane, revision + 1, rule, subject, before)]
    if before is None:
        return [AlertChange("insert", pane, revision + 1, rule, subject, now)]
    return [
        AlertChange("update_before", pane, revision, rule, subject, before),
        AlertChange("update_after", pane, revision + 1, rule, subject, now),
    ]
