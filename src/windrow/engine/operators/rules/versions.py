"""The rules and the entries of lists that are in force for a record: those when it was read, by partition and offset.

A record is judged by these whenever it is judged, also again because another one came late, or is the next one. So
what a judgement finds is a function of the log and of the journal (`windrow.model.RulesJournal`) alone, whenever it is
made.
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
    """The entries of a pipeline's lists: those of the journal, and in a partition that it does not know, the list's."""

    def __init__(self, spec: RulesSpec) -> None:
        self._constant = read_entries(spec.node.rules.lists)
        self._moves: defaultdict[tuple[str, int], dict[str, list[int]]] = defaultdict(dict)
        """By list and partition, of each entry the offsets at which it came and went in turn."""
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
        """Return whether values are in a list for the records at some places; null where the value is."""
        encoded = values.dictionary_encode()
        texts = list(map(str, encoded.dictionary.to_pylist()))
        codes = encoded.indices.fill_null(len(texts)).to_numpy()
        found = np.zeros(len(codes), dtype=np.bool_)
        for partition in distinct(partitions):
            rows = np.flatnonzero(partitions == partition)
            moves = self._moves.get((name, partition))
            if moves is None:
                # rules of before can name a list that is gone, and never had an entry
                known = [text in self._constant.get(name, ()) for text in texts]
                found[rows] = np.array([*known, False])[codes[rows]]
                continue
            listed = [moves.get(text, [_NEVER]) for text in texts]
            found[rows] = np.array([one[0] for one in listed] + [_NEVER])[codes[rows]] <= offsets[rows]
            for code in (number for number, one in enumerate(listed) if len(one) > 1):
                some = rows[codes[rows] == code]
                found[some] = np.searchsorted(listed[code], offsets[some], side="right") % 2 == 1
        return pa.array(found, mask=codes == len(texts))


@dataclass(frozen=True)
class Version:
    """Rules with their hashes, what they see, and the judge that evaluates them."""

    rules: m.RulesVersion
    hashes: tuple[str, ...]
    judge: Judge
    sees_next: bool


class Versions:
    """The versions of a pipeline's rules.

    `last` and `within` are what the widest of them looks back; `sees_next` is whether one of them uses `next`.
    """

    def __init__(self, spec: RulesSpec) -> None:
        rules = spec.node.rules
        self._entries = Entries(spec)
        self._places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """By partition, the offset from which a version is in force, and its number."""
        given: dict[m.RulesVersion, None] = {}
        for version in rules.journal.versions:
            given[replace(version, partition=0, offset=0)] = None
            self._places[version.partition].append(
                (version.offset, list(given).index(replace(version, partition=0, offset=0)))
            )
        own = m.RulesVersion.of(rules)
        given[own] = None
        self._own = list(given).index(own)
        self.all = tuple(self._version(spec, one) for one in given)
        self.last = max(one.recent.last for one in given)
        self.within = max(one.recent.within for one in given)
        self.sees_next = any(one.sees_next for one in self.all)
        self.fields = tuple(dict.fromkeys(name for one in self.all for name in one.judge.fields))

    def add(self, changes: Iterable[m.ListChange]) -> None:
        """Add changes of lists that are in force for records to come."""
        self._entries.add(changes)

    def numbers(self, partitions: Places, offsets: Places) -> Places:
        """Return the number in `all` of the version that judges each of some records."""
        found = np.full(len(partitions), self._own)
        if len(self.all) > 1:
            for partition, places in self._places.items():
                rows = np.flatnonzero(partitions == partition)
                begins, numbers = np.array(places).T
                found[rows] = numbers[np.maximum(np.searchsorted(begins, offsets[rows], side="right") - 1, 0)]
        return found

    def _version(self, spec: RulesSpec, one: m.RulesVersion) -> Version:
        lists = tuple(m.FileList(name, "", entries=()) for name in one.lists)
        rules = replace(spec.node.rules, rules=one.rules, recent=one.recent, lists=lists)
        judge = Judge(replace(spec, node=replace(spec.node, rules=rules)), self._entries.contain)
        return Version(one, tuple(map(rule_hash, one.rules)), judge, any(map(uses_next, one.rules)))
