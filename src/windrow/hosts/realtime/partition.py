"""The loop of one partition: poll, step, and one Kafka transaction for changes, position and checkpoint.

A partition is a run of its own: all of its records' operators are here, with one key group, and its clock is the low
watermark. What it writes is a function of the partition's log: not of the polls, of the transactions, or of crashes.

* The transactional id of the partition is a fence: a run that begins aborts what the one before left open, and what
  that one writes later is refused.
* To begin is to restore the last complete checkpoint and to read the log from there. Up to the committed offset the
  operators run, but nothing is written: that was committed with the offset. Operators give the same in every cut of
  the log into steps, so a cut at the committed offset divides what they give into what was written and what was not.
* A transaction holds what was decided since the last one, the offset that it was decided at, and some records of the
  checkpoint that is being written. It is committed when its time has come, also if nothing was decided.

The wall clock decides when to commit, and is in the headers of changes; no operator reads it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from windrow.core.columns import MIN_TIME, to_micros
from windrow.core.operators.base import GroupOutput
from windrow.core.state.store import MemoryState
from windrow.errors import InputError, RunError, SinkUnavailableError
from windrow.expressions import sink_views
from windrow.hosts.memory import MemoryHost
from windrow.hosts.realtime.checkpoints import Checkpoints, meaning_of
from windrow.hosts.realtime.topics import group_of, sinks_of, source_of, state_topic
from windrow.model import Delay, KafkaSource, Runnable, as_graph
from windrow.sinks.kafka import Headers, KafkaRecord, KafkaRecords
from windrow.sources.kafka.client import Admin, client_of
from windrow.sources.kafka.options import TIMEOUT, client_options
from windrow.sources.kafka.read import Reader, Tail

POLL_SECONDS = 0.004
_POLL_RECORDS = 1000
"""A poll waits its whole time to gather so many."""
_BEHIND_RECORDS = 10_000
_CHECKPOINT_EVERY = 10.0
_CHECKPOINT_BYTES = 256 << 10
"""Of a checkpoint in one transaction."""
_POSITION_EVERY = 1.0
"""Seconds after which a position is committed at which nothing was decided."""
_BEGIN_SECONDS = 30.0
_CALL_SECONDS = 10.0
_TRANSACTION_MS = 10_000
"""After which a broker aborts what a task that was lost has left open."""


_ATTEMPTS = 5
"""Workers that may die one after the other without a commit."""


class FencedError(RunError):
    """Another task has begun to run the partition."""


@dataclass(frozen=True)
class Owner:
    """The task that runs a partition, committed with each offset: its run, and the number of its attempt.

    `advanced` is the last attempt that has committed a greater offset than the one before.
    """

    run: str
    attempt: int
    advanced: int = 0


@dataclass(frozen=True)
class Partition:
    """A partition of a pipeline's only source, and the task that runs it; serialized to that task."""

    pipeline: Runnable
    number: int
    owner: Owner

    @property
    def source(self) -> KafkaSource:
        """The topic that is read."""
        return source_of(self.pipeline)

    @property
    def commit(self) -> float:
        """Seconds between transactions."""
        return min(sink.commit for sink in sinks_of(self.pipeline)) / 1_000_000

    def open(self) -> PartitionRun:
        """Take over the partition, restore its state, and begin."""
        return PartitionRun(self)


