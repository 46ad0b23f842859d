"""What a realtime run refuses: it says what is wrong and what to do, and stops no healthy run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from unittest.mock import Mock
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.graphs import as_graph
from tests.runtime.realtime_jobs import (
    ends_of,
    expected,
    feed,
    messages,
    open_jobs,
    process_pipeline,
    rules_pipeline,
    until_read,
    written,
)
from tests.short_forms import ProcessPipeline
from tests.waiting import time_with

import windrow as wr
from windrow.errors import InputError, RecordsLostError, RunError, SinkUnavailableError
from windrow.runtime.realtime import partition
from windrow.runtime.realtime.partition import Owner, Partition, PartitionRun
from windrow.runtime.realtime.progress import Positions, Progress
from windrow.runtime.realtime.supervise import serve
from windrow.runtime.realtime.topics import group_of, prepare_topics
from windrow.testing.servers.kafka import Kafka


@pytest.fixture
def pipeline(kafka: Kafka, topic: Callable[..., str]) -> ProcessPipeline:
    """A pipeline over one partition."""
    return process_pipeline(kafka.servers, topic(1), f"p-{uuid4().hex[:8]}")


def source_of(pipeline: ProcessPipeline) -> str:
    return open_jobs(pipeline)[0].source.topic


def read(kafka: Kafka, pipeline: ProcessPipeline, first: int, count: int = 100) -> None:
    """Append records, and run until they are read."""
    feed(kafka, source_of(pipeline), first, count, partitions=1)
    jobs = open_jobs(pipeline)
    serve(jobs, until_read(jobs, ends_of(pipeline)))


def turn(run: PartitionRun, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        run.turn()


def delete(kafka: Kafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.delete_topics([topic])[topic].result(30)


def test_an_edited_pipeline_is_refused_and_the_run_goes_on(kafka: Kafka, pipeline: ProcessPipeline) -> None:
    read(kafka, pipeline, 0)
    (healthy,) = (job.open() for job in open_jobs(pipeline))
    edited = replace(pipeline, key=("id",))
    with pytest.raises(InputError, match=r"has changed in key since its state in the topic .* was written: undo"):
        open_jobs(edited, "edited")[0].open()
    feed(kafka, source_of(pipeline), 100, 100, partitions=1)
    goal = ends_of(pipeline)[0]
    for _ in range(3000):
        healthy.turn()
        if healthy.done == goal:
            break
    healthy.close()
    assert healthy.done == goal
    for name, values in expected(pipeline).items():
        assert written(kafka.servers, name) == values


def test_rules_that_need_more_than_the_state_are_refused_and_the_run_goes_on(
    kafka: Kafka, topic: Callable[..., str]
) -> None:
    source, name = topic(1), f"p-{uuid4().hex[:8]}"
    plain = [wr.rule("large", when="amount > 100")]
    ahead = [wr.rule("testing", when="next.amount > 5 * amount")]
    pipeline = rules_pipeline(kafka.servers, source, name, rules=plain)
    (healthy,) = (job.open() for job in open_jobs(pipeline))
    for rules, last, why in [
        (plain, 17, r"recent looks back further than the state .* for \{last: 16, within: 1h\}"),
        (ahead, 16, "now use `next`, and none did before"),
    ]:
        edited = rules_pipeline(kafka.servers, source, name, rules=rules, last=last)
        with pytest.raises(InputError, match=why):
            open_jobs(edited, "edited")[0].open()
    feed(kafka, source, 0, 100, partitions=1)
    for _ in range(3000):
        healthy.turn()
        if healthy.done == 100:
            break
    healthy.close()
    assert healthy.done == 100


def test_records_lost_before_they_were_read_are_told(kafka: Kafka, pipeline: ProcessPipeline) -> None:
    read(kafka, pipeline, 0)
    source = source_of(pipeline)
    feed(kafka, source, 100, 50, partitions=1)
    kafka.delete_before(source, 0, 120)
    with pytest.raises(RecordsLostError, match=rf"the log {source} lost records: partition 0: offsets \d+ to 119 are "):
        open_jobs(pipeline)[0].open()


def test_a_topic_that_was_made_anew_is_told(kafka: Kafka, pipeline: ProcessPipeline) -> None:
    """Also if it has more records than the old one, where the committed offset would fit."""
    read(kafka, pipeline, 0)
    source = source_of(pipeline)
    watch = Progress(as_graph(pipeline), "run", [0], on_trouble=pytest.fail)
    watch.report(lambda _: None)
    delete(kafka, source)
    kafka.create_topic(source, 1)
    with pytest.raises(RecordsLostError, match=f"the log {source} lost records: another log of the same name"):
        watch.report(lambda _: None)
    feed(kafka, source, 0, 500, partitions=1)
    with pytest.raises(
        RecordsLostError, match=r"lost records: partition 0: the topic was recreated; .* give the pipeline another name"
    ):
        open_jobs(pipeline)[0].open()


def test_state_that_would_expire_is_refused(kafka: Kafka, pipeline: ProcessPipeline) -> None:
    kafka.create_topic(f"{pipeline.name}.state", 1, {"cleanup.policy": "compact,delete"})
    with pytest.raises(InputError, match=r"\.state has cleanup.policy=compact,delete, .*: set cleanup.policy=compact "):
        open_jobs(pipeline)


def test_a_topic_that_the_broker_does_not_create_is_refused(pipeline: ProcessPipeline) -> None:
    too_long = replace(pipeline, name="n" * 249)
    with pytest.raises(InputError, match=r"topic n*\.state cannot be created: .*; create it, with 1 partitions"):
        prepare_topics(as_graph(too_long))


def test_a_partition_that_is_added_ends_the_run(kafka: Kafka, pipeline: ProcessPipeline) -> None:
    watch = Progress(as_graph(pipeline), "run", [0], on_trouble=pytest.fail)
    watch.report(lambda _: None)
    kafka.add_partitions(source_of(pipeline), 2)
    with pytest.raises(RunError, match="has 2 partitions, but had 1 when the run began: keys are no longer"):
        watch.report(lambda _: None)


def test_a_change_that_its_topic_does_not_take_is_a_dead_letter(kafka: Kafka, pipeline: ProcessPipeline) -> None:
    topic = f"{pipeline.name}.alerts"
    kafka.create_topic(topic, 1, {"max.message.bytes": "80"})
    feed(kafka, source_of(pipeline), 0, 200, partitions=1)
    jobs = open_jobs(pipeline)
    serve(jobs, until_read(jobs, ends_of(pipeline)))
    assert written(kafka.servers, topic) == {}
    letters = messages(kafka.servers, as_graph(pipeline).sinks[0].sink.companion("dead"))
    reasons = [dict(letter.headers())["reason"] for letter in letters]
    changes = sum(map(len, expected(pipeline)[topic].values()))
    assert sum(reason.startswith(b"refused: Kafka: a record of ") for reason in reasons) == changes > 5


def test_a_topic_that_takes_each_change_takes_all_of_them(kafka: Kafka, pipeline: ProcessPipeline) -> None:
    topic = f"{pipeline.name}.alerts"
    kafka.create_topic(topic, 1, {"max.message.bytes": "700"})
    feed(kafka, source_of(pipeline), 0, 200, partitions=1)
    jobs = open_jobs(pipeline)
    serve(jobs, until_read(jobs, ends_of(pipeline)))
    changes = written(kafka.servers, topic)
    assert changes == expected(pipeline)[topic]
    assert sum(map(len, changes.values())) > 5


def test_a_topic_that_is_not_there_ends_the_run(kafka: Kafka, pipeline: ProcessPipeline) -> None:
    feed(kafka, source_of(pipeline), 0, 200, partitions=1)
    jobs = open_jobs(pipeline)
    delete(kafka, f"{pipeline.name}.alerts")
    with pytest.raises(RunError, match=r"failed twice after offset \d+: .*; a topic that it writes does not exist"):
        serve(jobs, until_read(jobs, ends_of(pipeline)))


def test_the_offset_of_a_quiet_partition_does_not_expire(
    kafka: Kafka, pipeline: ProcessPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(kafka, pipeline, 0)
    (job,) = open_jobs(pipeline)
    run = job.open()
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    committed = ConsumerGroupTopicPartitions(group_of(as_graph(pipeline)), [TopicPartition(job.source.topic, 0, 0)])
    # as a broker does with what was committed a week ago
    admin.alter_consumer_group_offsets([committed])[group_of(as_graph(pipeline))].result(30)
    monkeypatch.setattr(partition, "_RENEW_EVERY", 0.0)
    for _ in range(20):
        run.turn()
    run.abandon()
    assert [one.lag for one in Positions(as_graph(pipeline)).ask()] == [0]


def attempt(pipeline: ProcessPipeline, number: int) -> Partition:
    return replace(open_jobs(pipeline)[0], owner=Owner("run", number))


def test_a_client_that_does_not_return_is_given_up(
    kafka: Kafka, pipeline: ProcessPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = (job.open() for job in open_jobs(pipeline))
    monkeypatch.setattr(partition, "_CALL_SECONDS", 0.0)
    is_over = Event()
    client = Mock(send_offsets_to_transaction=lambda *_: is_over.wait(60))
    monkeypatch.setattr(run._producer, "client", client)  # noqa: SLF001 - there is no other way
    feed(kafka, source_of(pipeline), 0, 10, partitions=1)
    with pytest.raises(SinkUnavailableError, match="no answer from the broker of group windrow-"):
        turn(run, seconds=30)
    is_over.set()
    run.abandon()


def test_workers_that_die_at_one_offset_end_the_run(
    kafka: Kafka, pipeline: ProcessPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(kafka, pipeline, 0)
    now = [1e9]
    monkeypatch.setattr(partition, "time", time_with(time=lambda: now[0]))
    for number in range(10):
        # a quiet partition: its worker is lost now and then, for what has nothing to do with it
        attempt(pipeline, number).open().abandon()
        now[0] += 61
    for number in range(10, 14):
        attempt(pipeline, number).open().abandon()
        now[0] += 5
    with pytest.raises(RunError, match=r"has died 5 times in a row after offset \d+"):
        attempt(pipeline, 14).open()


def test_a_first_record_that_kills_its_worker_is_counted(kafka: Kafka, pipeline: ProcessPipeline) -> None:
    """Nothing was read yet, so no offset is committed but the first."""
    feed(kafka, source_of(pipeline), 0, 10, partitions=1)
    for number in range(5):
        attempt(pipeline, number).open().abandon()
    with pytest.raises(RunError, match="has died 5 times in a row after offset 0"):
        attempt(pipeline, 5).open()
