"""What a broker does not allow is reported with what to grant, and is not tried again for long."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.runtime.realtime_jobs import Committed, feed, open_jobs, process_pipeline
from tests.short_forms import ProcessPipeline

from windrow.connectors.kafka import producer, read
from windrow.connectors.kafka.client import group_answer
from windrow.connectors.kafka.read import Tail
from windrow.errors import InputError, RunError, SinkError, SourceError
from windrow.runtime.realtime import partition, topics
from windrow.runtime.realtime.supervise import serve
from windrow.testing.servers.kafka import Kafka

TOPIC, GROUP = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED
ID, CLUSTER = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED
GRANTS = {
    TOPIC: "grant WRITE and DESCRIBE on the topics that it writes",
    GROUP: r"grant READ on the consumer group windrow-p-\w+$",
    ID: r"grant WRITE and DESCRIBE on the ids that begin with windrow-p-\w+-$",
    CLUSTER: "grant IDEMPOTENT_WRITE on the cluster",
}


@pytest.fixture
def pipeline(kafka: Kafka, topic: Callable[..., str]) -> ProcessPipeline:
    """A pipeline over one partition."""
    return process_pipeline(kafka.servers, topic(1), f"p-{uuid4().hex[:8]}")


def deny(monkeypatch: pytest.MonkeyPatch, call: str, error: KafkaError) -> list[str]:
    """Have a call of the producer be refused; return the calls that are."""
    calls: list[str] = []

    def refuse(*_: object, **__: object) -> None:
        calls.append(call)
        raise KafkaException(error)

    monkeypatch.setattr(producer, "Producer", type("Refused", (Producer,), {call: refuse}))
    return calls


@pytest.mark.parametrize("is_fatal", [False, True])
@pytest.mark.parametrize("code", GRANTS)
def test_a_transaction_that_may_not_begin_ends_the_run_at_once(
    pipeline: ProcessPipeline,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    is_fatal: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    jobs = open_jobs(pipeline)
    calls = deny(monkeypatch, "init_transactions", KafkaError(code, fatal=is_fatal))
    with pytest.raises(SinkError, match=rf"the transaction of partition 0 of .* is refused: .*; {GRANTS[code]}"):
        serve(jobs, lambda: False)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("produce", TOPIC),
        ("list_topics", TOPIC),
        ("list_topics", CLUSTER),
        ("send_offsets_to_transaction", GROUP),
        ("commit_transaction", TOPIC),
        ("commit_transaction", ID),
    ],
)
def test_what_is_refused_while_it_runs_ends_the_run_at_the_second_attempt(
    kafka: Kafka, pipeline: ProcessPipeline, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    jobs = open_jobs(pipeline)
    serve(jobs, until_committed(jobs))
    feed(kafka, jobs[0].source.topic, 0, 200, partitions=1)
    calls = deny(monkeypatch, call, KafkaError(code))
    with pytest.raises(RunError, match=rf"is refused: .*; {GRANTS[code]}"):
        serve(jobs, lambda: False)
    assert 1 <= len(calls) <= 2


def until_committed(jobs: list[partition.Partition]) -> Callable[[], bool]:
    committed = Committed(jobs)
    return lambda: bool(committed.offsets())


def test_an_error_that_is_fatal_to_the_client_is_looked_up(
    pipeline: ProcessPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poll(*_: object) -> None:
        raise KafkaException(KafkaError(ID))

    jobs = open_jobs(pipeline)
    deny(monkeypatch, "init_transactions", KafkaError(KafkaError._FATAL, fatal=True))  # noqa: SLF001 - the client's own name
    monkeypatch.setattr(f"{producer.__name__}.Producer.poll", poll)
    with pytest.raises(SinkError, match=GRANTS[ID]):
        serve(jobs, lambda: False)


@pytest.mark.parametrize(
    ("code", "grant"),
    [
        (GROUP, "the consumer group g at h:9092 may not be used with these options: grant READ on it"),
        (TOPIC, "the offsets of the consumer group g at h:9092 .*: grant READ and DESCRIBE on the topic"),
        (CLUSTER, "the brokers at h:9092 refuse these options: grant DESCRIBE on the cluster"),
    ],
)
def test_offsets_that_may_not_be_asked_for_are_no_outage(code: int, grant: str) -> None:
    error = KafkaError(code)
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(error))
    tail = Tail("cards", 0, {"bootstrap.servers": "h:9092"}, "g")
    tail.close()
    for answered in (Mock(side_effect=KafkaException(error)), Mock(return_value=[Mock(error=error, offset=-1)])):
        tail._consumer = Mock(committed=answered)  # noqa: SLF001 - the real one has no broker
        with pytest.raises(SourceError, match=grant) as raised:
            tail.committed(1.0)
        assert not raised.value.passes
    with pytest.raises(SourceError, match=grant) as raised:
        group_answer(answer, "g", "h:9092", 1.0)
    assert not raised.value.passes


def test_records_that_may_not_be_read_are_no_outage() -> None:
    tail = Tail("cards", 0, {"bootstrap.servers": "h:9092"}, "g")
    tail.close()
    message = Mock(error=lambda: KafkaError(TOPIC), topic=lambda: "cards")
    with pytest.raises(
        SourceError, match="partition 0 at h:9092 may not be read with these options: grant READ and"
    ) as raised:
        tail._hear(message)  # noqa: SLF001 - the client makes no messages
    assert not raised.value.passes


def refused(code: int) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(KafkaError(code)))
    return answer


@pytest.mark.parametrize(
    ("call", "code", "kind", "grant"),
    [
        ("committed", GROUP, SourceError, "may not be used with these options: grant READ on it"),
        ("create_topics", TOPIC, InputError, "or grant CREATE on it; if it already exists, grant DESCRIBE and WRITE"),
        ("create_topics", CLUSTER, InputError, "or grant CREATE on it"),
        ("describe_configs", TOPIC, InputError, "grant DESCRIBE_CONFIGS on it"),
        ("describe_configs", CLUSTER, InputError, "grant DESCRIBE_CONFIGS on it"),
    ],
)
def test_what_is_not_allowed_is_reported_before_the_run_takes_over(  # noqa: PLR0917 - the columns above
    pipeline: ProcessPipeline,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
    kind: type[Exception],
    grant: str,
) -> None:
    if call != "create_topics":
        open_jobs(pipeline)
    answers = {
        "committed": lambda *_: refused(code).result(),
        "create_topics": lambda _, asked: {one.topic: refused(code) for one in asked},
        "describe_configs": lambda _, asked: {one: refused(code) for one in asked},
    }
    client: type = Consumer if call == "committed" else AdminClient
    asking = read if call == "committed" else topics
    monkeypatch.setattr(asking, client.__name__, type("Refused", (client,), {call: answers[call]}))
    with pytest.raises(kind, match=grant):
        open_jobs(pipeline)
