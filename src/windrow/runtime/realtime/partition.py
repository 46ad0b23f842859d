"""The loop of one partition: poll, process, and commit changes, position and checkpoint in one Kafka transaction.

Each partition is processed independently: all operators for its records run here, with one key group, and its own clock
is the low watermark. Its output depends only on the partition's log, not on polls, transactions or crashes.

* The transactional ID of the partition acts as a fence: a new run aborts the open transaction of the previous run,
  whose later writes are refused. Reasons to refuse the new run are checked first, so that it cannot stop a healthy run.
* To begin, a run restores the last complete checkpoint and reads the log from there. Up to the committed offset, the
  operators run but nothing is written, because their output was committed with that offset. Operators produce the same
  output however the log is divided into steps, so a cut at the committed offset separates written output from the rest.
* A transaction contains the output since the previous one, the offset up to which it was computed, and some records of
  the checkpoint being written. It is committed periodically, even without output.

The wall clock determines when to commit, and appears in the headers of changes, but no operator reads it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, TopicPartition

from windrow import model as m
from windrow.connectors.kafka.client import Admin
from windrow.connectors.kafka.lists import ListTopic
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.producer import Headers, TransactionalProducer
from windrow.connectors.kafka.read import Reader, Tail
from windrow.connectors.kafka.rows import KafkaRecords
from windrow.connectors.kafka.sink import batches_within, limits_of
from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.kafka.subjects import register_schemas
from windrow.connectors.source import Loss, listed
from windrow.engine.columns import MIN_TIME, to_micros
from windrow.engine.lists import read_entries
from windrow.engine.operators.base import GroupOutput
from windrow.engine.state.store import MemoryState
from windrow.errors import InputError, RecordsLostError, RunError, SinkUnavailableError
from windrow.expressions import sink_specs
from windrow.runtime.memory import MemoryHost
from windrow.runtime.realtime.checkpoints import Checkpoints, Manifest, manifest_in, meaning_of
from windrow.runtime.realtime.journal import Journal
from windrow.runtime.realtime.topics import group_of, sinks_of, source_of, state_topic, topic_lists

T = TypeVar("T")

POLL_SECONDS = 0.004
_POLL_RECORDS = 1000
"""Maximum number of records in a poll; a full poll shows that more records are waiting."""
_BEHIND_RECORDS = 10_000
_CHECKPOINT_EVERY = 10.0
_CHECKPOINT_BYTES = 256 << 10
"""Maximum bytes of a checkpoint in one transaction."""
_POSITION_EVERY = 1.0
"""Seconds after which a position without output is committed."""
_RENEW_EVERY = 3600.0
"""Seconds after which an offset is committed again, because a broker drops offsets and fences after a week."""
_CALL_SECONDS = 10.0
_TRANSACTION_MS = 10_000
"""Milliseconds after which a broker aborts the open transaction of a lost task."""
REPEATED = 60.0
"""Seconds within which a second failure at an offset counts as the same failure."""
_ATTEMPTS = 5
"""Maximum number of consecutive workers that may die at one offset, each within a minute."""


class FencedError(RunError):
    """Raised when another task runs the partition now, or when a transaction took too long and was aborted."""


@dataclass(frozen=True)
class Owner:
    """The task that runs a partition, identified by its run and attempt number; it is committed with each offset.

    `begun` is when it began (seconds since the epoch). `deaths` is the number of earlier attempts that died at the same
    offset, each within a minute. `ended` is True if it ended because it was asked to. `first` is the offset from which
    the run has read the partition.
    """

    run: str
    attempt: int
    begun: float = 0.0
    deaths: int = 0
    ended: bool = False
    first: int | None = None

    @staticmethod
    def of(committed: TopicPartition | None) -> Owner | None:
        """Return the owner stored with a committed offset, or None."""
        return None if committed is None or not committed.metadata else Owner(**json.loads(committed.metadata))

    def is_task_of(self, other: Owner) -> bool:
        """Return True if both are the same attempt of the same run."""
        return (self.run, self.attempt) == (other.run, other.attempt)


@dataclass(frozen=True)
class Partition:
    """A partition of a pipeline's only source, and the task that runs it; this object is serialized to the task."""

    pipeline: m.Graph
    number: int
    owner: Owner

    @property
    def source(self) -> m.KafkaSource:
        """The topic that the pipeline reads."""
        return source_of(self.pipeline)

    @property
    def commit(self) -> float:
        """Seconds between transactions."""
        return min(sink.commit for sink in sinks_of(self.pipeline)) / 1_000_000

    def open(self) -> PartitionRun:
        """Take over the partition, restore its state, and begin to process it."""
        return PartitionRun(self)

    def last_owner(self) -> Owner | None:
        """Return the task that committed last, or None if there is no commit."""
        tail = Tail(self.source.topic, self.number, client_options(self.source), group_of(self.pipeline))
        try:
            return Owner.of(tail.committed(TIMEOUT))
        finally:
            tail.close()


