"""Relay of an outbox: appends its rows to a log, each exactly once, and deletes them.

Delivery is exactly once even if the relay is killed. Before a relay sends rows, it stores the end offsets of the log's
partitions in the database. The transaction that deletes rows advances these offsets past the records of the rows. So if
a row is still in the outbox, its record lies after the stored offsets or was not sent. The next relay reads the log
from these offsets and recognizes the records of the previous relay by its mark. Rows are sent in order of their ids,
and all rows of a key go to the same partition. So in each partition all rows up to the last one found were sent.

Only one relay runs at a time, because it locks the outbox in the database. The next relay's appender has the same
identity, which fences off a relay that has lost its connection to the database without noticing.
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
"""The log that receives the rows."""
OnReport = Callable[[int, OutboxLag], None]
PREFIX: Final = b'{"_relay":"'
"""The first bytes of every record that a relay sends."""
BATCH: Final = 5_000
"""Number of rows that are sent at a time."""
_OPEN_SECONDS = 90.0
"""Longest wait for transactions of other producers that were open when a relay died."""


def outbox_sink(graph: m.Graph, table: str | None) -> m.PostgresSink:
    """Return the sink that writes `table` and has an outbox; `table` may be None if there is only one such sink.

    Raise InputError if there is no such sink.
    """
    sinks = [node.sink for node in graph.sinks]
    found = {sink.table: sink for sink in sinks if isinstance(sink, m.PostgresSink) and sink.outbox}
    if not found:
        msg = f"no sink of pipeline {graph.name!r} has an outbox: set `outbox: true` in a `postgres` sink"
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
    """Open a relay from a sink's outbox to a log, and find out what an interrupted relay has sent.

    Raise SinkError if another relay holds the outbox, and InputError if an interrupted relay was sending to another
    log. Errors of the sink and the log propagate.
    """
    with open_outbox(sink) as rows:
        source = open_source(target)
        before = rows.sending()
        if before is not None and before.target != _address(target):
            msg = (
                f"a relay of {rows.table!r} to {before.target} was interrupted, and some of its rows may be there "
                "already: run it again to that target with --until-empty"
            )
            raise InputError(msg)
        sending = before
        if sending is None:
            ends = {partition: end for partition, (_, end) in source.ends().items()}
            sending = Sending(_address(target), uuid.uuid4().hex[:12], ends)
            rows.begin(sending)
        with open_appender(target, f"windrow-relay-{sending.relay}", PREFIX) as appender:
            relay = Relay(rows, appender, sending, {} if before is None else _read_sent(source, target, before))
            yield relay
        if not relay.sent_before:
            rows.end()


class Relay:
    """Sends rows of an outbox in order of their ids.

    `sent_before` maps each partition to the id of the last row that the previous relay sent to it but did not delete.
    """

    def __init__(self, rows: Outbox, appender: Appender, sending: Sending, sent_before: dict[int, int]) -> None:
        self.rows = rows
        self.sent_before = sent_before
        self._appender = appender
        self._mark = _mark(sending)
        self._begins = dict(sending.begins)
        self._partitions = sorted(sending.begins)

    def send(self) -> int:
        """Send and delete the next rows; return their number, which is 0 if the outbox is empty."""
        rows = self.rows.rows(BATCH)
        if not rows:
            self.sent_before = {}
            return 0
        new: dict[int, list[NewRecord]] = {}
        for row in rows:
            partition = self._partitions[crc32(row.key.encode()) % len(self._partitions)]
            if row.id > self.sent_before.get(partition, 0):
                new.setdefault(partition, []).append(self._record(row))
        offsets = self._appender.append(new)
        self._begins.update({partition: max(new_offsets) + 1 for partition, new_offsets in offsets.items()})
        self.rows.delete(rows[-1].id, self._begins)
        self.sent_before = {partition: last for partition, last in self.sent_before.items() if last > rows[-1].id}
        return len(rows)

    def lag(self) -> OutboxLag:
        """Return the number of rows left to send and the age of the oldest."""
        return self.rows.lag()

    def _record(self, row: OutboxRow) -> NewRecord:
        # the payload is a non-empty object: each change has an op
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
    """Send the rows of a sink's outbox until `stop` is set, or with `until_empty` until the outbox is empty.

    Return the number of rows sent. An empty outbox is read again every `every` seconds. `on_report` is called with the
    number of rows sent and the lag, every `report` seconds and at the end. After a transient error `on_trouble` is
    called with a message, and the relay is opened again after a pause. If the first attempt to open it fails, the error
    is raised as by `open_relay`.
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
    """Return the prefix of a relay's records, up to the id of the row."""
    return b'%b%b","_outbox":' % (PREFIX, sending.relay.encode())


def _read_sent(source: Source, target: Target, before: Sending) -> dict[int, int]:
    """Map each partition to the id of the last row that a previous relay sent to it and may not have deleted."""
    ends = source.ends() if isinstance(target, m.LogSource) else _settled_ends(source, target)
    mark = _mark(before)
    found: dict[int, int] = {}
    for partition, begin in before.begins.items():
        first, end = ends.get(partition, (0, 0))
        if not first <= begin <= end:
            msg = (
                f"partition {partition} of {before.target} had offset {begin} when a relay was interrupted, and now "
                f"has {first} to {end}, so it is unknown which rows were sent. Compare the log with the outbox, delete "
                f"the sent rows from the outbox and the row in windrow_relays; then run the relay again"
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
    """Return the ends of a topic once all its current records can be read.

    Open transactions of other producers can delay this.
    """
    from windrow.connectors.kafka.source import log_ends  # noqa: PLC0415 - librdkafka only for a topic

    wanted, until = log_ends(target), time.monotonic() + _OPEN_SECONDS
    pause = threading.Event()
    while True:
        ends = source.ends()
        if all(ends[partition][1] >= end for partition, end in wanted.items()):
            return ends
        if time.monotonic() > until:
            msg = (
                f"a producer has had a transaction open in {_address(target)} for {_OPEN_SECONDS:.0f} s, and nothing "
                "after it can be read: end the transaction, then run the relay again"
            )
            raise SourceError(msg)
        pause.wait(0.2)


def _address(target: Target) -> str:
    match target:
        case m.LogSource(path=path):
            return str(Path(path).absolute())
        case m.KafkaSource(servers=servers, topic=topic):
            return f"kafka://{servers}/{topic}"