class PartitionRun:
    """A partition that is run: `turn` goes once through the loop.

    Raise SourceUnavailableError or SinkUnavailableError for what may pass: the run is abandoned then, and opened again.
    """

    def __init__(self, job: Partition) -> None:
        self._job = job
        pipeline, number = job.pipeline, job.number
        # one key group: a small step must not be many smaller ones
        whole = replace(pipeline, key_groups=1)
        graph = as_graph(pipeline)
        settings = client_options(job.source)
        self._place = TopicPartition(job.source.topic, number)
        self._meaning = meaning_of(pipeline)
        self._host = MemoryHost(whole, [number])
        self._records = {name: KafkaRecords(view) for name, view in sink_views(graph).items()}
        watermark = graph.watermark_of(number)
        self._delay = watermark.micros if isinstance(watermark, Delay) else None
        self._partitions: dict[str, int] = {}
        self._state_topic = state_topic(pipeline)
        self._producer = client_of(
            Producer,
            job.source.topic,
            {
                **settings,
                "transactional.id": f"{group_of(pipeline)}-{number}",
                "transaction.timeout.ms": _TRANSACTION_MS,
                "linger.ms": 0,
                # a commit that finds the marks of the last one still being written asks again
                "retry.backoff.ms": 5,
                "reconnect.backoff.max.ms": 1000,
                "error_cb": lambda _: None,
            },
        )
        self._call(self._producer.init_transactions, _BEGIN_SECONDS)
        self._tail = Tail(job.source.topic, number, settings, group_of(pipeline))
        committed = self._tail.committed(TIMEOUT)
        self._owner = self._next_owner(committed)
        if committed is not None:
            # at once, so that a task that was fenced sees by whom
            self._call(self._producer.begin_transaction)
            self._end_transaction(committed.offset)
        self._checkpoints = Checkpoints(self._stored(settings))
        manifest = self._checkpoints.manifest
        stands = None if committed is None else committed.offset
        if (stands is None) != (manifest is None) or (stands or 0) < (0 if manifest is None else manifest.position):
            msg = (
                f"partition {number} of {job.source.topic}: the consumer group {group_of(pipeline)} stands at "
                f"{'no offset' if stands is None else stands}, and the state in {self._state_topic} at "
                f"{'none' if manifest is None else manifest.position}: one of the two was changed or has expired. Put "
                "it back, or give the pipeline another name"
            )
            raise InputError(msg)
        if manifest is None or stands is None:
            self.done = self._first(settings)
            self._tail.seek(self.done)
            # with the first offset that is committed, so that each offset has a state to go with
            self._checkpoints.begin(MemoryState(), self.done, self._meaning)
        else:
            self._require_same(manifest.meaning)
            self.done = stands
            self._host.begin([self._checkpoints.state])
            self._tail.seek(manifest.position)
        self.position = self._tail.next
        """The offset behind the last record that has been through the operators, whose output is in a transaction."""
        self._is_open = False
        self._most = _POLL_RECORDS
        self._committed_at = 0.0
        self._checkpointed = time.monotonic()

    def turn(self, seconds: float = POLL_SECONDS) -> None:
        """Take what comes in so many seconds, and commit if it is time."""
        batch = self._tail.poll(self._most, seconds)
        # a run that is behind takes more at once: a record costs less then
        self._most = _POLL_RECORDS if batch is None or batch.num_rows < _POLL_RECORDS else _BEHIND_RECORDS
        if batch is not None:
            read = time.time_ns() // 1000
            for part, is_new in _cut(batch, self.done):
                output = self._host.step(pa.Table.from_batches([part]))
                if is_new:
                    self._write(output, part, read)
        self.position = self._tail.next
        self._commit()

    def close(self) -> None:
        """Commit what is decided, and leave."""
        if self.position >= self.done:
            self._commit(is_last=True)
        self.abandon()

    def abandon(self) -> None:
        """Leave; what is not committed is decided again by the next task of the partition."""
        self._producer.purge()
        self._tail.close()

    def owner(self) -> Owner | None:
        """Return the task that committed last."""
        return _owner_of(self._tail.committed(TIMEOUT))

    def _write(self, output: list[GroupOutput], batch: pa.RecordBatch, read: int) -> None:
        (group,) = output
        stamps: Headers | None = None
        for name, rows in group.by_sink.items():
            for record in self._records[name].of(rows):
                if stamps is None:
                    stamps = self._stamps(group, batch, read)
                self._produce(record, stamps)

    def _stamps(self, group: GroupOutput, batch: pa.RecordBatch, read: int) -> Headers:
        """Return when what was decided now happened, in microseconds: of the poll's records, the first to be logged."""
        found = {"read": read, "decided": time.time_ns() // 1000}
        logged = pc.min(batch.column("log_time").cast(pa.int64())).as_py()
        if logged is not None:
            found = {"logged": logged, **found}
        watermark = group.stats.watermarks.get(self._place.partition, MIN_TIME)
        if self._delay is not None and watermark != MIN_TIME:
            found = {"event": watermark + self._delay, **found}
        return [(name, str(micros).encode()) for name, micros in found.items()]

    def _produce(self, record: KafkaRecord, stamps: Headers) -> None:
        # beside the partition that it is of: all of a key's changes are in one, in their order
        partition = self._place.partition % self._partitions_of(record.topic)
        headers = [*stamps, *record.headers] if record.is_stamped else record.headers
        self._send(record.topic, partition, record.key, record.value, headers)

    def _send(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        if not self._is_open:
            self._call(self._producer.begin_transaction)
            self._is_open = True
        while True:
            try:
                self._producer.produce(topic, value, key, partition, headers=list(headers))
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as exc:
                raise self._failure(exc) from exc
            else:
                return

    def _commit(self, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if now - self._committed_at < self._job.commit and not is_last:
            return
        if self.position >= self.done:
            self._checkpoint(now)
        is_behind = self.position > self.done and (is_last or now - self._committed_at >= _POSITION_EVERY)
        if not (self._is_open or is_behind):
            return
        if not self._is_open:
            self._call(self._producer.begin_transaction)
        if self.position > self.done:
            self._owner = replace(self._owner, advanced=self._owner.attempt)
        self._end_transaction(self.position)
        self.done, self._is_open = self.position, False
        self._committed_at = time.monotonic()

    def _end_transaction(self, offset: int) -> None:
        owner = json.dumps(vars(self._owner))
        at = TopicPartition(self._place.topic, self._place.partition, offset, metadata=owner)
        self._call(self._producer.send_offsets_to_transaction, [at], self._tail.group(), _CALL_SECONDS)
        self._call(self._producer.commit_transaction, _CALL_SECONDS)

    def _checkpoint(self, now: float) -> None:
        """Put some records of a checkpoint into the transaction, if it is time for one."""
        checkpoints = self._checkpoints
        last = checkpoints.manifest
        is_due = now - self._checkpointed >= _CHECKPOINT_EVERY and (last is None or last.position < self.position)
        if not checkpoints.is_writing and is_due:
            self._checkpointed = now
            (state,) = self._host.states
            checkpoints.begin(state, self.position, self._meaning)
        for key, value in checkpoints.take(_CHECKPOINT_BYTES):
            self._send(self._state_topic, self._place.partition, key, value, [])

    def _stored(self, settings: dict[str, str]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield what the state topic holds of the partition."""
        ends = Admin(self._state_topic, settings, TIMEOUT).offsets([self._place.partition])
        for batch in Reader(self._state_topic, settings).read(ends):
            yield from zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)

    def _first(self, settings: dict[str, str]) -> int:
        """Return where a new run begins."""
        number = self._place.partition
        first, end = Admin(self._place.topic, settings, TIMEOUT).offsets([number])[number]
        return end if self._job.source.start == "latest" else first

    def _require_same(self, meaning: dict[str, Any]) -> None:
        """Raise InputError if the state is of a pipeline that means something else."""
        changed = sorted(name for name in {*meaning, *self._meaning} if meaning.get(name) != self._meaning.get(name))
        if changed:
            msg = (
                f"the pipeline {self._job.pipeline.name} has changed in {', '.join(changed)} since its state in the "
                f"topic {self._state_topic} was written: undo the change, or give the pipeline another name"
            )
            raise InputError(msg)

    def _next_owner(self, committed: TopicPartition | None) -> Owner:
        """Return this task after the last owner; raise RunError if many attempts have died and none came further."""
        last, own = _owner_of(committed), self._job.owner
        if last is None or last.run != own.run:
            return replace(own, advanced=own.attempt)
        if own.attempt - last.advanced > _ATTEMPTS:
            msg = (
                f"the Python worker of partition {self._place.partition} of {self._place.topic} has died {_ATTEMPTS} "
                f"times without coming further; its messages are in the log of Spark"
            )
            raise RunError(msg)
        return replace(own, advanced=last.advanced)

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._partitions:
            found = self._producer.list_topics(topic, _CALL_SECONDS).topics[topic].partitions
            self._partitions[topic] = max(1, len(found))
        return self._partitions[topic]

    def _call(self, function: Any, *arguments: Any) -> None:  # noqa: ANN401 - one of the producer's
        """Call the producer, again while it may succeed; raise FencedError or SinkUnavailableError."""
        deadline = time.monotonic() + _BEGIN_SECONDS
        while True:
            try:
                function(*arguments)
            except KafkaException as exc:
                if not exc.args[0].retriable() or time.monotonic() > deadline:
                    raise self._failure(exc) from exc
            else:
                return

    def _failure(self, exc: KafkaException) -> RunError:
        """Return what an error of the producer means: a fatal one is that of a fence, or of a transaction's timeout."""
        error = exc.args[0]
        place = f"partition {self._place.partition} of {self._place.topic}"
        if error.fatal() or error.code() in _FENCED:
            return FencedError(f"{place} is run by another task now")
        return SinkUnavailableError(f"the transaction of {place} failed: {error.str()}")


_FENCED = (
    KafkaError._FATAL,  # noqa: SLF001 - the client's own name
    KafkaError._FENCED,  # noqa: SLF001 - the client's own name
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)


def _owner_of(committed: TopicPartition | None) -> Owner | None:
    return None if committed is None or not committed.metadata else Owner(**json.loads(committed.metadata))


def _cut(batch: pa.RecordBatch, done: int) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Divide records at the committed offset; say of each part whether it is new."""
    below = int((to_micros(batch.column("offset")) < done).sum())
    if below:
        yield batch.slice(0, below), False
    if below < batch.num_rows:
        yield batch.slice(below), True