class PartitionRun:
    """The run of a partition; `turn` is one pass of its loop.

    Its methods raise SourceUnavailableError or SinkUnavailableError on temporary faults. The caller then abandons the
    run and opens the partition again.
    """

    def __init__(self, job: Partition) -> None:
        self._job = job
        pipeline, number = job.pipeline, job.number
        settings, specs = client_options(job.source), sink_specs(pipeline)
        self._place = TopicPartition(job.source.topic, number)
        limits = {name: limits_of(spec.sink) for name, spec in specs.items()}
        self._records = {name: KafkaRecords(spec, limits[name], register_schemas(spec)) for name, spec in specs.items()}
        watermark = pipeline.watermark_of(number)
        self._delay = watermark.micros if isinstance(watermark, m.Delay) else None
        self._partitions: dict[str, int] = {}
        self._state_topic = state_topic(pipeline)
        has_headers = pipeline.sources[0].reads_headers
        self._tail = Tail(job.source.topic, number, settings, group_of(pipeline), has_headers=has_headers)
        topic = KafkaTopic(job.source)
        self._meaning = {**meaning_of(pipeline), _TOPIC_ID: topic.identity()}
        self._journal = Journal(number)
        stored: dict[bytes, bytes | None] = {}
        read = self._read_stored(settings, 0, stored)
        # without the committed offset: to read it, an open transaction would have to end first
        self._require_fit(topic, manifest_in(stored), None)
        group = group_of(pipeline)
        place = f"partition {number} of {job.source.topic}"
        self._producer = TransactionalProducer(
            job.source.topic,
            {**batches_within(*limits.values()), **settings, "linger.ms": 0},
            f"{group}-{number}",
            what=place,
            fenced=lambda: FencedError(f"{place} is run by another task now"),
            timeout=_TRANSACTION_MS,
            ids=f"the ids that begin with {group}-",
            group=group,
        )
        self._producer.start()
        committed = self._tail.committed(TIMEOUT)
        self._owner = self._next_owner(committed)
        if committed is not None:
            # at once, so that a fenced task can see the new owner
            self._producer.begin()
            self._end_transaction(committed.offset)
        # the records that the last task has written since
        self._read_stored(settings, read, stored)
        self._lists: dict[str, ListTopic] = {}
        self._checkpoints = Checkpoints(stored.items())
        manifest = self._checkpoints.manifest
        self._require_fit(topic, manifest, committed)
        stands = self._committed_offset(manifest, committed)
        self._is_open = False
        self._checkpointed = time.monotonic()
        if manifest is None:
            first, end = topic.ends()[number]
            self.done = end if job.source.start == "latest" else first
            self._host = self._open_host()
            self._tail.seek(self.done)
            self._begin_state()
        else:
            self.done = stands
            self._host = self._open_host()
            self._host.begin([self._checkpoints.state])
            self._tail.seek(manifest.position)
        self.position = self._tail.next
        """The offset after the last record that the operators have processed; their output is in a transaction."""
        self._most, self._gathers_until = _POLL_RECORDS, 0.0
        self._committed_at = time.monotonic()

    def _open_host(self) -> MemoryHost:
        """Return the host, with the current rules and lists in force from the offset `done` on."""
        # one key group: a small step must not be split into many
        pipeline = replace(self._job.pipeline, key_groups=1)
        for rules in (node.rules for node in pipeline.rules):
            self._journal.begin(rules, self.done)
            self._lists = {
                topic_list.name: ListTopic(topic_list, self._job.source) for topic_list in topic_lists(pipeline)
            }
            entries = {name: topic.entries for name, topic in self._lists.items()}
            entries |= read_entries(rule_list for rule_list in rules.lists if isinstance(rule_list, m.FileList))
            for name, known in entries.items():
                self._journal.change(name, known, self.done)
            lists = tuple(replace(rule_list, entries=()) for rule_list in rules.lists)
            pipeline = pipeline.with_rules(replace(rules, lists=lists, journal=self._journal.rows))
        others = range(self._partitions_of(self._place.topic))
        return MemoryHost(pipeline, [self._place.partition], others=others)

    def _begin_state(self) -> None:
        """Commit the initial state with the first offset, so that every committed offset has a state."""
        self._owner = replace(self._owner, first=self.done)
        self._checkpoints.begin(MemoryState(), self.done, self._meaning)
        self._write_journal()
        self._checkpoint(self._checkpointed)
        self._end_transaction(self.done)
        self._is_open = False

    def turn(self, seconds: float = POLL_SECONDS) -> None:
        """Process the records that have arrived, waiting up to `seconds` for the first, and commit when due."""
        time.sleep(max(0.0, self._gathers_until - time.monotonic()))
        batch = self._tail.poll(self._most, seconds)
        # a run that is behind polls more records at once, as a record costs less then
        is_behind = batch is not None and batch.num_rows >= _POLL_RECORDS
        self._most = _BEHIND_RECORDS if is_behind else _POLL_RECORDS
        # after the poll, as the records may have been written because of an entry
        self._follow_lists()
        if batch is not None:
            read = time.time_ns() // 1000
            for part, is_new in _cut(batch, self.done):
                output = self._host.step(pa.Table.from_batches([part]))
                if is_new:
                    self._write(output[0], part, read)
            if not is_behind:
                # gather the records that arrive right after a step, for the same reason
                self._gathers_until = time.monotonic() + seconds
        self.position = self._tail.next
        self._commit()

    def close(self) -> None:
        """Commit the remaining output and the fact that the task has ended, then close the clients."""
        self._owner = replace(self._owner, ended=True)
        self._commit(is_last=True)
        self.abandon()

    def abandon(self) -> None:
        """Close the clients; the next task of the partition will repeat uncommitted work."""
        self._producer.client.purge()
        self._tail.close()
        for topic in self._lists.values():
            topic.close()

    def _write(self, group: GroupOutput, batch: pa.RecordBatch, read: int) -> None:
        records = [record for name, rows in group.by_sink.items() for record in self._records[name].of(rows)]
        stamps = self._stamps(group, batch, read) if records else []
        for record in records:
            # to the partition of the same number: all changes of a key are in one partition, in their order
            partition = self._place.partition % self._partitions_of(record.topic)
            headers = [*stamps, *record.headers] if record.is_stamped else record.headers
            self._send(record.topic, partition, record.key, record.value, headers)

    def _stamps(self, group: GroupOutput, batch: pa.RecordBatch, read: int) -> Headers:
        """Return the times at which an output passed each stage, in microseconds.

        The log time is the earliest of the poll.
        """
        found = {"read": read, "decided": time.time_ns() // 1000}
        logged = pc.min(batch.column("log_time").cast(pa.int64())).as_py()
        if logged is not None:
            found = {"logged": logged, **found}
        watermark = group.stats.watermarks.get(self._place.partition, MIN_TIME)
        if self._delay is not None and watermark != MIN_TIME:
            found = {"event": watermark + self._delay, **found}
        return [(name, str(micros).encode()) for name, micros in found.items()]

    def _send(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        if not self._is_open:
            self._producer.begin()
            self._is_open = True
        self._producer.send(topic, key, value, headers, partition=partition)

    def _commit(self, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if now - self._committed_at < self._job.commit and not is_last:
            return
        if self.position >= self.done:
            self._write_journal()
            self._checkpoint(now)
        every = _POSITION_EVERY if self.position > self.done else _RENEW_EVERY
        if not (self._is_open or is_last or now - self._committed_at >= every):
            return
        if not self._is_open:
            self._producer.begin()
        if self.position > self.done:
            self._owner = replace(self._owner, deaths=0)
        # while committed records are read again, the position does not move
        reached = max(self.done, self.position)
        self._end_transaction(reached)
        self.done, self._is_open = reached, False
        # from start to start: a slow commit does not delay the next
        self._committed_at = now

    def _follow_lists(self) -> None:
        """Apply changes of lists in topics to the records that have not been processed yet."""
        if self.position < self.done:
            return
        for name, topic in self._lists.items():
            if topic.poll():
                self._host.change_lists(self._journal.change(name, topic.entries, self.position))

    def _write_journal(self) -> None:
        """Add the new rows of the journal to the transaction that contains the output they determined."""
        for key, value in self._journal.pending:
            self._send(self._state_topic, self._place.partition, key, value, [])
        self._journal.pending.clear()

    def _end_transaction(self, offset: int) -> None:
        owner = json.dumps(vars(self._owner))
        at = TopicPartition(self._place.topic, self._place.partition, offset, metadata=owner)
        self._producer.call(self._send_offset, at)
        self._producer.commit()

    def _send_offset(self, at: TopicPartition) -> None:
        """Add an offset to the transaction; raise SinkUnavailableError if this takes too long.

        If the client has lost the group's broker, it ignores its timeout and may wait forever (librdkafka, issue 5456).
        Its thread is then abandoned, and the next producer fences it.
        """
        send = partial(self._producer.client.send_offsets_to_transaction, [at], self._tail.group(), _CALL_SECONDS)
        try:
            in_background(send).result(_CALL_SECONDS + 1)
        except TimeoutError as exc:
            place = f"partition {self._place.partition} of {self._place.topic}"
            msg = (
                f"the transaction of {place} failed: no answer from the broker of group {group_of(self._job.pipeline)}"
            )
            raise SinkUnavailableError(msg) from exc

    def _checkpoint(self, now: float) -> None:
        """Add some records of a checkpoint to the transaction; begin a new checkpoint when due."""
        checkpoints = self._checkpoints
        last = checkpoints.manifest
        is_due = now - self._checkpointed >= _CHECKPOINT_EVERY and (last is None or last.position < self.position)
        if not checkpoints.is_writing and is_due:
            self._checkpointed = now
            (state,) = self._host.states
            checkpoints.begin(state, self.position, self._meaning)
        for key, value in checkpoints.take(_CHECKPOINT_BYTES):
            self._send(self._state_topic, self._place.partition, key, value, [])

    def _read_stored(self, settings: dict[str, str], begin: int, into: dict[bytes, bytes | None]) -> int:
        """Read the partition of the state topic from an offset on, and return the next offset.

        Rows of the journal are added to it, and all other records to the mapping `into`.
        """
        number = self._place.partition
        first, end = Admin(self._state_topic, settings, TIMEOUT).offsets([number])[number]
        for batch in Reader(self._state_topic, settings).read({number: (max(first, begin), end)}):
            records = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
            into.update(self._journal.read(records))
        return end

    def _require_fit(self, topic: KafkaTopic, manifest: Manifest | None, committed: TopicPartition | None) -> None:
        """Raise RecordsLostError if the log lacks records that the state needs, or InputError if the state is unfit."""
        if manifest is None:
            return
        self._require_log(topic, manifest, manifest.position)
        if committed is not None:
            self._require_log(topic, manifest, committed.offset)
        self._require_same(manifest.meaning)
        for node in self._job.pipeline.rules:
            self._journal.require_held(node.rules, self._job.pipeline.name)

    def _committed_offset(self, manifest: Manifest | None, committed: TopicPartition | None) -> int:
        """Return the committed offset, or 0 if there is none; raise InputError if the state does not match it."""
        position = None if manifest is None else manifest.position
        stands = None if committed is None else committed.offset
        if (stands is None) != (position is None) or (stands or 0) < (position or 0):
            msg = (
                f"partition {self._place.partition} of {self._place.topic}: the consumer group "
                f"{group_of(self._job.pipeline)} is at {'no offset' if stands is None else f'offset {stands}'}, and "
                f"the state in {self._state_topic} at {'none' if position is None else position}: one of the two was "
                "changed or has expired. Restore it, or give the pipeline another name"
            )
            raise InputError(msg)
        return stands or 0

    def _require_log(self, topic: KafkaTopic, manifest: Manifest, stood: int) -> None:
        """Raise RecordsLostError if the topic is not the one that the state belongs to, or lacks records.

        `stood` is the first offset whose record is needed.
        """
        number, known = self._place.partition, manifest.meaning.get(_TOPIC_ID)
        found = topic.find_losses({topic.name: {str(number): stood}}, known)
        losses = [loss for loss in found.losses if loss.partition == number]
        if known != self._meaning[_TOPIC_ID]:
            # whatever was read: the committed offsets belong to one topic
            losses = [Loss(number, stood, topic.ends()[number][0], "the topic was recreated")]
        if losses:
            msg = (
                f"the log {topic.name} lost records: {listed(losses)}. Committed results stay, but the state in "
                f"{self._state_topic} needs the lost records: give the pipeline another name, so that it starts over "
                "with the records that are left"
            )
            raise RecordsLostError(msg)

    def _require_same(self, meaning: Mapping[str, Any]) -> None:
        """Raise InputError if the state was written by a pipeline with a different meaning."""
        # older versions did not record the stream of a topic
        meaning = {"tables": self._meaning.get("tables"), **meaning}
        changed = sorted(name for name in {*meaning, *self._meaning} if meaning.get(name) != self._meaning.get(name))
        if changed:
            msg = (
                f"the pipeline {self._job.pipeline.name} has changed in {', '.join(changed)} since its state in the "
                f"topic {self._state_topic} was written: undo the change, or give the pipeline another name"
            )
            raise InputError(msg)

    def _next_owner(self, committed: TopicPartition | None) -> Owner:
        """Return this task as the successor of the last owner.

        Raise RunError if several attempts in a row have died at this offset.
        """
        last, own = Owner.of(committed), self._job.owner
        now = time.time()
        if committed is None or last is None or last.run != own.run:
            return replace(own, begun=now, first=None if committed is None else committed.offset)
        if last.is_task_of(own):
            return replace(last, ended=False)  # opened again in the same worker
        deaths = last.deaths + 1 if now - last.begun < REPEATED else 1
        if deaths >= _ATTEMPTS:
            msg = (
                f"the Python worker of partition {self._place.partition} of {self._place.topic} has died {deaths} "
                f"times in a row after offset {committed.offset}; its messages are in Spark's log"
            )
            raise RunError(msg)
        return replace(own, begun=now, deaths=deaths, first=last.first)

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._partitions:
            try:
                found = self._producer.client.list_topics(topic, _CALL_SECONDS).topics[topic]
            except KafkaException as exc:
                raise self._producer.failure(exc) from exc
            if found.error is not None:
                raise self._producer.failure(KafkaException(found.error))
            self._partitions[topic] = max(1, len(found.partitions))
        return self._partitions[topic]


_TOPIC_ID = "topic_id"
"""The key under which the topic's ID is stored beside the pipeline's settings."""


def _cut(batch: pa.RecordBatch, done: int) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Split records at the committed offset; yield each part, with True if its records are new."""
    below = int((to_micros(batch.column("offset")) < done).sum())
    if below:
        yield batch.slice(0, below), False
    if below < batch.num_rows:
        yield batch.slice(below), True


def in_background(call: Callable[[], T]) -> Future[T]:
    """Call a function in a daemon thread, and return a future of its result."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as exc:  # noqa: BLE001 - raised where the result is read
            future.set_exception(exc)

    Thread(target=run, name="windrow-realtime", daemon=True).start()
    return future
