"""The Kafka sink. Each step is one transaction of one producer, and only the sink that was opened last can commit."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from windrow import model as m
from windrow.connectors.kafka.client import Admin, client_of, unreachable
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.producer import TransactionalProducer
from windrow.connectors.kafka.read import Reader
from windrow.connectors.kafka.rows import KafkaRecords
from windrow.connectors.kafka.subjects import check_schemas, register_schemas
from windrow.connectors.kafka.topics import COMPACTED, settings_of
from windrow.connectors.ownership import FoundTables, Origin, authorize, is_new, may_clear, still_opened, still_owned
from windrow.connectors.sink import Follows, Run, Sink
from windrow.connectors.tables import Table
from windrow.engine.changelog import StepOutput
from windrow.engine.schema import CLOCKS, NO_DEAD
from windrow.errors import RunError, SinkError, SinkUnavailableError, SourceError
from windrow.expressions import SinkSpec

_TRANSACTION_MS = 300_000
"""Maximum milliseconds for writing a step. An open transaction of a dead process blocks readers for this long."""
_COMMIT_SECONDS = 30.0
_GONE_SECONDS = 30.0
"""Maximum seconds to wait until a deleted topic no longer exists."""
_BATCH_BYTES = 1_000_000
"""The client's default for the maximum bytes of a batch (`batch.size`)."""
_OWNER = b"owner"
_STORED = pa.schema([field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in CLOCKS])
"""Schema of the clock journal's rows in JSON, with times in microseconds."""


@dataclass(frozen=True)
class _Written:
    """The owner record in a topic of clocks: the owning run, its last committed epoch, and its last opener.

    `opener` is the id of the sink that opened the topics last, and `fence` the transactional id under which it writes.
    `origin` is the origin of the topic's records, as JSON, and `form` their format and encoding. Both are None in
    topics of earlier versions.
    """

    pipeline: str
    run: str
    opener: str
    epoch: int | None
    fence: str
    origin: str | None = None
    form: str | None = None

    @property
    def owner(self) -> Run:
        return Run(self.pipeline, self.run)


