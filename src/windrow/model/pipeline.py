"""The whole of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow.model.aggregate import Aggregate
from windrow.model.decode import Decode
from windrow.model.derive import Derive
from windrow.model.emit import Emit
from windrow.model.sink import Sink
from windrow.model.source import Source
from windrow.model.time import EventTime
from windrow.model.window import Window

DEFAULT_KEY_GROUPS = 8


@dataclass(frozen=True)
class Pipeline:
    """From a log to a table: what is read, what it means, and where it goes.

    `key_groups` is how many parts the keys (and the state) fall into; it is the upper bound of parallelism and stays
    as it is for a pipeline's life. `derive` adds fields to the decoded ones. `salt` spreads each key's records over so
    many key groups before they come together, which is for keys with a large part of all records.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    key: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    emit: Emit
    sink: Sink
    key_groups: int = DEFAULT_KEY_GROUPS
    derive: tuple[Derive, ...] = ()
    salt: int = 1

    @property
    def at_end(self) -> Literal["fire", "hold"]:
        """What a bounded run does with what is still open when the input ends."""
        return self.emit.at_end
