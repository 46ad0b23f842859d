"""Mappings of names to SQL texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from windrow.api.yaml.fields import Fields
from windrow.api.yaml.spot import Spot

T = TypeVar("T")


def read_texts(spot: Spot, parse: Callable[[str], T]) -> tuple[tuple[str, T], ...]:
    """Read a mapping of texts; raise PipelineError, with file:line, for those that `parse` refuses."""
    fields = Fields(spot)
    entries = list(fields)
    read = []
    cut = False
    for (name, entry), (_, after) in zip(entries, [*entries[1:], ("", None)], strict=False):
        if cut and entry.is_null:
            continue  # told already, with the beginning
        cut = _is_open(entry) and after is not None and after.is_null
        if cut:
            msg = f'{entry.called}: a comma ends a value within {{...}}; put the text in quotes: "f(a, b)"'
            fields.problem(entry.error(msg))
        else:
            read.append((name, fields.attempt(lambda entry: entry.parsed(parse), entry)))
    fields.check()
    return tuple((name, value.value) for name, value in read)


def _is_open(spot: Spot) -> bool:
    return spot.is_scalar and spot.node.value.count("(") > spot.node.value.count(")")