class KafkaTopics(Sink):
    """Topics of changes in one cluster, each with companion topics for late output, dead letters and clocks.

    Exactly once, for readers with ``isolation.level=read_committed``: a step, its epoch and its rows of the clock
    journal are written in one transaction across all topics. The fence is the transactional id
    ``windrow-TOPIC.clocks``, where TOPIC is the first of the topics in alphabetical order. Opening the topics aborts
    the open transaction of another process and fences that process. Unlike the transactional ids of the realtime host,
    this id does not end in a number, so neither fences the other. If the topics were last opened under a different id,
    because a sink has since been removed, that id is fenced as well. The last epoch is read from ``TOPIC.clocks``, a
    compacted topic, so the outcome of an uncertain commit is known when the topics are next opened. A topic contains
    the records of one run.

    A transaction is written by a single producer, so the driver writes all rows.
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
        self.close()
        with _of_topics(self._first):
            # checked before another process is fenced
            self._authorize(run, follows)
            encoders = list(map(register_schemas, self._specs))
            for sink in self._sinks:
                self._create(sink)
            limits = [limits_of(spec.sink) for spec in self._specs]
            self._records = list(map(KafkaRecords, self._specs, limits, encoders))
            producer = self._take_over(self._fence, limits)
            self._producer = producer
            # the ids under which the topics were opened last
            owners = [_read_clocks(sink)[0] for sink in self._sinks]
            for former in {owner.fence for owner in owners if owner is not None} - {self._fence}:
                self._take_over(former).abandon()
            self._last = self._authorize(run, follows)
            self._run = run
            producer.begin()
            self._write_owner(producer, run, self._last)
            producer.commit()
        return self._last

    def _take_over(self, fence: str, limits: Sequence[Mapping[str, int]] = ()) -> TransactionalProducer:
        """Start a producer under a transactional id, which fences the previous producer with this id."""
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

    def _authorize(self, run: Run, follows: Follows | None) -> int | None:
        """Return the last epoch of the run, or of the run that it follows; raise SinkError if it may not write."""
        lasts = []
        for sink, origin in zip(self._sinks, self._origins, strict=True):
            written, found = self._find(sink, run)
            if self._run == run and written is not None and written.run == run.id:
                still_opened(self._id, written.opener, sink.topic)
            is_handed_over = authorize(
                run, [Table(name, pa.schema([])) for name in _topics(sink)], found, follows, origin
            )
            if written is not None and written.form not in {None, _form(sink)}:
                msg = (
                    f"topic {sink.topic} has records with {written.form}, and the sink now has {_form(sink)}: undo the "
                    "change, choose another topic, or start over with --fresh"
                )
                raise SinkError(msg)
            lasts.append(found.owner_last if is_handed_over else found.last)
        if len(set(lasts)) > 1:
            msg = f"the topics of pipeline {self._pipeline!r} are at different steps, {lasts}: start over with --fresh"
            raise SinkError(msg)
        return lasts[0]

    def _find(self, sink: m.KafkaSink, run: Run) -> tuple[_Written | None, FoundTables]:
        present = _existing_topics(_admin(sink), sink)
        written, _ = _read_clocks(sink) if sink.companion("clocks") in present else (None, [])
        filled = []
        if written is None:
            for name in present:
                topic = Admin(name, client_options(sink), TIMEOUT)
                if any(first < end for first, end in topic.offsets(topic.partitions()).values()):
                    filled.append(name)
        owner = None if written is None else written.owner
        epoch = None if written is None else written.epoch
        last = epoch if owner == run else None
        origin = Origin.read(None if written is None else written.origin)
        return written, FoundTables(owner, epoch, last, None, present, filled, origin)

    def _create(self, sink: m.KafkaSink) -> None:
        admin = _admin(sink)
        there = _existing_topics(admin, sink)
        # as many partitions as the broker has by default
        topics = [NewTopic(name, config=settings) for name, settings in settings_of(sink).items()]
        topics.append(NewTopic(sink.companion("clocks"), 1, config=COMPACTED))
        new = [topic for topic in topics if topic.topic not in there]
        deadline = time.monotonic() + _GONE_SECONDS
        while new:
            left = []
            for topic, (name, answer) in zip(new, admin.create_topics(new).items(), strict=True):
                try:
                    answer.result(TIMEOUT)
                except KafkaException as exc:
                    error = exc.args[0]
                    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS and time.monotonic() < deadline:
                        # the broker still lists a topic that is being deleted
                        if name not in _existing_topics(admin, sink):
                            left.append(topic)
                            time.sleep(0.1)
                        continue
                    raise _refused(sink, error, f"topic {name} cannot be created") from exc
            new = left

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise the errors of `open`, except those for missing permissions to create or write topics."""
        with _of_topics(self._first):
            self._authorize(run, follows)
            for spec in self._specs:
                check_schemas(spec)

    def journal(self) -> pa.Table:
        with _of_topics(self._first):
            there = _existing_topics(_admin(self._first), self._first)
            rows = _read_clocks(self._first)[1] if self._first.companion("clocks") in there else []
        return pa.Table.from_pylist(rows, _STORED).cast(CLOCKS)

    def clear(self) -> None:
        """Delete the topics; raise SinkError if they belong to another pipeline."""
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
        # the topic of clocks, with the owner, is the last
        for name in _existing_topics(admin, sink):
            deleted: Future[None] = admin.delete_topics([name])[name]
            try:
                deleted.result(TIMEOUT)
            except KafkaException as exc:
                if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise _refused(sink, exc.args[0], f"topic {name} cannot be deleted") from exc
        deadline = time.monotonic() + _GONE_SECONDS
        while there := _existing_topics(admin, sink):
            if time.monotonic() > deadline:
                msg = f"the broker at {sink.servers} has not deleted {', '.join(there)}: try again"
                raise SinkUnavailableError(msg)
            time.sleep(0.05)

    def commit(self, epoch: int, *outputs: StepOutput) -> list[pa.Table]:
        """Write a step. After an error, opening the sink again determines whether the step was committed."""
        producer, run = self._producer, self._run
        if producer is None or run is None:
            msg = "the sink is not open"
            raise SinkError(msg)
        refused: list[list[pa.Table]] = [[NO_DEAD] for _ in self._sinks]
        with _of_topics(self._first):
            if not is_new(epoch, self._last, self._first.topic):
                return [NO_DEAD for _ in self._sinks]
            try:
                producer.begin()
                for records, sink, output, letters in zip(self._records, self._sinks, outputs, refused, strict=True):
                    for record in records.of(output, letters):
                        producer.send(record.topic, record.key, record.value, record.headers)
                    if output.clocks.num_rows:
                        key, value = f"{epoch:020d}", json.dumps(output.clocks.cast(_STORED).to_pylist())
                        producer.send(sink.companion("clocks"), key.encode(), value.encode(), partition=0)
                self._write_owner(producer, run, epoch)
                producer.commit(_COMMIT_SECONDS)
            except BaseException:
                # the next opening finds out whether it was committed
                self.close()
                raise
        self._last = epoch
        return [pa.concat_tables(letters) for letters in refused]

    def _write_owner(self, producer: TransactionalProducer, run: Run, epoch: int | None) -> None:
        for sink, origin in zip(self._sinks, self._origins, strict=True):
            written = _Written(self._pipeline, run.id, self._id, epoch, self._fence, origin.text(), _form(sink))
            producer.send(sink.companion("clocks"), _OWNER, json.dumps(vars(written)).encode(), partition=0)

    def _fenced(self) -> RunError:
        """Return the error for a fenced writer.

        It was fenced by another process of its own run, by a run that took over, or by the broker's time limit.
        """
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
        """Disconnect and abort an open transaction."""
        if self._producer is not None:
            self._producer.abandon()
            self._producer = None


