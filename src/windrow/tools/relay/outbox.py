"""Relay of an outbox: appends its rows to a log, each once, and deletes them.

Exactly once, whenever it dies: before a relay sends, the database has the ends of the log's partitions. The transaction
that deletes rows moves them behind the records of these rows. So the record of a row that the outbox has is behind them
or nowhere. The relay that comes next reads the log from there on, and finds what was sent by its mark. Rows are sent in
the order of their ids, and those of a key to one partition: in each of them, all up to the last one found were sent.

One relay at a time: the outbox is locked in the database. The appender of the next one, which has the same identity,
fences one that was cut off from the database and does not know it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from zlib import crc32

import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.open_sources import open_appender, open_source
from windrow.connectors.postgres.outbox import Outbox, OutboxLag, OutboxRow, Sending, open_outbox
from windrow.connectors.source import Appender, NewRecord, Source
from windrow.errors import InputError, RunError, SourceError
from windrow.runtime.stream.following import RetryPolicy

Target = m.LogSource | m.KafkaSource
"""The log that rows are sent to."""
OnReport = Callable[[int, OutboxLag], None]
PREFIX: Final = b'{"_relay":"'
"""The first bytes of every record that a relay sends."""
BATCH: Final = 5_000
"""Number of rows that are sent at a time."""
_OPEN_SECONDS = 90.0
"""How long to wait for transactions of other producers that were open when a relay died."""


def outbox_sink(graph: m.Graph, table: str | None) -> m.PostgresSink:
    """Return the sink with an outbox that writes a table; None is the only one. Raise InputError if there is none."""
    sinks = [node.sink for node in graph.sinks]
    found = {sink.table: sink for sink in sinks if isinstance(sink, m.PostgresSink) and sink.outbox}
    if not found:
        msg = f"no sink of pipeline {graph.name!r} has an outbox: set `outbox: true` at a sink `postgres`"
        raise InputError(msg)
    if table is None and len(found) == 1:
        return next(iter(found.values()))
    if table is None or table not in found:
        msg = f"{'several tables' if table is None else f'not {table!r}, but these tables'} of pipeline "
        msg += f"{graph.name!r} have an outbox: choose one with --table {' or --table '.join(found)}"
        raise InputError(msg)
    return found[table]


@contextmanager
def open_relay(sink: m.PostgresSink, target: Target) -> Iterator[Relay]:
    """Open the relay of a sink's outbox to a log; one that died before is completed first.

    Raise SinkError if another relay has the outbox, InputError if one that died was sending to another log, and the
    errors of the sink and the log.
    """
    with open_outbox(sink) as rows:
        source = open_source(target)
        before = rows.sending()
        if before is not None and before.target != _address(target):
            msg = (
                f"a relay of {rows.table!r} to {before.target} was interrupted, and some of its rows may be there: "
                "run it once more to that target, with --until-empty"
            )
            raise InputError(msg)
        sending = before
        if sending is None:
            ends = {partition: end for partition, (_, end) in source.ends().items()}
            sending = Sending(_address(target), uuid.uuid4().hex[:12], ends)
            rows.begin(sending)
        with open_appender(target, f"windrow-relay-{sending.relay}", PREFIX) as appender:
            sent = {} if before is None else _sent(source, target, before)
            relay = Relay(rows, appender, sending, sent)
            yield relay
        if relay.is_settled:
            rows.end()


class Relay:
    """Sends rows of an outbox, in the order of their ids."""

    def __init__(self, rows: Outbox, appender: Appender, sending: Sending, sent: dict[int, int]) -> None:
        self._rows, self._appender = rows, appender
        self._mark = _mark(sending)
        self._begins = dict(sending.begins)
        self._partitions = sorted(sending.begins)
        self._sent = sent

    @property
    def is_settled(self) -> bool:
        """Whether the outbox has no rows that the relay before has sent."""
        return not self._sent

    def send(self) -> int:
        """Send and delete the next rows; return how many these were, 0 if the outbox is empty."""
        rows = self._rows.rows(BATCH)
        if not rows:
            self._sent = {}
            return 0
        new: dict[int, list[NewRecord]] = {}
        for row in rows:
            partition = self._partitions[crc32(row.key.encode()) % len(self._partitions)]
            if row.id > self._sent.get(partition, 0):
                new.setdefault(partition, []).append(self._record(row))
        offsets = self._appender.append(new)
        self._begins.update({partition: max(those) + 1 for partition, those in offsets.items()})
        self._rows.delete(rows[-1].id, self._begins)
        self._sent = {partition: last for partition, last in self._sent.items() if last > rows[-1].id}
        return len(rows)

    def lag(self) -> OutboxLag:
        """Return how much waits to be sent."""
        return self._rows.lag()

    def _record(self, row: OutboxRow) -> NewRecord:
        # the payload is an object that is not empty: each change has an op
        return NewRecord(row.key.encode(), b"%b%d,%b" % (self._mark, row.id, row.payload[1:].encode()))


def run(
    sink: m.PostgresSink,
    target: Target,
    *,
    until_empty: bool,
    every: float,
    stop: threading.Event,
    report: float,
    on_report: OnReport,
    on_trouble: Callable[[str], None],
) -> int:
    """Send the rows of a sink's outbox until `stop` is set, or the outbox is empty; return how many were sent.

    Looks into an empty outbox every `every` seconds, and calls `on_report` with the rows sent and the lag, at the end
    and every `report` seconds. After an error that may pass, `on_trouble` is called with it, and the relay is opened
    again, as a run tries again; what cannot be opened at first is raised at once, as `open_relay` does.
    """
    retries = RetryPolicy()
    rounds, total, due = 0, 0, time.monotonic() + report
    while True:
        try:
            with open_relay(sink, target) as relay:
                while not stop.is_set():
                    count = relay.send()
                    rounds, total = rounds + 1, total + count
                    if time.monotonic() >= due:
                        on_report(total, relay.lag())
                        due = time.monotonic() + report
                    if count == 0:
                        if until_empty:
                            break
                        stop.wait(every)
                on_report(total, relay.lag())
                return total
        except RunError as exc:
            pause = retries.after(rounds) if exc.passes and rounds and not stop.is_set() else None
            if pause is None:
                raise
            on_trouble(f"{exc}; trying again in {pause:g} s")
            stop.wait(pause)


def _mark(sending: Sending) -> bytes:
    """Return what the records of a relay begin with, before the id of their row."""
    return b'%b%b","_outbox":' % (PREFIX, sending.relay.encode())


def _sent(source: Source, target: Target, before: Sending) -> dict[int, int]:
    """Return the last row that a relay sent to each partition of which it may not have deleted the rows."""
    ends = source.ends() if isinstance(target, m.LogSource) else _settled_ends(source, target)
    mark = _mark(before)
    found: dict[int, int] = {}
    for partition, begin in before.begins.items():
        first, end = ends.get(partition, (0, 0))
        if not first <= begin <= end:
            msg = (
                f"partition {partition} of {before.target} had offset {begin} when a relay was interrupted, and has "
                f"{first} to {end} now: what it sent is not known. Compare the log with the outbox, delete from the "
                f"outbox what was sent, and the row in windrow_relays; then run the relay again"
            )
            raise SourceError(msg)
        for batch in source.read_from(partition, begin):
            values = batch.column("value")
            own = values.filter(pc.starts_with(values, mark))
            ids = [int(value[len(mark) :].partition(b",")[0]) for value in own.to_pylist()]
            if ids:
                found[partition] = max(found.get(partition, 0), *ids)
    return found


def _settled_ends(source: Source, target: m.KafkaSource) -> dict[int, tuple[int, int]]:
    """Return the ends of a topic when all that it has now can be read; another producer may have it open."""
    from windrow.connectors.kafka.source import log_ends  # noqa: PLC0415 - librdkafka only for a topic

    wanted, until = log_ends(target), time.monotonic() + _OPEN_SECONDS
    pause = threading.Event()
    while True:
        ends = source.ends()
        if all(ends[partition][1] >= end for partition, end in wanted.items()):
            return ends
        if time.monotonic() > until:
            msg = (
                f"a producer has had a transaction open in {_address(target)} for {_OPEN_SECONDS:.0f} s, behind which "
                "nothing can be read: end it, then run the relay again"
            )
            raise SourceError(msg)
        pause.wait(0.2)


def _address(target: Target) -> str:
    match target:
        case m.LogSource(path=path):
            return str(Path(path).absolute())
        case m.KafkaSource(servers=servers, topic=topic):
            return f"kafka://{servers}/{topic}"
