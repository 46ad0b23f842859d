"""Triggers of early panes, each by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow.api.checks.durations import too_long
from windrow.api.checks.finding import Finding, error
from windrow.api.checks.plain_functions import not_plain
from windrow.model import AllOf, AnyOf, Every, Pipeline, Records, Repeat, Trigger, When

_FEWEST = 2


def triggers(pipeline: Pipeline) -> Iterator[Finding]:
    """Counts are at least 1, times longer than nothing, compositions of two triggers or more, functions plain ones."""
    if pipeline.emit.early is not None:
        yield from _trigger("emit.early", pipeline.emit.early)


def _trigger(where: str, trigger: Trigger) -> Iterator[Finding]:
    match trigger:
        case Every(micros):
            if micros <= 0:
                yield error(f"{where}.every", "must be longer than nothing, such as 30s")
            yield from too_long(f"{where}.every", micros)
        case Records(number):
            if number < 1:
                yield error(f"{where}.count", f"must be 1 or more, not {number}")
        case AnyOf(parts):
            yield from _parts(f"{where}.any_of", parts)
        case AllOf(parts):
            yield from _parts(f"{where}.all_of", parts)
        case Repeat(part, times):
            yield from _trigger(f"{where}.repeat.trigger", part)
            if times < 1:
                yield error(f"{where}.repeat.times", f"must be 1 or more, not {times}")
        case When(predicate):
            yield from _predicate(f"{where}.when", predicate)
        case _:
            assert_never(trigger)


def _predicate(where: str, predicate: object) -> Iterator[Finding]:
    if why := not_plain(predicate):
        yield error(where, f"{why}; it returns whether a pane is due")


def _parts(where: str, parts: tuple[Trigger, ...]) -> Iterator[Finding]:
    if len(parts) < _FEWEST:
        yield error(where, f"has {len(parts)} trigger{'' if len(parts) == 1 else 's'}; give {_FEWEST} or more")
    for index, part in enumerate(parts):
        yield from _trigger(f"{where}.{index}", part)
