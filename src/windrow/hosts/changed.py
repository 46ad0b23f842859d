"""What has changed in a pipeline that goes on from a savepoint: what each change means, and what cannot be changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from windrow.hosts.meaning import FREE, Meaning
from windrow.model import parse_duration

_NOTHING = "nothing"


@dataclass(frozen=True)
class Change:
    """A field (its path in a pipeline file) that is another now; `means` is None if it cannot be."""

    field: str
    there: Any
    here: Any
    means: str | None

    @property
    def text(self) -> str:
        """What it was, what it is, and what that means."""
        told = f"{self.field}: {_text(self.there)} there, {_text(self.here)} here"
        return told if self.means is None else f"{told}: {self.means}"


def changes(kept: Meaning, given: Meaning) -> list[Change]:
    """Return what differs between the pipeline of a savepoint and one that is to go on from it."""
    moved = set(_moved(kept, given))
    return [replace(one, means=None) if one.field in moved else one for one in _changes(kept, given, ())]


def _moved(kept: Meaning, given: Meaning) -> Iterator[str]:
    """Go through the fields that are decoded where they were derived, or the other way: another value by one name."""
    for there, here in (("decode", "derive"), ("derive", "decode")):
        for name in kept.get(there, {}).keys() & given.get(here, {}).keys():
            yield from (f"{there}.{name}", f"{here}.{name}")


def _changes(kept: Any, given: Any, path: tuple[str, ...]) -> Iterator[Change]:  # noqa: ANN401 - plain JSON
    if path in _ORDERED and list(kept or ()) != list(given or ()):
        yield Change(".".join(path), kept, given, None)
    if path in FREE or kept == given:
        return
    rule = _rule(path)
    if rule is not None:
        yield Change(".".join(path), kept, given, rule(kept, given))
    elif isinstance(kept, dict | None) and isinstance(given, dict | None) and path not in _WHOLE:
        before, after = kept or {}, given or {}
        for name in dict.fromkeys([*before, *after]):
            yield from _changes(before.get(name), after.get(name), (*path, name))
    else:
        yield Change(".".join(path), kept, given, None)


_WHOLE = {("key",), ("window",), ("time", "delay"), ("emit", "early")}
"""Fields that are told as one."""

_ORDERED = {("process", "state"), ("process", "returns")}
"""Where the order of the names is that of the columns in the state."""

_Rule = Callable[[Any, Any], str | None]


def _lateness(there: str, here: str) -> str:
    if parse_duration(here) > parse_duration(there):
        return "windows that are forgotten by now stay so, and their records expire; the others wait longer"
    return "windows that are late by more are forgotten in the first step"


def _aggregate(there: str | None, here: str | None) -> str | None:
    if there is None:
        return (
            "a new column; a window that is open, or can still be revised, counts in it what comes from here on, and "
            "rows that are not written again have null"
        )
    return "it is counted no more; drop its columns from the tables" if here is None else None


def _field(there: Any, here: Any) -> str | None:  # noqa: ANN401 - plain JSON
    if there is None:
        return "a record from here on is a dead letter if its value is not good"
    if here is None:
        return "it is read no more"
    types = [one["type"] if isinstance(one, dict) else one for one in (there, here)]
    return "true from the next record on" if types[0] == types[1] else None


_RULES: dict[tuple[str, ...], _Rule] = {
    ("key_groups",): lambda _, __: "the states are split and joined; no answer changes",
    ("salt",): lambda _, __: "records are spread in another way; no answer changes",
    ("time", "delay"): lambda _, __: "true from the next record on; no watermark goes back",
    ("time", "punctuated"): lambda _, __: "true from the next record on; no watermark goes back",
    ("time", "future"): lambda _, __: "true from the next record on; what is a dead letter stays one",
    ("time", "idle"): lambda _, __: "true from the next tick on; who is idle now stays so until its next record",
    ("time", "all_idle"): lambda _, __: "true from the next tick on; the low watermark does not go back",
    ("emit", "lateness"): _lateness,
    ("process", "function"): lambda _, __: "it is called from the next record on, with the state that is there",
    ("process", "on_timer"): lambda _, __: "it is called for timers from here on, also for those that are set",
    ("process", "on_processing_timer"): lambda _, __: "it is called for timers from here on, also for those set",
}


def _rule(path: tuple[str, ...]) -> _Rule | None:
    match path:
        case ("aggregate", _):
            return _aggregate
        case ("decode" | "derive", _):
            return _field
        case _:
            return _RULES.get(path)


def _text(value: Any) -> str:  # noqa: ANN401 - plain JSON
    return _NOTHING if value is None else json.dumps(value)
