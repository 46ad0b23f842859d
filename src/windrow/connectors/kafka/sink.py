"""The Kafka sink: each step in one transaction of one producer, which only the last opener's can commit."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from windrow import model as m
from windrow.connectors.kafka import STAMPED
from windrow.connectors.kafka.client import Admin, client_of, unreachable
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.producer import TransactionalProducer
from windrow.connectors.kafka.read import Reader
from windrow.connectors.kafka.rows import KafkaRecords
from windrow.connectors.kafka.topics import COMPACTED
from windrow.connectors.ownership import FoundTables, Origin, authorize, is_new, may_clear, still_opened, still_owned
from windrow.connectors.sink import Follows, Run
from windrow.connectors.tables import Table
from windrow.engine.changelog import StepOutput
from windrow.engine.schema import CLOCKS
from windrow.errors import RunError, SinkError, SinkUnavailableError, SourceError
from windrow.expressions import SinkSpec

_TRANSACTION_MS = 300_000
"""Milliseconds in which a step is written; an open transaction of a process that died holds readers up that long."""
_COMMIT_SECONDS = 30.0
_GONE_SECONDS = 30.0
"""Seconds in which a topic that is deleted is gone."""
_BATCH_BYTES = 1_000_000
"""Bytes of the records that the client sends in one batch if nothing else is said (`batch.size`)."""
_OWNER = b"owner"
_STORED = pa.schema([field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in CLOCKS])
"""Rows of the clock journal in JSON: times are microseconds."""


@dataclass(frozen=True)
class _Written:
    """The owner record of a topic of clocks: the run, the last epoch that it committed, and its last opener.

    `opener` is the id of the sink that opened the topics last, and `fence` the transactional id under which it writes.
    `origin` is what the topic's records are made of, as `Origin` writes it.
    """

    pipeline: str
    run: str
    opener: str
    epoch: int | None
    fence: str
    origin: str | None = None

    @property
    def owner(self) -> Run:
        return Run(self.pipeline, self.run)


class KafkaTopics:
    """Topics of changes at one cluster, each with its companions for late output, dead letters and clocks.

    Exactly once for readers with ``isolation.level=read_committed``: a step, its number and its rows of the clock
    journal are one transaction over all topics. The transactional id ``windrow-TOPIC.clocks``, of the topic that sorts
    first, is the fence: to open the topics is to abort what another process has left open, and what that one commits
    later is refused. Unlike the ids of the realtime host it ends in no number, so neither fences the other. The id
    under which the topics were opened last is fenced too: it is another one if a sink was removed. The number of the
    last step is read from ``TOPIC.clocks``, a compacted topic, so a commit whose outcome was not heard of is known at
    the next opening. A topic takes records of one run.

    One producer writes a transaction, so the driver writes all rows.
    """

    needs_rows = True
    is_even = True

    def __init__(self, *specs: SinkSpec) -> None:
        self._specs = specs
        self._origins = [Origin.of(spec) for spec in specs]
        self._records: list[KafkaRecords] = []
        self._sinks: list[m.KafkaSink] = [spec.sink for spec in specs if isinstance(spec.sink, m.KafkaSink)]
        self._pipeline = specs[0].pipeline
        self._first = self._sinks[0]
        self._id = str(uuid.uuid4())
        self._fence = f"windrow-{min(self._sinks, key=lambda sink: sink.topic).companion('clocks')}"
        self._run: Run | None = None
        self._last: int | None = None
        self._producer: TransactionalProducer | None = None

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Create what is missing; return the last epoch that this run committed, or None.

        Raise SinkError if the brokers cannot be reached or refuse, or if a topic holds another run's records.
        """
        self.close()
        with _of_topics(self._first):
            # what would be refused is looked at before another process is fenced
            self._authorize(run, follows)
            for sink in self._sinks:
                self._create(sink)
            limits = [limits_of(spec.sink) for spec in self._specs]
            self._records = [KafkaRecords(spec, one) for spec, one in zip(self._specs, limits, strict=True)]
            producer = self._take_over(self._fence, limits)
            self._producer = producer
            for former in self._fences() - {self._fence}:
                self._take_over(former).abandon()
            self._last = self._authorize(run, follows)
            self._run = run
            producer.begin()
            self._write_owner(producer, run, self._last)
            producer.commit()
        return self._last

    def _take_over(self, fence: str, limits: Sequence[Mapping[str, int]] = ()) -> TransactionalProducer:
        """Return a producer under a transactional id, which has fenced the one before."""
        settings = {"compression.type": "lz4", "linger.ms": 20, "partitioner": "murmur2_random"}
        producer = TransactionalProducer(
            self._first.topic,
            settings | batches_within(*limits) | client_options(self._first),
            fence,
            what=f"topic {self._first.topic}",
            fenced=self._fenced,
            timeout=_TRANSACTION_MS,
        )
        producer.start()
        return producer

    def _fences(self) -> set[str]:
        """Return the transactional ids under which the topics were opened last."""
        written = [_read_clocks(sink)[0] for sink in self._sinks]
        return {one.fence for one in written if one is not None}

    def _authorize(self, run: Run, follows: Follows | None) -> int | None:
        """Return the last epoch of the run, or of the one that it follows; raise SinkError if it may not write."""
        lasts = []
        for sink, origin in zip(self._sinks, self._origins, strict=True):
            written, found = self._find(sink, run)
            if self._run == run and written is not None and written.run == run.id:
                still_opened(self._id, written.opener, sink.topic)
            is_handed_over = authorize(run, _tables(sink), found, follows, origin)
            lasts.append(found.owner_last if is_handed_over else found.last)
        if len(set(lasts)) > 1:
            msg = f"the topics of pipeline {self._pipeline!r} are at different steps, {lasts}: start over with --fresh"
            raise SinkError(msg)
        return lasts[0]

    def _find(self, sink: m.KafkaSink, run: Run) -> tuple[_Written | None, FoundTables]:
        present = _there(_admin(sink), sink)
        written, _ = _read_clocks(sink) if sink.companion("clocks") in present else (None, [])
        filled = []
        if written is None:
            for name in present:
                one = Admin(name, client_options(sink), TIMEOUT)
                if any(first < end for first, end in one.offsets(one.partitions()).values()):
                    filled.append(name)
        owner = None if written is None else written.owner
        epoch = None if written is None else written.epoch
        last = epoch if owner == run else None
        origin = Origin.read(None if written is None else written.origin)
        return written, FoundTables(owner, epoch, last, None, present, filled, origin)

    def _create(self, sink: m.KafkaSink) -> None:
        admin = _admin(sink)
        there = _there(admin, sink)
        clocks = sink.companion("clocks")
        new = [
            # as many partitions as the broker has by default
            NewTopic(name, 1, config=COMPACTED) if name == clocks else NewTopic(name, config=STAMPED)
            for name in _topics(sink)
            if name not in there
        ]
        deadline = time.monotonic() + _GONE_SECONDS
        while new:
            left = []
            for one, (name, made) in zip(new, admin.create_topics(new).items(), strict=True):
                try:
                    made.result(TIMEOUT)
                except KafkaException as exc:
                    error = exc.args[0]
                    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS and time.monotonic() < deadline:
                        # of one that is being deleted the broker says that it is there
                        if name not in _there(admin, sink):
                            left.append(one)
                            time.sleep(0.1)
                        continue
                    raise _refused(sink, error, f"topic {name} cannot be created") from exc
            new = left

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise what `open` would raise, but for topics that may not be created or written."""
        with _of_topics(self._first):
            self._authorize(run, follows)

    def journal(self) -> pa.Table:
        """Return the clock journal of the first topic, by epoch; whoever wrote it."""
        with _of_topics(self._first):
            there = _there(_admin(self._first), self._first)
            rows = _read_clocks(self._first)[1] if self._first.companion("clocks") in there else []
        return pa.Table.from_pylist(rows, _STORED).cast(CLOCKS)

    def clear(self) -> None:
        """Delete the topics, for a fresh start; raise SinkError if they are not the pipeline's."""
        self.close()
        self._run = None
        with _of_topics(self._first):
            for sink in self._sinks:
                _, found = self._find(sink, Run(self._pipeline, ""))
                may_clear(self._pipeline, sink.topic, found)
            for sink in self._sinks:
                self._delete(sink)

    def _delete(self, sink: m.KafkaSink) -> None:
        admin = _admin(sink)
        # what says whose they are goes last
        for name in _there(admin, sink):
            deleted: Future[None] = admin.delete_topics([name])[name]
            try:
                deleted.result(TIMEOUT)
            except KafkaException as exc:
                if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise _refused(sink, exc.args[0], f"topic {name} cannot be deleted") from exc
        deadline = time.monotonic() + _GONE_SECONDS
        while there := _there(admin, sink):
            if time.monotonic() > deadline:
                msg = f"the broker at {sink.servers} has not deleted {', '.join(there)}: try again"
                raise SinkUnavailableError(msg)
            time.sleep(0.05)

    def commit(self, epoch: int, *outputs: StepOutput) -> None:
        """Write a step, an output for each topic in order; an epoch that is already there changes nothing.

        After an error the sink has to be opened again, which finds out whether the step was committed.
        """
        producer, run = self._producer, self._run
        if producer is None or run is None:
            msg = "the sink is not open"
            raise SinkError(msg)
        with _of_topics(self._first):
            if not is_new(epoch, self._last, self._first.topic):
                return
            try:
                producer.begin()
                for records, sink, output in zip(self._records, self._sinks, outputs, strict=True):
                    for record in records.of(output):
                        producer.send(record.topic, record.key, record.value, record.headers)
                    if output.clocks.num_rows:
                        key, value = f"{epoch:020d}", json.dumps(output.clocks.cast(_STORED).to_pylist())
                        producer.send(sink.companion("clocks"), key.encode(), value.encode(), partition=0)
                self._write_owner(producer, run, epoch)
                producer.commit(_COMMIT_SECONDS)
            except BaseException:
                # whether it was committed is known at the next opening
                self.close()
                raise
        self._last = epoch

    def _write_owner(self, producer: TransactionalProducer, run: Run, epoch: int | None) -> None:
        for sink, origin in zip(self._sinks, self._origins, strict=True):
            written = _Written(self._pipeline, run.id, self._id, epoch, self._fence, origin.text())
            producer.send(sink.companion("clocks"), _OWNER, json.dumps(vars(written)).encode(), partition=0)

    def _fenced(self) -> RunError:
        """Return the error for a writer that is fenced: by its own run, by one that took over, or by the time limit."""
        try:
            for sink in self._sinks:
                written, _ = _read_clocks(sink)
                if self._run is not None and written is not None:
                    still_owned(self._run, written.owner, sink.topic)
                    still_opened(self._id, written.opener, sink.topic)
        except SinkError as error:
            return error
        except SourceError as error:
            return SinkUnavailableError(str(error))
        msg = (
            f"the transaction of topic {self._first.topic} was ended by the broker, after its time limit, or by "
            "another process"
        )
        return SinkUnavailableError(msg)

    def close(self) -> None:
        """Leave the broker; what is not committed is aborted."""
        if self._producer is not None:
            self._producer.abandon()
            self._producer = None


