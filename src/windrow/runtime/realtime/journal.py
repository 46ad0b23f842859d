"""The rules journal of a partition: the rules and list entries in force from each offset on.

It is stored as records of the partition's state topic. Rules and lists are not part of the log, so their values at the
time when a record was read are written in the same transaction as its results. A new run reads all committed rows.
Records below the committed offset are judged by the rules that were in force when they were read, both in recovery and
when a late record causes them to be judged again. Later records are judged by the pipeline's current rules. No row is
ever removed, and each has its own key, so compaction keeps all of them.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import asdict, replace

from confluent_kafka.admin import AdminClient

from windrow import model as m
from windrow.connectors.kafka.client import Admin, client_of
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.read import Reader
from windrow.connectors.kafka.source import preflight
from windrow.errors import InputError
from windrow.expressions.rules import uses_next
from windrow.runtime.realtime.checkpoints import MAX_VALUE, Record
from windrow.runtime.realtime.topics import source_of, state_topic

_PREFIX = b"journal/"
_ROW_BYTES = MAX_VALUE // 2
"""Maximum bytes of the entries in a row, which are slightly longer as JSON."""


class Journal:
    """The journal of a partition; `read` picks its rows out of the records of the state topic.

    `pending` are the records of rows that have not been written yet.
    """

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._versions: list[m.RulesVersion] = []
        self._changes: list[m.ListChange] = []
        self._entries: defaultdict[str, set[str]] = defaultdict(set)
        self._count = 0
        self.pending: list[Record] = []

    @property
    def rows(self) -> m.RulesJournal:
        """All rows, including pending rows."""
        return m.RulesJournal(tuple(self._versions), tuple(self._changes))

    def read(self, records: Iterable[Record]) -> Iterator[Record]:
        """Add the journal rows among the records, and yield all other records."""
        for key, value in records:
            if not key.startswith(_PREFIX):
                yield key, value
            elif value is not None:
                self._count += 1
                row = _decode(self._partition, value)
                if isinstance(row, m.RulesVersion):
                    self._versions.append(row)
                else:
                    self._note(row)

    def require_held(self, rules: m.RuleSet, name: str) -> None:
        """Raise InputError if the rules need more history than the state holds; `name` is the pipeline's."""
        if not self._versions:
            return
        recent = rules.recent
        last = max(version.recent.last for version in self._versions)
        within = max(version.recent.within for version in self._versions)
        if recent.last > last or recent.within > within:
            msg = (
                f"recent looks back further than the state of the pipeline {name}, which was kept for {{last: "
                f"{last}, within: {m.format_duration(within)}}}: older records were dropped. Make recent as short as "
                "that, or give the pipeline another name"
            )
            raise InputError(msg)
        if any(map(uses_next, rules.rules)) and not any(
            uses_next(rule) for version in self._versions for rule in version.rules
        ):
            msg = (
                f"the rules of the pipeline {name} now use `next`, and none did before: the state lacks alerts that "
                "the next record of a key would revise. Leave `next` out, or give the pipeline another name"
            )
            raise InputError(msg)

    def begin(self, rules: m.RuleSet, offset: int) -> None:
        """Put rules in force from an offset on; call `require_held` first."""
        now = m.RulesVersion.of(rules, self._partition, offset)
        last = self._versions[-1] if self._versions else None
        if last is None or replace(last, offset=offset) != now:
            self._versions.append(now)
            self._append(_plain(now))

    def change(self, name: str, entries: AbstractSet[str], offset: int) -> list[m.ListChange]:
        """Replace the entries of a list from an offset on, and return the changes."""
        known = self._entries[name]
        removed = [m.ListChange(self._partition, offset, name, removed=part) for part in _parts(known - entries)]
        added = [m.ListChange(self._partition, offset, name, part) for part in _parts(entries - known)]
        for change in (*removed, *added):
            self._note(change)
            self._append(_plain(change))
        return [*removed, *added]

    def _note(self, change: m.ListChange) -> None:
        self._changes.append(change)
        self._entries[change.list].difference_update(change.removed)
        self._entries[change.list].update(change.added)

    def _append(self, value: bytes) -> None:
        self.pending.append((_PREFIX + str(self._count).encode(), value))
        self._count += 1


def read_journal(graph: m.Graph) -> m.RulesJournal:
    """Return the committed journal of all partitions of a pipeline's realtime runs.

    Raise SourceError if it cannot be read.
    """
    source = source_of(graph)
    topic, settings = state_topic(graph), client_options(source)
    preflight(source)
    if topic not in client_of(AdminClient, topic, settings).list_topics(timeout=TIMEOUT).topics:
        return m.RulesJournal()
    admin = Admin(topic, settings, TIMEOUT)
    records: defaultdict[int, list[Record]] = defaultdict(list)
    for batch in Reader(topic, settings).read(admin.offsets(admin.partitions())):
        rows = zip(*(batch.column(name).to_pylist() for name in ("partition", "key", "value")), strict=True)
        for partition, key, value in rows:
            if key.startswith(_PREFIX):
                records[partition].append((key, value))
    journals = {partition: Journal(partition) for partition in sorted(records)}
    for partition, journal in journals.items():
        deque(journal.read(records[partition]), maxlen=0)
    return m.RulesJournal(
        tuple(version for journal in journals.values() for version in journal.rows.versions),
        tuple(change for journal in journals.values() for change in journal.rows.changes),
    )


def _parts(entries: AbstractSet[str]) -> Iterator[tuple[str, ...]]:
    """Divide entries into parts that each fit in one record."""
    part: list[str] = []
    size = 0
    for entry in sorted(entries):
        part.append(entry)
        size += len(json.dumps(entry)) + 2
        if size > _ROW_BYTES:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)


def _plain(row: m.RulesVersion | m.ListChange) -> bytes:
    fields = asdict(row)
    del fields["partition"]
    return json.dumps(fields).encode()


def _decode(partition: int, value: bytes) -> m.RulesVersion | m.ListChange:
    fields = json.loads(value)
    if "rules" not in fields:
        lists = {name: tuple(fields[name]) for name in ("added", "removed")}
        return m.ListChange(**{**fields, **lists, "partition": partition})
    rules = tuple(m.Rule(**{**rule, "evidence": tuple(map(tuple, rule["evidence"]))}) for rule in fields["rules"])
    return m.RulesVersion(partition, fields["offset"], rules, m.Recent(**fields["recent"]), tuple(fields["lists"]))
