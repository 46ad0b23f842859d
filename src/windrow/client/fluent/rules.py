"""Rules, and the recent records and lists that they read."""

from __future__ import annotations

from collections.abc import Mapping

from windrow import model as m
from windrow.client.arguments import checked
from windrow.declare.arguments import Duration, duration_micros


@checked
def rule(
    name: str,
    *,
    when: str,
    severity: m.Severity = "medium",
    say: str | None = None,
    evidence: Mapping[str, str] | None = None,
) -> m.Rule:
    """Raise an alert for each record for which a condition is true.

    Args:
        name: identifies its alerts.
        when: an SQL condition over the record's fields, `prev`, `next`, `recent` and lists.
        severity: ``low``, ``medium``, ``high`` or ``critical``.
        say: the text of an alert, with ``{NAME}`` or ``{NAME:.2f}`` for evidence, a field,
            ``prev.FIELD`` or ``next.FIELD``.
        evidence: expressions whose values are written with the alert.
    """
    return m.Rule(name, when, severity, say, tuple((evidence or {}).items()))


@checked
def recent(*, last: int, within: Duration) -> m.Recent:
    """Let rules see the `last` records of a key that are at most `within` older than the record."""
    return m.Recent(last, duration_micros(within, "recent.within"))


@checked
def list_file(file: str, *, key: str | None = None) -> m.FileList:
    """Read a list when a run starts: an entry on each line, or in the column `key` of a CSV file."""
    return m.FileList("", file, key)


@checked
def list_topic(topic: str, *, key: str | None = None) -> m.TopicList:
    """Read a list from a compacted Kafka topic at the brokers of the source: the keys of records that have a value.

    A realtime run follows the topic; others read it when they start. If keys are JSON objects, `key` is the field of
    the entry.
    """
    return m.TopicList("", topic, key)