def limits_of(sink: m.Sink) -> dict[str, int]:
    """Return the maximum bytes of a record for each topic of a sink."""
    if not isinstance(sink, m.KafkaSink):
        raise TypeError(sink)
    topics = [sink.topic, sink.companion("late"), sink.companion("dead")]
    return {topic: Admin(topic, client_options(sink), TIMEOUT).most_bytes() for topic in topics}


def batches_within(*limits: Mapping[str, int]) -> dict[str, int]:
    """Return the client setting that keeps batches below the limits of all topics."""
    return {"batch.size": min([_BATCH_BYTES, *(most for limit in limits for most in limit.values())])}


def _topics(sink: m.KafkaSink) -> list[str]:
    return [sink.topic, *(sink.companion(name) for name in ("late", "dead", "clocks"))]


def _form(sink: m.KafkaSink) -> str:
    """Return the format and the encoding of a topic's records as a pipeline file has them."""
    encoding = "" if sink.encoding is None else f", encoding: {sink.encoding.section}"
    return f"format: {sink.format}{encoding}"


def _read_clocks(sink: m.KafkaSink) -> tuple[_Written | None, list[dict[str, Any]]]:
    """Read a topic of clocks: its owner record, and the journal's rows ordered by epoch, partition and offset."""
    topic, settings = sink.companion("clocks"), client_options(sink)
    span = Admin(topic, settings, TIMEOUT).offsets([0])[0]
    written, journal = None, {}
    for batch in Reader(topic, settings).read({0: span}):
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            if key == _OWNER:
                written = _Written(**json.loads(value))
            else:
                journal[key] = json.loads(value)
    rows = [
        row
        for _, rows in sorted(journal.items())
        for row in sorted(rows, key=itemgetter("partition", "offset", "reason"))
    ]
    return written, rows


def _admin(sink: m.KafkaSink) -> AdminClient:
    return client_of(AdminClient, sink.topic, {**client_options(sink), "error_cb": lambda _: None})


def _existing_topics(admin: AdminClient, sink: m.KafkaSink) -> list[str]:
    """Return those topics of a sink that exist; raise SinkUnavailableError if no broker answers."""
    try:
        known = admin.list_topics(timeout=TIMEOUT).topics
    except KafkaException as exc:
        raise SinkUnavailableError(unreachable(sink.servers, [exc.args[0]])) from exc
    return [name for name in _topics(sink) if name in known]


def _refused(sink: m.KafkaSink, error: KafkaError, what: str) -> SinkError:
    """Convert an error to a SinkError; an error of the client itself is transient, because no broker answered."""
    if error.code() < 0:
        return SinkUnavailableError(unreachable(sink.servers, [error]))
    return SinkError(f"{what}: {error.str()}; grant CREATE and DELETE on it, or do it yourself")


@contextmanager
def _of_topics(sink: m.KafkaSink) -> Iterator[None]:
    """Replace "table" with "topic" in messages, and convert errors of sources to errors of sinks."""
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
