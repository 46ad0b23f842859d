"""Rules: conditions over a record and the recent records of its key, which raise alerts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["low", "medium", "high", "critical"]


@dataclass(frozen=True)
class Rule:
    """A condition over a record, its neighbours (`prev`, `next`) and the recent records (`recent`) of its key.

    An alert contains the values of `evidence` (names and SQL expressions) as JSON, and the text `say`. This is a
    template in which ``{NAME}`` is an item of evidence, a field of the record, ``prev.FIELD`` or ``next.FIELD``. By
    default, the text is the rule's name.
    """

    name: str
    when: str
    severity: Severity = "medium"
    say: str | None = None
    evidence: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Recent:
    """The records that a rule sees: the `last` records of the key that are at most `within` microseconds older."""

    last: int
    within: int


@dataclass(frozen=True)
class FileList:
    """A named list in the file `path`: its lines, or the column `column` of a CSV file.

    `entries` is the content of the list; it is None until the file has been read.
    """

    name: str
    path: str
    column: str | None = None
    entries: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TopicList:
    """A named list in a Kafka topic at the brokers of the source: the keys of records that have a value.

    A key is text, or if `field` is set, a JSON object with the entry in that field. A realtime run follows the topic;
    other hosts read it once. `entries` is the content of the list; it is None until the topic has been read.
    """

    name: str
    topic: str
    field: str | None = None
    entries: tuple[str, ...] | None = None


RuleList = FileList | TopicList


@dataclass(frozen=True)
class RulesVersion:
    """The rules that apply to a partition's records from an offset on, with `recent` and the names of their lists."""

    partition: int
    offset: int
    rules: tuple[Rule, ...]
    recent: Recent
    lists: tuple[str, ...] = ()

    @staticmethod
    def of(rules: RuleSet, partition: int = 0, offset: int = 0) -> RulesVersion:
        """Return the version of these rules that applies from an offset on."""
        return RulesVersion(
            partition, offset, rules.rules, rules.recent, tuple(rule_list.name for rule_list in rules.lists)
        )


@dataclass(frozen=True)
class ListChange:
    """Entries that were added to a list and removed from it when the record at an offset of a partition was read."""

    partition: int
    offset: int
    list: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class RulesJournal:
    """The rules and lists that applied when a run read its records, by partition and in the order of offsets.

    If a partition has no versions, the pipeline's own rules apply to it. If a list has no changes in a partition, its
    current entries apply.
    """

    versions: tuple[RulesVersion, ...] = ()
    changes: tuple[ListChange, ...] = ()


@dataclass(frozen=True)
class RuleSet:
    """The rules of a pipeline, with the records and lists that they see.

    A record is ignored if its field `unique` equals that of an earlier record of the same key and partition. A record
    that is `lateness` microseconds or more behind the watermark is expired. With `revise`, the rules are applied again
    to the records that follow a late record. `journal` is the journal of the run that is resumed or replayed.
    """

    rules: tuple[Rule, ...]
    recent: Recent
    unique: str | None = None
    lists: tuple[RuleList, ...] = ()
    lateness: int = 0
    revise: bool = True
    journal: RulesJournal = RulesJournal()
