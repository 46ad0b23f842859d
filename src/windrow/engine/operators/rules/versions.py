"""Versions of rules and of lists: a record is judged by those in force at its partition and offset.

That is so for all of its judgements, including those caused by a late record or the next one. So the findings are a
function of the log and of the journal (`windrow.model.RulesJournal`) alone, whenever a judgement is made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine.columns import distinct
from windrow.engine.lists import read_entries
from windrow.engine.operators.rules.histories import Places
from windrow.engine.operators.rules.judge import Judge, rule_hash
from windrow.expressions import RulesSpec
from windrow.expressions.rules import uses_next

_NEVER = 2**63 - 1


class Entries:
    """The entries of a pipeline's lists: those of the journal, or of the list in partitions without a journal."""

    def __init__(self, spec: RulesSpec) -> None:
        self._constant = read_entries(spec.node.rules.lists)
        self._moves: defaultdict[tuple[str, int], dict[str, list[int]]] = defaultdict(dict)
        """By list and partition, the offsets at which each entry was added and removed in turn."""
        self.add(spec.node.rules.journal.changes)

    def add(self, changes: Iterable[m.ListChange]) -> None:
        """Add changes of lists, in the order of offsets."""
        for change in changes:
            moves = self._moves[change.list, change.partition]
            for entries, is_there in ((change.removed, True), (change.added, False)):
                for entry in entries:
                    offsets = moves.setdefault(entry, [])
                    if (len(offsets) % 2 == 1) == is_there:
                        offsets.append(change.offset)

    def contain(self, name: str, values: pa.Array, partitions: Places, offsets: Places) -> pa.Array:
        """Return whether values are in a list for the records at some places; null where the value is null."""
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
    """Rules with their hashes, whether they see the next record, and their judge."""

    rules: m.RulesVersion
    hashes: tuple[str, ...]
    judge: Judge
    sees_next: bool


class Versions:
    """The versions of a pipeline's rules.

    `last` and `within` are the greatest of all versions; `sees_next` is true if any version uses `next`.
    """

    def __init__(self, spec: RulesSpec) -> None:
        rules = spec.node.rules
        self._entries = Entries(spec)
        self._places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """By partition, the first offset of each version, and its number."""
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
        """Add changes of lists, in force for records to come."""
        self._entries.add(changes)

    def numbers(self, partitions: Places, offsets: Places) -> Places:
        """Return the number in `all` of the version that judges each record."""
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
        return Version(version, tuple(map(rule_hash, version.rules)), judge, any(map(uses_next, version.rules)))
