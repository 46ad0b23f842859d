"""Lists of values that rules use: files are read once at the start of a run, topics by their sources."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from windrow import model as m
from windrow.errors import InputError


def with_entries(graph: m.Graph, read_topic: Callable[[m.TopicList], Iterable[str]] | None = None) -> m.Graph:
    """Return a pipeline that contains the entries of its lists, so that other machines do not need the files.

    Without `read_topic`, lists in topics are not changed. Raise InputError if a file cannot be read.
    """

    def read(rule_list: m.RuleList) -> m.RuleList:
        if isinstance(rule_list, m.FileList):
            return replace(rule_list, entries=tuple(sorted(_entries(rule_list))))
        return rule_list if read_topic is None else replace(rule_list, entries=tuple(sorted(read_topic(rule_list))))

    return with_lists_of(graph, map(read, lists_of(graph)))


def lists_of(graph: m.Graph) -> tuple[m.RuleList, ...]:
    """Return all lists that a graph's rules use."""
    return tuple(rule_list for node in graph.rules for rule_list in node.rules.lists)


def with_lists_of(graph: m.Graph, lists: Iterable[m.RuleList]) -> m.Graph:
    """Replace the lists of a graph's rules with lists of the same names."""
    by_name = {rule_list.name: rule_list for rule_list in lists}

    def replace_lists(node: m.Node) -> m.Node:
        if not isinstance(node, m.RulesNode) or not node.rules.lists:
            return node
        return replace(node, rules=replace(node.rules, lists=tuple(by_name[old.name] for old in node.rules.lists)))

    return graph.map_nodes(replace_lists)


def read_entries(lists: Iterable[m.RuleList]) -> dict[str, frozenset[str]]:
    """Map the name of each list to its entries; raise InputError if a file cannot be read or a topic was not read."""
    return {rule_list.name: _entries(rule_list) for rule_list in lists}


def list_problems(graph: m.Graph) -> Iterator[tuple[str, str]]:
    """Yield (configuration key, error message) for each list whose file cannot be read on this machine."""
    for rule_list in lists_of(graph):
        if isinstance(rule_list, m.FileList):
            try:
                _entries(rule_list)
            except InputError as exc:
                is_column = rule_list.column is not None and Path(rule_list.path).is_file()
                yield f"lists.{rule_list.name}.{'key' if is_column else 'file'}", exc.message


def _entries(rule_list: m.RuleList) -> frozenset[str]:
    if rule_list.entries is not None:
        return frozenset(rule_list.entries)
    name = rule_list.name
    if isinstance(rule_list, m.TopicList):
        msg = f"the list {name!r}: topic {rule_list.topic} was not read; run the pipeline with `windrow run`"
        raise InputError(msg)
    path, column = rule_list.path, rule_list.column
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            if column is None:
                return frozenset(filter(None, (line.strip() for line in file)))
            rows = csv.DictReader(file)
            if column not in (rows.fieldnames or ()):
                names = ", ".join(rows.fieldnames or ()) or "none"
                msg = f"the list {name!r}: {path} has no column {column!r}; its columns are {names}"
                raise InputError(msg)
            return frozenset(filter(None, ((row[column] or "").strip() for row in rows)))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        msg = f"the list {name!r}: {path} cannot be read: {why}"
        raise InputError(msg) from exc
