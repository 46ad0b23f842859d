"""Rules: the parts that they are made of, and the stage they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windrow.api.checks import require_valid
from windrow.api.fluent.windows import Duration, duration_micros
from windrow.model import (
    DEFAULT_ALERTS,
    DEFAULT_KEY_GROUPS,
    Alerts,
    FileList,
    Recent,
    Rule,
    RuleList,
    RuleSet,
    RulesPipeline,
    RunMode,
    Severity,
    Sink,
    TopicList,
)

if TYPE_CHECKING:
    from windrow.api.fluent.streams import Given, Timed


def rule(
    name: str,
    *,
    when: str,
    severity: Severity = "medium",
    say: str | None = None,
    evidence: Mapping[str, str] | None = None,
) -> Rule:
    """Raise an alert for each record for which a condition is true.

    Args:
        name: identifies the rule's alerts.
        when: an SQL condition over the record's fields, `prev`, `next`, `recent` and lists.
        severity: ``low``, ``medium``, ``high`` or ``critical``.
        say: the text of an alert, with ``{NAME}`` or ``{NAME:.2f}`` for evidence, a field,
            ``prev.FIELD`` or ``next.FIELD``.
        evidence: expressions whose values are written with the alert.
    """
    return Rule(name, when, severity, say, tuple((evidence or {}).items()))


def recent(*, last: int, within: Duration) -> Recent:
    """Let rules see the last so many records of a key that are at most so much older than the record.

    Raises:
        PipelineError: the duration is invalid.
    """
    return Recent(last, duration_micros(within, "recent.within"))


def list_file(file: str, *, key: str | None = None) -> FileList:
    """Read a list from a file, when a run starts: an entry on each line, or in the column `key` of a CSV file."""
    return FileList("", file, key)


def list_topic(topic: str, *, key: str | None = None) -> TopicList:
    """Read a list from a compacted Kafka topic at the brokers of the source: the keys of records that have a value.

    In real time it is followed while the pipeline runs; on other hosts it is read once, when a run starts.

    Args:
        topic: its name.
        key: the field of the entry, if the keys are JSON objects.
    """
    return TopicList("", topic, key)


@dataclass(frozen=True)
class Ruled:
    """Alerts."""

    of: Timed | Given
    key: tuple[str, ...]
    rules: RuleSet

    def to(
        self,
        sink: Sink,
        *,
        name: str | None = None,
        key_groups: int = DEFAULT_KEY_GROUPS,
        mode: RunMode = "micro-batch",
        alerts: Alerts = DEFAULT_ALERTS,
    ) -> RulesPipeline:
        """Write to a sink, and so complete the pipeline.

        Args:
            sink: `windrow.sqlite`, `windrow.duckdb`, `windrow.postgres`, `windrow.delta`, `windrow.parquet` or
                `windrow.kafka_sink`.
            name: the pipeline's name; left out, the table's.
            key_groups: the upper bound of parallelism, which stays as it is for the pipeline's life.
            mode: how a live run takes records: in steps, or with ``"realtime"`` as they come, from Kafka to Kafka.
            alerts: which alerts a run raises, and where they are sent (`windrow.alerts`).

        Raises:
            PipelineError: the pipeline is invalid; the error has all its problems.
        """
        from windrow.api.fluent.streams import ends_of  # noqa: PLC0415 - it imports this room

        return require_valid(
            RulesPipeline(
                **ends_of(self.of, sink, name),
                key=self.key,
                rules=self.rules,
                key_groups=key_groups,
                mode=mode,
                alerts=alerts,
            )
        )


def named_lists(lists: Mapping[str, RuleList]) -> tuple[RuleList, ...]:
    """Return lists with their names."""
    return tuple(replace(one, name=name) for name, one in lists.items())