def limits_of(sink: m.Sink) -> dict[str, int]:
    """Return the bytes that a record of a sink's topics can have, by topic."""
    if not isinstance(sink, m.KafkaSink):
        raise TypeError(sink)
    topics = [sink.topic, sink.companion("late"), sink.companion("dead")]
    return {topic: Admin(topic, client_options(sink), TIMEOUT).most_bytes() for topic in topics}


def batches_within(*limits: Mapping[str, int]) -> dict[str, int]:
    """Return the client's setting by which a topic takes several records at once wherever it takes each of them."""
    return {"batch.size": min([_BATCH_BYTES, *(most for limit in limits for most in limit.values())])}


def _topics(sink: m.KafkaSink) -> list[str]:
    return [sink.topic, *(sink.companion(name) for name in ("late", "dead", "clocks"))]


def _tables(sink: m.KafkaSink) -> list[Table]:
    return [Table(name, pa.schema([])) for name in _topics(sink)]


def _read_clocks(sink: m.KafkaSink) -> tuple[_Written | None, list[dict[str, Any]]]:
    """Read the topic of clocks: who has written up to where, and the rows of the journal by epoch and place."""
    topic, settings = sink.companion("clocks"), client_options(sink)
    span = Admin(topic, settings, TIMEOUT).offsets([0])[0]
    written, journal = None, {}
    for batch in Reader(topic, settings).read({0: span}):
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            if key == _OWNER:
                written = _Written(**json.loads(value))
            else:
                journal[key] = json.loads(value)
    rows = [row for _, rows in sorted(journal.items()) for row in sorted(rows, key=_place)]
    return written, rows


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["partition"], row["offset"], row["reason"]


