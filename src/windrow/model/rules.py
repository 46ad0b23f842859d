"""Rules: conditions over a record and the recent records of its key, each of which raises alerts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["low", "medium", "high", "critical"]


@dataclass(frozen=True)
class Rule:
    """A condition over a record, its neighbours (`prev`, `next`) and the recent ones (`recent`) of its key.

    An alert has the expressions of `evidence` (names and SQL) as JSON, and the text `say`, in which ``{NAME}`` stands
    for the evidence, for a field of the record, or for ``prev.FIELD`` or ``next.FIELD``. Without `say` the text is the
    rule's name.
    """

    name: str
    when: str
    severity: Severity = "medium"
    say: str | None = None
    evidence: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Recent:
    """The records that a rule sees: the `last` ones of the key that are at most `within` microseconds older."""

    last: int
    within: int


@dataclass(frozen=True)
class FileList:
    """A list by the name `name` in the file `path`: of lines, or of the column `column` of a CSV file.

    `entries` are what the file held when it was read, None before that.
    """

    name: str
    path: str
    column: str | None = None
    entries: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TopicList:
    """A list by the name `name` in a Kafka topic at the brokers of the source: the keys of records that have a value.

    A key is a text, or with `field` a JSON object with the entry in that field. In real time it is followed, on the
    other hosts read once. `entries` are those that were read, None before that.
    """

    name: str
    topic: str
    field: str | None = None
    entries: tuple[str, ...] | None = None


RuleList = FileList | TopicList


@dataclass(frozen=True)
class RulesVersion:
    """The rules that judge the records of a partition from an offset on, what they see, and the names of lists."""

    partition: int
    offset: int
    rules: tuple[Rule, ...]
    recent: Recent
    lists: tuple[str, ...] = ()

    @staticmethod
    def of(rules: RuleSet, partition: int = 0, offset: int = 0) -> RulesVersion:
        """Return rules as those that are in force from a place on."""
        return RulesVersion(partition, offset, rules.rules, rules.recent, tuple(one.name for one in rules.lists))


@dataclass(frozen=True)
class ListChange:
    """Entries that a list has gained and lost when the record at an offset of a partition was read."""

    partition: int
    offset: int
    list: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class RulesJournal:
    """The rules and lists in force when the records of a run were read, by partition in the order of offsets.

    A partition without versions is judged by the pipeline's own rules; in one without changes of a list, the list has
    the entries that are read now.
    """

    versions: tuple[RulesVersion, ...] = ()
    changes: tuple[ListChange, ...] = ()


@dataclass(frozen=True)
class RuleSet:
    """The rules of a pipeline, and what they see.

    A record whose field `unique` repeats that of an earlier record of its key and partition changes nothing. One that
    comes `lateness` microseconds or more behind the watermark is expired. With `revise`, a record that comes late has
    the records after it judged again. `journal` is that of the run that is continued or repeated.
    """

    rules: tuple[Rule, ...]
    recent: Recent
    unique: str | None = None
    lists: tuple[RuleList, ...] = ()
    lateness: int = 0
    revise: bool = True
    journal: RulesJournal = RulesJournal()
