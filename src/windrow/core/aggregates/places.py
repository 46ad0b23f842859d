"""The first, the last, and the first of the values in an order of the records.

A value travels with its record's place in that order, which no other record has.
"""

from __future__ import annotations

from typing import Literal

from windrow.core.aggregates.fold import Accumulator, Fold, Input
from windrow.core.aggregates.shown import json_array
from windrow.core.duck import identifier
from windrow.core.records import OFFSET, PARTITION, TIME

_PLACES = {
    "time": f"t: {TIME}, p: {PARTITION}, o: {OFFSET}",
    "log": f"p: {PARTITION}, o: {OFFSET}",
}


def at_an_end(name: str, column: str, of: Input, *, by: Literal["time", "log"], call: Literal["min", "max"]) -> Fold:
    """Keep the value of the first (min) or last (max) record."""
    begin = f"{call}({{{_PLACES[by]}, v: {of.sql}}}){of.given}"
    return Fold(name, (Accumulator(column, begin, call),), f"{identifier(column)}.v")


def collect_list(name: str, column: str, of: Input, most: int) -> Fold:
    """Keep the first `most` values in the order of event time."""
    begin = f"min({{{_PLACES['time']}, v: {of.sql}}}, {most}){of.given}"
    merge = Accumulator(column, begin, "list", f"list_sort(flatten({{}}))[:{most}]")
    values = f"list_transform({identifier(column)}, lambda e: e.v)"
    return Fold(name, (merge,), json_array(values, of))
