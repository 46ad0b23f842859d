"""The sections that say what a pipeline means, apart from where it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from windrow.api.yaml.aggregate import read_aggregates
from windrow.api.yaml.derive import read_derive
from windrow.api.yaml.emit import read_emit
from windrow.api.yaml.fields import Fields, Read
from windrow.api.yaml.key import Key, read_key
from windrow.api.yaml.spot import Spot
from windrow.api.yaml.time import read_time
from windrow.api.yaml.window import read_window
from windrow.model import Aggregate, Derive, Emit, EventTime, Window

SECTION_KEYS = ("derive", "time", "key", "window", "aggregate", "emit", "salt")


@dataclass(frozen=True)
class Sections:
    """What a story's `pipeline` holds; whether its fields exist and fit is for `validate` to say."""

    time: EventTime
    key: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    emit: Emit
    derive: tuple[Derive, ...] = ()
    salt: int = 1


@dataclass(frozen=True)
class SectionsRead:
    """The sections while other keys of the same mapping are still being read."""

    derive: Read[tuple[Derive, ...]]
    time: Read[EventTime]
    key: Read[Key]
    window: Read[Window]
    aggregates: Read[tuple[Aggregate, ...]]
    emit: Read[Emit]
    salt: Read[int]

    @property
    def value(self) -> Sections:
        """What they hold, once the mapping they stand in is checked."""
        return Sections(
            time=self.time.value,
            key=self.key.value.names,
            window=self.window.value,
            aggregates=self.aggregates.value,
            emit=self.emit.value,
            derive=self.derive.value + self.key.value.derive,
            salt=self.salt.value,
        )


def read_sections(node: yaml.Node, file: str) -> Sections:
    """Read a mapping of `time`, `key`, `window`, `aggregate` and perhaps `derive`, `emit` and `salt`.

    Raise PipelineError, with file:line, for whatever is wrong with it (all of it at once).
    """
    fields = Fields(Spot(node, file), SECTION_KEYS)
    read = section_fields(fields)
    fields.check()
    return read.value


def section_fields(fields: Fields) -> SectionsRead:
    """Read the sections of a mapping that may have other keys too."""
    return SectionsRead(
        derive=fields.optional("derive", read_derive, ()),
        time=fields.required("time", read_time),
        key=fields.required("key", read_key),
        window=fields.required("window", read_window),
        aggregates=fields.required("aggregate", read_aggregates),
        emit=fields.optional("emit", read_emit, Emit()),
        salt=fields.optional("salt", Spot.number, 1),
    )
