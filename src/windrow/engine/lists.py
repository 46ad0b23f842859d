"""Lists of rules: the entries of a file, read once, at the start of a run; those of a topic are read by its source."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from windrow import model as m
from windrow.errors import InputError


def with_entries(graph: m.Graph, read_topic: Callable[[m.TopicList], Iterable[str]] | None = None) -> m.Graph:
    """Return a pipeline with the entries of its lists in it, so that other machines need not have the files.

    Without `read_topic` lists in topics stay as they are. Raise InputError for a file that cannot be read.
    """

    def known(one: m.RuleList) -> m.RuleList:
        if isinstance(one, m.FileList):
            return replace(one, entries=tuple(sorted(_entries(one))))
        return one if read_topic is None else replace(one, entries=tuple(sorted(read_topic(one))))

    return with_lists_of(graph, [known(one) for one in lists_of(graph)])


def lists_of(graph: m.Graph) -> tuple[m.RuleList, ...]:
    """Return the lists of the rules of a graph."""
    return tuple(one for node in graph.rules for one in node.rules.lists)


def with_lists_of(graph: m.Graph, lists: Iterable[m.RuleList]) -> m.Graph:
    """Return a graph with other lists of the same names."""
    named = {one.name: one for one in lists}
    return graph.map_nodes(lambda node: _with_lists(node, named))


def _with_lists(node: m.Node, lists: Mapping[str, m.RuleList]) -> m.Node:
    if not isinstance(node, m.RulesNode) or not node.rules.lists:
        return node
    return replace(node, rules=replace(node.rules, lists=tuple(lists[one.name] for one in node.rules.lists)))


def read_entries(lists: Iterable[m.RuleList]) -> dict[str, frozenset[str]]:
    """Return the entries of each list; raise InputError for a file that cannot be read, or a topic that was not."""
    return {one.name: _entries(one) for one in lists}


def list_problems(graph: m.Graph) -> Iterator[tuple[str, str]]:
    """Yield where a list of a pipeline is said whose file cannot be read on this machine, and why."""
    for one in lists_of(graph):
        if isinstance(one, m.FileList):
            try:
                _entries(one)
            except InputError as exc:
                is_there = one.column is not None and Path(one.path).is_file()
                yield f"lists.{one.name}.{'key' if is_there else 'file'}", exc.message


def _entries(given: m.RuleList) -> frozenset[str]:
    if given.entries is not None:
        return frozenset(given.entries)
    if isinstance(given, m.TopicList):
        msg = f"the list {given.name!r}: topic {given.topic} was not read; run the pipeline with `windrow run`"
        raise InputError(msg)
    try:
        with Path(given.path).open(encoding="utf-8-sig", newline="") as file:
            if given.column is None:
                return frozenset(filter(None, (line.strip() for line in file)))
            rows = csv.DictReader(file)
            if given.column not in (rows.fieldnames or ()):
                names = ", ".join(rows.fieldnames or ()) or "none"
                msg = f"the list {given.name!r}: {given.path} has no column {given.column!r}; its columns are {names}"
                raise InputError(msg)
            return frozenset(filter(None, ((row[given.column] or "").strip() for row in rows)))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        msg = f"the list {given.name!r}: {given.path} cannot be read: {why}"
        raise InputError(msg) from exc
