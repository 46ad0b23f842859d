"""Offsets committed to the consumer groups of sources: what Kafka's tools see, and that no run depends on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka.admin import AdminClient
from tests.contracts.stores import SqliteStore
from tests.graphs import Runnable, as_graph
from tests.runtime.answers import assert_same
from tests.runtime.realtime_jobs import ends_of, feed, open_jobs, process_pipeline, until_read
from tests.runtime.runs import Runner
from tests.runtime.spend import event, events, spend
from tests.runtime.test_kafka import write_transactions
from tests.telemetry.test_history import STEP
from tests.waiting import wait_until

from windrow.connectors.kafka.client import ConsumerGroup, denied
from windrow.connectors.open_sources import open_source
from windrow.errors import SourceError, SourceUnavailableError
from windrow.model import Graph, KafkaSource, Node, SelectNode, SinkNode, SourceNode, SqliteSink
from windrow.runtime import group_offsets
from windrow.runtime.group_offsets import GroupOffsets
from windrow.runtime.launch import launch
from windrow.runtime.realtime.progress import Progress
from windrow.runtime.realtime.supervise import serve
from windrow.runtime.run import RunSettings
from windrow.telemetry.reports import StepReport
from windrow.testing.servers.kafka import Kafka

SECONDS = 30.0


@pytest.fixture
def group() -> str:
    """The name of a new group."""
    return f"lag-{uuid4().hex[:8]}"


def committed(kafka: Kafka, group: str, topic: str) -> dict[int, int]:
    """Return the offsets of a group, as Kafka's tools ask for them."""
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {one.partition: one.offset for one in answer.result(SECONDS).topic_partitions if one.topic == topic}


def ends(source: KafkaSource) -> dict[int, int]:
    return {partition: end for partition, (_, end) in open_source(source).ends().items()}


