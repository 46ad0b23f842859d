"""Checks of values that are one of a few: how rows are emitted, the format of records, the end of a join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from windrow import model as m
from windrow.authoring.checks.places import place
from windrow.declare.findings import Finding, error
from windrow.errors import not_one_of

_MODEL = "windrow.model."


def choices(graph: m.Graph) -> Iterator[Finding]:
    """Each value whose type in the model is a `Literal` is one of its values, as YAML and SQL see to by themselves."""
    for node in graph.nodes:
        yield from (error(place(graph, node, where), message) for where, message in _wrong(node, ""))
    yield from (error(where, message) for where, message in _wrong(replace(graph, nodes=()), ""))


def _wrong(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Yield where a part of the model has a value that it cannot have, and what is said of it."""
    if isinstance(value, tuple):
        for number, one in enumerate(value):
            yield from _wrong(one, f"{where}.{getattr(one, 'name', number)}")
    elif is_dataclass(value) and type(value).__module__.startswith(_MODEL) and not isinstance(value, type):
        section = getattr(value, "section", None)
        where = where if section is None else f"{where}.{section}"
        known = _choices(type(value))
        for field in fields(value):
            # the rules of a set of rules are `rules` of a file
            path = where if where == field.name else f"{where}.{field.name}".removeprefix(".")
            given = getattr(value, field.name)
            options, others = known.get(field.name, ((), ()))
            if options and given not in options and not isinstance(given, others):
                yield path, not_one_of(given, options)
            else:
                yield from _wrong(given, path)


@cache
def _choices(kind: type) -> dict[str, tuple[tuple[Any, ...], tuple[type, ...]]]:
    """Return the values that fields of a class can have, and the classes of others, of fields with a `Literal`."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        parts = list(_parts(hint))
        options = tuple(value for part in parts if get_origin(part) is Literal for value in get_args(part))
        if options:
            found[name] = (options, tuple(part for part in parts if isinstance(part, type)))
    return found


def _parts(hint: object) -> Iterator[object]:
    """Yield the members of a union; of another type, itself."""
    if get_origin(hint) in {Union, UnionType}:
        for part in get_args(hint):
            yield from _parts(part)
    else:
        yield hint