def _admin(sink: m.KafkaSink) -> AdminClient:
    return client_of(AdminClient, sink.topic, {**client_options(sink), "error_cb": lambda _: None})


def _there(admin: AdminClient, sink: m.KafkaSink) -> list[str]:
    """Return which of a sink's topics there are; raise SinkUnavailableError if no broker answers."""
    try:
        known = admin.list_topics(timeout=TIMEOUT).topics
    except KafkaException as exc:
        raise SinkUnavailableError(unreachable(sink.servers, [exc.args[0]])) from exc
    return [name for name in _topics(sink) if name in known]


def _refused(sink: m.KafkaSink, error: KafkaError, what: str) -> SinkError:
    """Return the error of an answer: it passes if it is the client's own, as no broker has answered then."""
    if error.code() < 0:
        return SinkUnavailableError(unreachable(sink.servers, [error]))
    return SinkError(f"{what}: {error.str()}; grant CREATE and DELETE on it, or do it yourself")


@contextmanager
def _of_topics(sink: m.KafkaSink) -> Iterator[None]:
    """Have errors of the rules for tables speak of topics, and those of a reader be those of a sink."""
    try:
        yield
    except SinkError as error:
        said = str(error)
        if "table" not in said:
            raise
        raise type(error)(said.replace("tables", "topics").replace("table", "topic")) from error
    except SourceError as error:
        kind = SinkUnavailableError if error.passes else SinkError
        msg = f"the topics of {sink.topic}: {error}"
        raise kind(msg) from error