def move(kafka: Kafka, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Change the offsets of a group by hand."""
    ConsumerGroup(group, topic, {"bootstrap.servers": kafka.servers}).commit(offsets, SECONDS)


@pytest.mark.usefixtures("spark")
def test_a_group_shows_where_a_run_is_and_no_run_depends_on_it(
    kafka: Kafka, topic: Callable[..., str], tmp_path: Path, runner: Runner, group: str
) -> None:
    source = KafkaSource(kafka.servers, topic(4), group=group)  # the last partition stays empty
    write_transactions(kafka, source.topic, events(600))
    store = SqliteStore(tmp_path)
    pipeline = spend(source, store.settings(), at_end="hold")
    runner.bounded(pipeline, max_records=280)
    # a transaction ends with a mark, which tools count as an offset that is left
    assert committed(kafka, group, source.topic) == ends(source) == runner.reports[-1].offsets
    assert committed(kafka, group, source.topic)[3] == 0
    move(kafka, group, source.topic, {0: 0, 1: 10**9})
    # nor is a run of before refused, which had no group, or another one
    kafka.produce(source.topic, 0, [event(1500), event(1501)])
    runner.bounded(replace(pipeline, source=replace(source, group=None)))
    assert [report.events for report in runner.reports] == [2]
    assert committed(kafka, group, source.topic) == {0: 0, 1: 10**9, 2: ends(source)[2], 3: 0}
    kafka.produce(source.topic, 3, [event(1502)])
    fired = replace(pipeline, emit=replace(pipeline.emit, at_end="fire"))
    runner.bounded(fired)
    assert sum(report.events for report in runner.reports) == 1
    assert committed(kafka, group, source.topic) == ends(source)
    assert assert_same(store, fired).on_time
    batch = SqliteSink(str(tmp_path / "batch.db"), "spend")
    other = replace(source, group=f"{group}-batch")
    Runner(tmp_path / "batch").bounded(replace(fired, source=other, sink=batch), max_records=400, host="batch")
    assert committed(kafka, f"{group}-batch", source.topic) == ends(source)


def test_each_source_of_a_graph_has_its_group(
    kafka: Kafka, topic: Callable[..., str], tmp_path: Path, group: str
) -> None:
    sources = [KafkaSource(kafka.servers, topic(2), group=group) for _ in range(2)]
    sources.append(KafkaSource(kafka.servers, topic(1)))
    graph = graph_of(sources, tmp_path)
    for number, source in enumerate(sources):
        kafka.produce(source.topic, 0, [event(minute) for minute in range(3 + number)])
        kafka.produce(source.topic, 1 if number < 2 else 0, [event(9)])
    options = RunSettings(tmp_path / "checkpoint", "memory", until_end=True, on_warning=pytest.fail)
    launch(graph, options, lambda _: None, lambda _: None)
    assert committed(kafka, group, sources[0].topic) == {0: 3, 1: 1}
    assert committed(kafka, group, sources[1].topic) == {0: 4, 1: 1}
    assert committed(kafka, group, sources[2].topic) == {}


def graph_of(sources: list[KafkaSource], folder: Path) -> Graph:
    plain = spend(sources[0], SqliteSink("unused.db", "unused"))
    nodes: list[Node] = []
    for number, source in enumerate(sources):
        sink = SqliteSink(str(folder / "all.db"), f"spend_{number}")
        nodes.append(SourceNode(f"from_{number}", source, plain.decode, plain.time))
        nodes.append(SelectNode(f"all_{number}", (f"from_{number}",)))
        nodes.append(SinkNode(f"to_{number}", f"all_{number}", sink))
    return Graph("three", tuple(nodes), plain.key_groups)


def test_a_run_in_real_time_commits_to_the_group_what_its_own_group_has(
    kafka: Kafka, topic: Callable[..., str], group: str
) -> None:
    name = topic(2)
    pipeline = process_pipeline(kafka.servers, name, f"p-{uuid4().hex[:8]}")
    pipeline = replace(pipeline, source=KafkaSource(kafka.servers, name, group=group))
    feed(kafka, name, 0, 100, partitions=2)
    jobs = open_jobs(pipeline)
    serve(jobs, until_read(jobs, ends_of(pipeline)))
    with GroupOffsets(as_graph(pipeline), pytest.fail) as groups:
        Progress(as_graph(pipeline), "run", [0, 1], pytest.fail).report(groups.committing(lambda _: None))
    assert committed(kafka, group, name) == {0: 100, 1: 100}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_active_members_takes_offsets_from_them_alone(
    kafka: Kafka, topic: Callable[..., str], group: str, protocol: str
) -> None:
    name = topic(1)
    kafka.produce(name, 0, [event(0)])
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([name])
    try:
        assert consumer.poll(SECONDS) is not None
        with pytest.raises(SourceError, match="has active members and accepts offsets only from them: use a group"):
            move(kafka, group, name, {0: 1})
    finally:
        consumer.close()
    move(kafka, group, name, {0: 1})
    assert committed(kafka, group, name) == {0: 1}


def test_a_broker_that_is_down_is_one_warning(tmp_path: Path) -> None:
    source = KafkaSource("127.0.0.1:1", "spend", group="lag")
    warnings: list[str] = []
    with GroupOffsets(as_graph(pipeline_of(source, tmp_path)), warnings.append) as groups:
        report = groups.committing(lambda _: None)
        for epoch in range(3):
            report(step(epoch))
    (warning,) = warnings
    assert warning.startswith("no Kafka broker can be reached at 127.0.0.1:1: ")
    assert warning.endswith("; the run continues, but the group shows no lag until a commit succeeds")


def test_a_group_that_may_not_be_used_is_said_with_what_to_grant() -> None:
    error = denied(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "lag", "h:1")
    assert str(error) == "the consumer group lag at h:1 may not be used with these options: grant READ on it"


class Commits:
    """What is committed instead to a broker; while it `waits` or `fails`, nothing is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[Mapping[int, int]] = []
        self.tries = 0
        self.fails = False
        self.waits = threading.Event()
        self.waits.set()

        def commit(_: ConsumerGroup, offsets: Mapping[int, int], __: float) -> None:
            self.tries += 1
            assert self.waits.wait(SECONDS)
            if self.fails:
                message = "no Kafka broker can be reached"
                raise SourceUnavailableError(message)
            self.found.append(offsets)

        monkeypatch.setattr(ConsumerGroup, "commit", commit)


def test_no_step_waits_and_the_newest_offsets_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits(monkeypatch)
    commits.waits.clear()
    seen: list[int] = []
    with GroupOffsets(as_graph(pipeline_of(KafkaSource("h:1", "spend", group="lag"), tmp_path)), pytest.fail) as groups:
        report = groups.committing(lambda one: seen.append(one.epoch))
        report(step(0))
        wait_until(lambda: commits.tries, "a commit")
        for epoch in range(1, 100):
            report(step(epoch))
        assert seen == list(range(100))
        commits.waits.set()
    assert commits.found == [{0: 0}, {0: 99}]


def test_what_failed_is_tried_again_and_warned_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_PAUSE", 0.001)
    monkeypatch.setattr(group_offsets, "_RENEW", 0.001)
    commits, warnings = Commits(monkeypatch), list[str]()
    source = KafkaSource("h:1", "spend", group="lag")
    with GroupOffsets(as_graph(pipeline_of(source, tmp_path)), warnings.append) as groups:
        report = groups.committing(lambda _: None)
        for outages in (1, 2):
            commits.fails = True
            before = commits.tries
            report(step(outages))
            wait_until(lambda before=before: commits.tries > before + 3, "retries", pause=0.001)  # type: ignore[misc]
            commits.fails = False
            # and what is not new is committed again now and then, so that the broker does not forget it
            repeated = [{0: outages}] * 2
            wait_until(lambda repeated=repeated: commits.found[-2:] == repeated, "a commit", pause=0.001)  # type: ignore[misc]
            assert len(warnings) == outages


def step(epoch: int) -> StepReport:
    return replace(STEP, epoch=epoch, offsets={0: epoch})


def pipeline_of(source: KafkaSource, folder: Path) -> Runnable:
    return spend(source, SqliteSink(str(folder / "spend.db"), "spend"))
