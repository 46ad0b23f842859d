"""The sections that say what a pipeline means, apart from where it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from windrow.api.yaml.aggregate import read_aggregates
from windrow.api.yaml.emit import read_emit
from windrow.api.yaml.fields import Fields, Read
from windrow.api.yaml.key import read_names
from windrow.api.yaml.spot import Spot
from windrow.api.yaml.time import read_time
from windrow.api.yaml.window import read_window
from windrow.model import Aggregate, Emit, EventTime, Window

SECTION_KEYS = ("time", "key", "window", "aggregate", "emit")


@dataclass(frozen=True)
class Sections:
    """What a story's `pipeline` holds; whether its fields exist and fit is for `validate` to say."""

    time: EventTime
    key: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    emit: Emit


@dataclass(frozen=True)
class SectionsRead:
    """The sections while other keys of the same mapping are still being read."""

    time: Read[EventTime]
    key: Read[tuple[str, ...]]
    window: Read[Window]
    aggregates: Read[tuple[Aggregate, ...]]
    emit: Read[Emit]


def read_sections(node: yaml.Node, file: str) -> Sections:
    """Read a mapping of `time`, `key`, `window`, `aggregate` and perhaps `emit`.

    Raise PipelineError, with file:line, for whatever is wrong with it (all of it at once).
    """
    fields = Fields(Spot(node, file), SECTION_KEYS)
    read = section_fields(fields)
    fields.check()
    return Sections(read.time.value, read.key.value, read.window.value, read.aggregates.value, read.emit.value)


def section_fields(fields: Fields) -> SectionsRead:
    """Read the sections of a mapping that may have other keys too."""
    return SectionsRead(
        time=fields.required("time", read_time),
        key=fields.required("key", read_names),
        window=fields.required("window", read_window),
        aggregates=fields.required("aggregate", read_aggregates),
        emit=fields.optional("emit", read_emit, Emit()),
    )
