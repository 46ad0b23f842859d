"""The events of a log, in the order in which they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.core.schema import MICROS, RAW
from windrow.testing.generator.pace import Pace
from windrow.testing.generator.records import KINDS, key_bytes, render
from windrow.testing.generator.spec import Made, Spec

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

CHUNK = 131_072
"""Records in a batch, at the most."""

_MINUTE = 60_000_000
_LATE_FROM, _LATE_TO = 2 * _MINUTE, 90 * _MINUTE
_RESENT_AFTER = 1_000_000
"""Microseconds after which a record comes again, in the mean, if there is no disorder to say so."""


@dataclass(frozen=True)
class Events:
    """Columns of events; `time` and `arrival` in milliseconds, `kind` 0 for a good record or one of `KINDS`, from 1."""

    user: Longs
    time: Longs
    arrival: Longs
    cents: Longs
    kind: Longs
    late: Mask
    duplicate: Mask

    def take(self, rows: Longs | slice) -> Events:
        """Return some of the events."""
        return Events(
            self.user[rows],
            self.time[rows],
            self.arrival[rows],
            self.cents[rows],
            self.kind[rows],
            self.late[rows],
            self.duplicate[rows],
        )

    @property
    def made(self) -> Made:
        """Count them."""
        return Made(len(self.user), int(self.late.sum()), int(np.count_nonzero(self.kind)), int(self.duplicate.sum()))


def generate(spec: Spec) -> Iterator[pa.RecordBatch]:
    """Yield the log in the order of arrival, in batches of `windrow.core.schema.RAW` over all partitions.

    Offsets count up from 0 in each partition; `log_time` is the time of arrival, in whole milliseconds.
    """
    return (batch for batch, _ in counted(spec, None))


def counted(spec: Spec, pace: Pace | None) -> Iterator[tuple[pa.RecordBatch, Made]]:
    """Yield batches and what is in them: the spec's own time at once, or as `pace` asks."""
    offsets = np.zeros(spec.partitions, dtype=np.int64)
    for events in _whole(spec) if pace is None else _paced(spec, pace):
        yield _batch(spec, events, offsets), events.made


def _whole(spec: Spec) -> Iterator[Events]:
    rng = np.random.default_rng(spec.seed)
    time = spec.start // 1000 + rng.integers(0, spec.duration // 1000, spec.events)
    events = _events(spec, rng, time, arrival=None)
    order = np.argsort(events.arrival, kind="stable")
    for at in range(0, len(order), CHUNK):
        yield events.take(order[at : at + CHUNK])


def _paced(spec: Spec, pace: Pace) -> Iterator[Events]:
    rng = np.random.default_rng(spec.seed)
    for count, now in pace.portions(spec.events):
        arrival = np.full(count, now // 1000)
        events = _events(spec, rng, arrival, arrival=arrival)
        for at in range(0, len(events.user), CHUNK):
            yield events.take(slice(at, at + CHUNK))


def _events(spec: Spec, rng: np.random.Generator, time: Longs, arrival: Longs | None) -> Events:
    """Make an event for each of the times. If they are to arrive at given times, their own are moved back."""
    count = len(time)
    user = rng.integers(0, spec.users, count)
    user[rng.random(count) < spec.hot_key_share] = 0
    late = rng.random(count) < spec.late_share
    micros = rng.exponential(spec.disorder, count) + late * rng.uniform(_LATE_FROM, _LATE_TO, count)
    delay = micros.astype(np.int64) // 1000
    malformed = rng.random(count) < spec.malformed_share
    events = Events(
        user=user,
        time=time if arrival is None else time - delay,
        arrival=time + delay if arrival is None else arrival,
        cents=np.clip(rng.lognormal(7.0, 1.0, count), 1, 99_999_999).astype(np.int64),
        kind=np.where(malformed, rng.integers(1, len(KINDS) + 1, count), 0),
        late=late,
        duplicate=np.zeros(count, dtype=bool),
    )
    again = np.flatnonzero(rng.random(count) < spec.duplicate_share)
    if not len(again):
        return events
    copies = events.take(again)
    if arrival is None:
        copies.arrival[:] += rng.exponential(max(spec.disorder, _RESENT_AFTER), len(again)).astype(np.int64) // 1000
    copies.duplicate[:] = True
    columns = {name: np.concatenate([getattr(events, name), getattr(copies, name)]) for name in vars(events)}
    return Events(**columns)


def _batch(spec: Spec, events: Events, offsets: Longs) -> pa.RecordBatch:
    """Write events as records, and count `offsets` (the next one of each partition) up."""
    partition = events.user % spec.partitions
    order = np.argsort(partition, kind="stable")
    counts = np.bincount(partition, minlength=spec.partitions)
    offset = np.empty(len(partition), dtype=np.int64)
    offset[order] = (
        np.arange(len(partition)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(offsets, counts)
    )
    offsets += counts
    users = key_bytes(spec.users).take(pa.array(events.user))
    return pa.record_batch(
        [
            pa.array(partition.astype(np.int32)),
            pa.array(offset),
            pa.array(events.arrival * 1000).cast(MICROS),
            users,
            render(users, events.time, events.cents, events.kind, events.arrival if spec.log_time else None),
        ],
        schema=RAW,
    )
