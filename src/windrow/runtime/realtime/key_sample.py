"""Samples of a topic's last records, to detect that the topic is not partitioned by the pipeline's key.

Each partition is processed independently, so the records of a key that occurs in two partitions are not combined. A run
cannot compare all keys, but if a topic is partitioned by something else, a few records of each partition show it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.kafka.source import KafkaTopic
from windrow.engine.columns import unpack
from windrow.engine.messages import Records
from windrow.engine.operators.ingest import Ingest
from windrow.engine.schema import PARTITION
from windrow.errors import SourceError
from windrow.runtime.realtime.topics import source_of

_SAMPLE = 1000
"""Number of records sampled from each partition."""
_EVERY = 60.0
"""Seconds between two samples of a run, until a key is found in two partitions."""


@dataclass(frozen=True)
class KeySample:
    """A sample of keys: the number of distinct `keys`, and the number that occur in two or more partitions (`met`)."""

    keys: int
    met: int

    @property
    def text(self) -> str:
        """A warning about the keys that occur in more than one partition."""
        return (
            f"{self.met:,} of {self.keys:,} keys in the last {_SAMPLE:,} records of each partition are in two "
            "or more partitions, and each partition counts the key separately; partition the topic by the key"
        )


def sample_keys(graph: m.Graph) -> KeySample:
    """Read the last records of each partition and count their keys; raise SourceError if they cannot be read.

    Keys that a stream derives are not counted, as the source does not have them.
    """
    topic = KafkaTopic(source_of(graph), has_headers=graph.sources[0].reads_headers)
    names = list(graph.partition_key)
    ends = {number: (max(first, end - _SAMPLE), end) for number, (first, end) in topic.ends().items()}
    found = []
    for packet in Ingest(replace(graph, key_groups=1)).run(topic.read_ranges(ends)):
        if isinstance(packet.message, Records):
            records = unpack(packet.message.blob)
            if {*names} <= {*records.column_names}:
                found.append(records.select([*names, PARTITION]))
    if not found or not names:
        return KeySample(0, 0)
    counted = pa.concat_tables(found).group_by(names).aggregate([(PARTITION, "count_distinct")])
    met = pc.sum(pc.greater(counted.column(f"{PARTITION}_count_distinct"), 1)).as_py()
    return KeySample(counted.num_rows, met or 0)


class KeyWatch:
    """Samples the topic of a run periodically, and warns once if keys occur in more than one partition."""

    def __init__(self, graph: m.Graph, on_warning: Callable[[str], None]) -> None:
        self._pipeline = graph
        self._on_warning = on_warning
        self._looked: float | None = None
        self._has_warned = False

    def look(self) -> None:
        """Take a sample if one is due; if the topic cannot be read, wait for the next one."""
        now = time.monotonic()
        if self._has_warned or (self._looked is not None and now - self._looked < _EVERY):
            return
        self._looked = now
        with suppress(SourceError):
            found = sample_keys(self._pipeline)
            if found.met:
                self._has_warned = True
                self._on_warning(found.text)
