"""What is said of a realtime run from outside: how far it is, that it has ended, and keys in two partitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from unittest.mock import Mock
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError, KafkaException
from tests.graphs import as_graph
from tests.runtime.realtime_jobs import ends_of, feed, open_jobs, until_read, window_pipeline
from tests.short_forms import Pipeline
from tests.waiting import join, wait_until

from windrow.authoring.printing import to_yaml
from windrow.cli import main
from windrow.connectors.kafka.read import CommittedOffsets
from windrow.errors import RunError, SourceUnavailableError
from windrow.runtime.realtime.key_sample import KeyWatch, sample_keys
from windrow.runtime.realtime.progress import Positions, Progress
from windrow.runtime.realtime.stopping import Announced, StopRequests, announce, announced, stop_run
from windrow.runtime.realtime.supervise import serve
from windrow.runtime.realtime.topics import prepare_topics
from windrow.telemetry.reports import StepReport
from windrow.testing.servers.kafka import Kafka


@pytest.fixture
def pipeline(kafka: Kafka, topic: Callable[..., str]) -> Pipeline:
    """A pipeline over two partitions."""
    return window_pipeline(kafka.servers, topic(2), f"p-{uuid4().hex[:8]}")


def topic_of(pipeline: Pipeline) -> str:
    return open_jobs(pipeline)[0].source.topic


def invoke(command: str, pipeline: Pipeline, folder: Path, *options: str) -> Result:
    file = folder / "pipeline.yaml"
    file.write_text(to_yaml(as_graph(pipeline)))
    return CliRunner().invoke(main, [command, str(file), *options])


def test_status_says_how_far_it_is(kafka: Kafka, pipeline: Pipeline, tmp_path: Path) -> None:
    feed(kafka, topic_of(pipeline), 0, 100, partitions=2)
    before = invoke("status", pipeline, tmp_path).output.splitlines()
    assert before[:2] == [
        f"{pipeline.name}: 200 offsets behind in 2 partitions",
        "  partition 0: nothing committed of 100, 100 behind; it has never run",
    ]
    jobs = open_jobs(pipeline)
    serve(jobs, until_read(jobs, ends_of(pipeline)))
    feed(kafka, topic_of(pipeline), 100, 7, partitions=1)
    after = invoke("status", pipeline, tmp_path).output.splitlines()
    assert after[0] == f"{pipeline.name}: 7 offsets behind in 2 partitions"
    assert after[1].startswith("  partition 0: offset 100 of 107, 7 behind; ended, begun 20")
    assert after[3].startswith(f"{pipeline.name}.alerts: ")
    assert any(line.startswith("read to decided") for line in after)


def test_what_a_run_has_read_counts_from_its_first_offset_on(kafka: Kafka, pipeline: Pipeline) -> None:
    """Also what was read before the first report; not what an earlier run has read."""
    feed(kafka, topic_of(pipeline), 0, 100, partitions=2)
    reports: list[StepReport] = []
    for run, records in (("first", 200), ("second", 40)):
        watch = Progress(as_graph(pipeline), run, [0, 1], on_trouble=pytest.fail)
        if run == "second":
            watch.report(reports.append)
            feed(kafka, topic_of(pipeline), 100, 20, partitions=2)
        jobs = open_jobs(pipeline, run)
        serve(jobs, until_read(jobs, ends_of(pipeline)))
        watch.report(reports.append)
        assert reports[-1].records == records
    assert [one.records for one in reports] == [200, 0, 40]
    Progress(as_graph(pipeline), "second", [0, 1], on_trouble=pytest.fail).report(reports.append)
    assert reports[-1].records == 40


def test_a_run_that_is_starting_is_shown_and_can_be_stopped(kafka: Kafka, pipeline: Pipeline, tmp_path: Path) -> None:
    prepare_topics(as_graph(pipeline))
    run = Announced("first", 1_760_000_000.0)
    announce(as_graph(pipeline), run)
    lines = invoke("status", pipeline, tmp_path).output.splitlines()
    assert lines[1].endswith("0 behind; starting, begun 2025-10-09 08:53:20")
    assert json.loads(invoke("status", pipeline, tmp_path, "--json").output)["starting"] == {
        "run": "first",
        "begun": 1_760_000_000.0,
    }
    with pytest.raises(RunError, match="has not ended after 0 s, as it is still starting"):
        stop_run(as_graph(pipeline), 0)
    with StopRequests(as_graph(pipeline), "first") as requests:
        wait_until(requests.is_asked, "the request to stop")
    announce(as_graph(pipeline), replace(run, ended=True))
    assert invoke("status", pipeline, tmp_path).output.splitlines()[1].endswith("it has never run")
    with pytest.raises(RunError, match="is active: it never ran"):
        stop_run(as_graph(pipeline), 0)
    # one that has committed is not starting
    feed(kafka, topic_of(pipeline), 0, 100, partitions=2)
    announce(as_graph(pipeline), Announced("second", 1_760_000_000.0))
    jobs = open_jobs(pipeline, "second")
    serve(jobs, until_read(jobs, ends_of(pipeline)))
    assert announced(as_graph(pipeline)) == Announced("second", 1_760_000_000.0)
    assert invoke("status", pipeline, tmp_path).output.splitlines()[1].split("; ")[1].startswith("ended, begun ")
    with pytest.raises(RunError, match="each has ended"):
        stop_run(as_graph(pipeline), 0)


def test_stop_ends_a_run_with_its_transactions_finished(kafka: Kafka, pipeline: Pipeline, tmp_path: Path) -> None:
    feed(kafka, topic_of(pipeline), 0, 100, partitions=2)
    assert "no run of" in invoke("stop", pipeline, tmp_path).stderr

    def task() -> None:
        with StopRequests(as_graph(pipeline), "first") as requests:
            serve(open_jobs(pipeline, "first"), requests.is_asked)

    running = Thread(target=task)
    running.start()
    try:
        done = until_read(open_jobs(pipeline), ends_of(pipeline), turns=100_000)
        wait_until(lambda: not running.is_alive() or done(), "the end of the topic")
        assert running.is_alive()
        stopped = invoke("stop", pipeline, tmp_path, "--json")
    finally:
        join(running)
    assert json.loads(stopped.stdout)["offsets"] == {str(number): at for number, at in ends_of(pipeline).items()}
    # the request was to that run: the next one goes on
    with StopRequests(as_graph(pipeline), "second") as requests:
        jobs = open_jobs(pipeline, "second")
        feed(kafka, topic_of(pipeline), 100, 100, partitions=2)
        serve(jobs, until_read(jobs, ends_of(pipeline)))
        assert not requests.is_asked()
    assert [one.lag for one in Positions(as_graph(pipeline)).ask()] == [0, 0]


def test_a_run_that_died_cannot_be_stopped(pipeline: Pipeline) -> None:
    for job in open_jobs(pipeline):
        job.open().abandon()
    with pytest.raises(RunError, match=r"has not ended after 0 s, in partition 0, 1: .* if it has died"):
        stop_run(as_graph(pipeline), 0)


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._WAIT_COORD, KafkaError.NOT_COORDINATOR])  # noqa: SLF001
def test_a_group_coordinator_that_does_not_answer_is_an_outage(code: int) -> None:
    """A run reports an outage, and goes on; librdkafka's admin client would end the process at the last of these."""
    committed = CommittedOffsets("g", "cards", {"bootstrap.servers": "h:9092"})
    committed._consumer = Mock(committed=Mock(side_effect=KafkaException(KafkaError(code))))  # noqa: SLF001 - no broker
    with pytest.raises(SourceUnavailableError):
        committed.ask([0, 1], 1.0)


def test_keys_in_two_partitions_are_counted(kafka: Kafka, pipeline: Pipeline) -> None:
    warned: list[str] = []
    source = topic_of(pipeline)
    feed(kafka, source, 0, 200, partitions=2)
    apart = sample_keys(as_graph(pipeline))
    assert (apart.keys, apart.met) == (40, 0)
    record = {"id": "x", "t": 1_760_000_000_000, "amount": 1.0}
    for partition in range(2):
        # of one card in its own partition and in the other one, and of a card of its own
        cards = ["card 0 1", f"only {partition}"]
        kafka.produce(source, partition, [json.dumps({**record, "card": card}).encode() for card in cards])
    watch = KeyWatch(as_graph(pipeline), warned.append)
    for _ in range(2):
        watch.look()
    assert len(warned) == 1
    assert warned[0].startswith("1 of 42 keys in the last 1,000 records of each partition are in two or more")
