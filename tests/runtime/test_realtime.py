"""The loops of the realtime host against a real broker, without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from tests.graphs import Runnable, as_graph
from tests.runtime.realtime_jobs import (
    Committed,
    Written,
    cards,
    deduplicated_graph,
    ends_of,
    expected,
    feed,
    open_jobs,
    process_pipeline,
    rules_pipeline,
    until_read,
    window_pipeline,
    written,
)
from tests.servers.registry import SchemaRegistry
from tests.waiting import join, wait_until

import windrow as wr
from windrow.authoring.load import open_pipeline
from windrow.authoring.printing import to_yaml
from windrow.cli import main
from windrow.connectors.kafka.lists import ListWatch
from windrow.connectors.kafka.read import Tail
from windrow.connectors.open_sources import with_lists
from windrow.engine.lists import lists_of
from windrow.errors import InputError, RunError, SinkUnavailableError, SourceError, SourceUnavailableError
from windrow.model import AvroFormat, KafkaSink, KafkaSource, Registry
from windrow.runtime.realtime import partition
from windrow.runtime.realtime.journal import read_journal
from windrow.runtime.realtime.partition import FencedError, Owner, Partition, PartitionRun
from windrow.runtime.realtime.stamps import last_latencies
from windrow.runtime.realtime.supervise import serve
from windrow.runtime.realtime.topics import missing_topics, prepare_topics, source_of, topic_lists
from windrow.runtime.replay import ReplayOptions
from windrow.testing.servers.kafka import Kafka
from windrow.tools.backtest.compare import back_test

Make = Callable[[str, str, str], Runnable]


def run_twice(kafka: Kafka, source: str, pipeline: Runnable) -> None:
    """Feed and run a pipeline, the second time from the state of the first; compare what it wrote."""
    for first in (0, 400):
        feed(kafka, source, first, 400, partitions=2)
        jobs = open_jobs(pipeline)
        serve(jobs, until_read(jobs, ends_of(pipeline)))
    for name, values in expected(pipeline).items():
        assert written(kafka.servers, name) == values


@pytest.mark.parametrize("make", [process_pipeline, window_pipeline, deduplicated_graph, rules_pipeline])
def test_it_writes_what_the_memory_host_gives(kafka: Kafka, topic: Callable[..., str], make: Make) -> None:
    source = topic(2)
    run_twice(kafka, source, make(kafka.servers, source, f"p-{uuid4().hex[:8]}"))


def test_it_writes_records_with_a_schema(kafka: Kafka, topic: Callable[..., str]) -> None:
    source = topic(2)
    pipeline = window_pipeline(kafka.servers, source, f"p-{uuid4().hex[:8]}")
    assert isinstance(pipeline.sink, KafkaSink)
    with SchemaRegistry(is_strict=True) as registry:
        encoding = AvroFormat(Registry(registry.url, (("max.retries", "0"),)))
        pipeline = replace(pipeline, sink=replace(pipeline.sink, format="upsert", encoding=encoding))
        run_twice(kafka, source, pipeline)
        name = pipeline.sink.table
        assert {value[:1] for values in written(kafka.servers, name).values() for value in values if value} == {b"\0"}
        assert [len(registry.versions(f"{name}-{part}")) for part in ("key", "value")] == [1, 1]
        registry.status = 503
        for attempt in (lambda: prepare_topics(as_graph(pipeline)), lambda: missing_topics(as_graph(pipeline))):
            with pytest.raises(SourceUnavailableError, match="cannot answer now"):
                attempt()


def turns(jobs: list[Partition], count: int) -> list[PartitionRun]:
    """Open partitions and go through their loops; nothing is closed."""
    runs = [job.open() for job in jobs]
    for _ in range(count):
        for run in runs:
            run.turn()
    return runs


def many_turns(run: PartitionRun, count: int) -> None:
    """Go through the loop of a partition."""
    for _ in range(count):
        run.turn()


def turn_until_read(run: PartitionRun, end: int) -> None:
    """Go through the loop of a partition until it is at an offset."""
    deadline = time.monotonic() + 60
    while run.position < end:
        assert time.monotonic() < deadline, f"read to {run.position} of {end}"
        run.turn()


def test_what_was_not_committed_is_decided_again(
    kafka: Kafka, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that die with a transaction open, at any turn, with checkpoints that are seldom whole."""
    monkeypatch.setattr(partition, "_CHECKPOINT_EVERY", 0.05)
    monkeypatch.setattr(partition, "_CHECKPOINT_BYTES", 500)
    monkeypatch.setattr(partition, "_POLL_RECORDS", 40)
    source = topic(1)
    pipeline = deduplicated_graph(kafka.servers, source, f"p-{uuid4().hex[:8]}")
    for number in range(6):
        feed(kafka, source, 200 * number, 200, partitions=1)
        left = turns(open_jobs(pipeline, f"run {number}"), 3 + 5 * number)
        # a transaction is left open, as `kill -9` leaves it
        left[0]._send(f"{pipeline.name}.alerts", 0, b"{}", b"never decided", [])  # noqa: SLF001 - it has no other way
    jobs = open_jobs(pipeline)
    serve(jobs, until_read(jobs, ends_of(pipeline)))
    for name, values in expected(pipeline).items():
        assert written(kafka.servers, name) == values


def test_a_poll_does_not_wait_for_more_than_there_is(kafka: Kafka, topic: Callable[..., str]) -> None:
    source = topic(1)
    feed(kafka, source, 0, 20, partitions=1)
    tail = Tail(source, 0, {"bootstrap.servers": kafka.servers}, f"p-{uuid4().hex[:8]}")
    tail.seek(0)
    begin, read = time.monotonic(), 0
    while read < 20:
        batch = tail.poll(1000, 60.0)
        read += 0 if batch is None else batch.num_rows
    tail.close()
    assert time.monotonic() - begin < 30


def test_who_was_taken_over_writes_nothing_more(kafka: Kafka, topic: Callable[..., str]) -> None:
    source = topic(1)
    pipeline = window_pipeline(kafka.servers, source, f"p-{uuid4().hex[:8]}")
    feed(kafka, source, 0, 200, partitions=1)
    (zombie,) = turns(open_jobs(pipeline, "first"), 5)
    (run,) = turns(open_jobs(pipeline, "second"), 5)
    feed(kafka, source, 200, 200, partitions=1)
    with pytest.raises(FencedError, match="is run by another task now"):
        many_turns(zombie, 200)
    owner = open_jobs(pipeline)[0].last_owner()
    assert owner is not None
    assert owner.is_task_of(Owner("second", 0))
    many_turns(run, 2)
    jobs = open_jobs(pipeline, "third")
    serve(jobs, until_read(jobs, ends_of(pipeline)))
    for name, values in expected(pipeline).items():
        assert written(kafka.servers, name) == values


def failing(ctx: Any, record: Mapping[str, Any]) -> None:  # noqa: ANN401 - the public context
    """Fail at one record."""
    if record["id"].endswith("-7"):
        message = "seven"
        raise ValueError(message)
    ctx.emit(id=record["id"])


def failing_for_now(*_: object) -> None:
    """Raise what would be tried again for minutes, if it were not a function's."""
    message = "it does not answer"
    raise SinkUnavailableError(message)


def exiting(*_: object) -> None:
    """End the process, for what it can."""
    sys.exit(0)


@pytest.mark.parametrize("function", [failing, failing_for_now, exiting])
def test_a_failure_that_repeats_stops_the_run_and_says_where(
    kafka: Kafka, topic: Callable[..., str], function: Callable[[Any, Any], None]
) -> None:
    source, name = topic(1), f"p-{uuid4().hex[:8]}"
    pipeline = (
        cards(kafka.servers, source)
        .key_by("card")
        .process(function, state={}, returns={"id": "string"})
        .to(wr.kafka_sink(f"{name}.alerts", servers=kafka.servers), name=name, mode="realtime")
        .graph
    )
    feed(kafka, source, 0, 20, partitions=1)
    jobs = open_jobs(pipeline)
    place = rf"{function.__name__} failed at partition 0, offset \d+ of {source}, key card='"
    with pytest.raises(RunError, match=rf"partition 0 of {source} failed twice after offset 0: .*{place}"):
        serve(jobs, until_read(jobs, ends_of(pipeline)))
    # what failed is not decided: it is read again when the function is mended
    assert Committed(jobs).offsets().get(0, 0) == 0


def test_another_pipeline_does_not_take_the_state(kafka: Kafka, topic: Callable[..., str]) -> None:
    source = topic(1)
    pipeline = window_pipeline(kafka.servers, source, f"p-{uuid4().hex[:8]}")
    turns(open_jobs(pipeline), 2)
    other = replace(pipeline, emit=replace(pipeline.emit, lateness=0))
    with pytest.raises(InputError, match="has changed in emit since its state in the topic"):
        open_jobs(other)[0].open()
    kafka.add_partitions(source, 2)
    with pytest.raises(InputError, match="has 2 partitions, but had 1"):
        open_jobs(pipeline)


@pytest.mark.long
def test_what_was_read_is_judged_by_the_rules_and_lists_of_then(
    kafka: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The state is that of the first offset, so that each run judges again all that was committed."""
    source, name, blocked = topic(2), f"p-{uuid4().hex[:8]}", tmp_path / "blocked.txt"
    lists = {"blocked": wr.list_file(str(blocked))}
    fewer = [wr.rule("blocked", when="card in blocked", say="now {amount}"), wr.rule("large", when="amount > 100")]
    before: dict[str, Written] = {}
    for number, (entries, rules, last) in enumerate(
        [("card 0 1\ncard 1 1", [], 16), ("card 0 2", [], 16), ("card 0 1", fewer, 4), ("", [], 16)]
    ):
        blocked.write_text(entries)
        pipeline = rules_pipeline(kafka.servers, source, name, lists=lists, rules=rules, last=last)
        feed(kafka, source, 300 * number, 300, partitions=2)
        # what was not committed is decided again
        turns(open_jobs(pipeline, f"lost {number}"), 2)
        jobs = open_jobs(pipeline, f"run {number}")
        serve(jobs, until_read(jobs, ends_of(pipeline)))
        now = {one: written(kafka.servers, one) for one in expected(pipeline)}
        for one, values in expected(pipeline).items():
            assert now[one] == values
            assert all(values[key][: len(known)] == known for key, known in before.get(one, {}).items())
        before = now


def test_a_list_changes_while_it_runs(kafka: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """Entries come and go between polls; runs die and begin again, and no alert is another one, nor in a back-test."""
    source, blocked, name = topic(2), topic(1, cleanup_policy="compact"), f"p-{uuid4().hex[:8]}"
    lists = {"blocked": wr.list_topic(blocked, key="card")}
    pipeline = rules_pipeline(kafka.servers, source, name, lists=lists)
    before: dict[str, Written] = {}
    writer = Producer({"bootstrap.servers": kafka.servers})
    for number in range(2):
        running = turns(open_jobs(pipeline, f"run {number}"), 1)
        for part in range(4):
            feed(kafka, source, 600 * number + 150 * part, 150, partitions=2)
            for run in running:
                turn_until_read(run, 600 * number + 150 * (part + 1))
            card = json.dumps({"card": f"card {part % 2} {part + number}"})
            writer.produce(blocked, None if part == 3 else b"{}", card.encode())
            assert writer.flush(10) == 0
        feed(kafka, source, 600 * number + 600, 50 * number, partitions=2)
        left = turns(open_jobs(pipeline, f"lost {number}"), 2)
        # a move that was not committed did not happen
        writer.produce(blocked, b"{}", json.dumps({"card": f"card 0 {10 + number}"}).encode())
        assert writer.flush(10) == 0
        many_turns(left[0], 2)
        jobs = open_jobs(pipeline, f"again {number}")
        serve(jobs, until_read(jobs, ends_of(pipeline)))
        now = {one: written(kafka.servers, one) for one in expected(pipeline)}
        for one, values in expected(pipeline).items():
            assert now[one] == values
            assert all(values[key][: len(known)] == known for key, known in before.get(one, {}).items())
        before = now
    alerts = [json.loads(value or b"") for values in before[f"{name}.alerts"].values() for value in values]
    assert {row["rule"] for row in alerts} == {"blocked", "burst", "large", "testing"}
    standing = sum(json.loads(values[-1] or b"")["op"] != "delete" for values in before[f"{name}.alerts"].values())
    options = ReplayOptions(tmp_path, end="log", journal=False, host="memory")
    found = back_test(as_graph(pipeline), pipeline.rules, options, lambda _: None, lambda _: None)
    assert found != "asked"
    assert (found.all.old.alerts, found.is_same) == (standing, True)
    assert len({row.offset for row in read_journal(as_graph(pipeline)).changes if row.partition == 0}) > 4


def test_a_key_that_is_no_entry_is_reported_with_its_place_and_stops_nothing(
    kafka: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    source, blocked = topic(1), topic(1, cleanup_policy="compact")
    lists = {"blocked": wr.list_topic(blocked, key="card")}
    pipeline = rules_pipeline(kafka.servers, source, f"p-{uuid4().hex[:8]}", lists=lists)
    writer = Producer({"bootstrap.servers": kafka.servers})

    def write(*keys: bytes, value: bytes | None = b"1") -> None:
        for key in keys:
            writer.produce(blocked, value, key)
        assert writer.flush(10) == 0

    write(b"card 1", b"[]")
    jobs, warnings = open_jobs(pipeline), list[str]()
    watch = ListWatch(topic_lists(as_graph(pipeline)), source_of(as_graph(pipeline)), warnings.append)
    place = f"the list 'blocked': the key of partition 0, offset %d of topic {blocked} is not a JSON object with a "
    assert len(warnings) == 1
    assert warnings[0].startswith(place % 0)
    assert "write null with that key, then the right key (and 1 more of its keys)" in warnings[0]
    (run,) = (job.open() for job in jobs)
    # one comes while it runs, and a right one behind it
    write(b"{}", b'{"card": "card 0 3"}')
    feed(kafka, source, 0, 200, partitions=1)
    many_turns(run, 20)

    def is_reported() -> bool:
        watch.look()
        return len(warnings) == 2

    wait_until(is_reported, "a report")
    assert warnings[1].startswith(place % 2)
    run.close()
    serve(jobs, until_read(jobs, ends_of(pipeline)))
    for name, values in expected(pipeline).items():
        assert written(kafka.servers, name) == values
    assert any(change.added for change in read_journal(as_graph(pipeline)).changes)
    file = tmp_path / "pipeline.yaml"
    file.write_text(to_yaml(as_graph(pipeline)))
    status = windrow("status", str(file))["lists"]["blocked"]
    assert (status["entries"], len(status["wrong"])) == (1, 3)
    # null mends it, on other hosts too
    write(b"card 1", b"[]", value=None)
    found = list[str]()
    given = with_lists(as_graph(pipeline), found.append)
    assert lists_of(given)[0].entries == ("card 0 3",)
    assert [one.startswith(place % 2) for one in found] == [True]
    watch.close()
    lists = {"blocked": wr.list_topic("nowhere")}
    with pytest.raises(SourceError, match="there is no topic nowhere"):
        open_jobs(rules_pipeline(kafka.servers, source, "p", lists=lists))


def test_changes_have_stamps_in_order(kafka: Kafka, topic: Callable[..., str]) -> None:
    source = topic(1, message_timestamp_type="LogAppendTime")
    pipeline = process_pipeline(kafka.servers, source, f"p-{uuid4().hex[:8]}")
    feed(kafka, source, 0, 300, partitions=1)
    jobs = open_jobs(pipeline)
    serve(jobs, until_read(jobs, ends_of(pipeline)))
    records, found = last_latencies(KafkaSource(kafka.servers, f"{pipeline.name}.alerts"))
    assert records > 0
    steps = ["event to logged", "logged to read", "read to decided", "decided to appended", "in all, since logged"]
    assert list(found) == steps
    spans = [values for name, values in found.items() if name != "event to logged"]
    assert all(0 <= values["p50"] <= values["max"] for values in spans)


@pytest.mark.parametrize("is_committed", [True, False])
def test_latencies_wait_for_a_transaction_that_is_ending(
    is_committed: bool,  # noqa: FBT001 - a parameter of the test
    kafka: Kafka,
    topic: Callable[..., str],
) -> None:
    changes = topic(1)
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": f"t-{uuid4().hex[:8]}"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(changes, "{}", headers={"decided": "1"})
    producer.flush()
    end = Timer(1, producer.commit_transaction if is_committed else producer.abort_transaction)
    end.start()
    records, _ = last_latencies(KafkaSource(kafka.servers, changes))
    join(end)
    assert records == int(is_committed)


PIPELINE = """\
name: {name}
mode: realtime
source: {{kafka: {{servers: "{servers}", topic: {topic}}}}}
decode: {{id: string, card: string, t: timestamp_millis, amount: double}}
time: {{field: t, delay: 10s}}
key: [card]
window: {{tumbling: 1m}}
aggregate: {{purchases: count(), most: max(amount)}}
emit: {{lateness: 30s}}
sink: {{kafka: {{servers: "{servers}", topic: {name}.alerts}}}}
"""


@pytest.mark.service
def test_spark_runs_it_and_starts_a_worker_again(kafka: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    source, name = topic(2), f"p-{uuid4().hex[:8]}"
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(name=name, servers=kafka.servers, topic=source))
    pipeline = open_pipeline(str(file)).runnable()
    committed = Committed(open_jobs(pipeline))
    feed(kafka, source, 0, 200, partitions=2)
    command = [
        sys.executable,
        "-m",
        "windrow",
        "run",
        str(file),
        "--checkpoint",
        str(tmp_path / "checkpoint"),
        "--json",
    ]
    command += ["--master", "local[2]"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            wait_until(lambda: committed.offsets() == ends_of(pipeline), "the end of the topic", 120, 0.1)
            for worker in workers(run.pid):
                os.kill(worker, signal.SIGKILL)
            feed(kafka, source, 200, 200, partitions=2)
            wait_until(lambda: committed.offsets() == ends_of(pipeline), "the end of the topic", 120, 0.1)
            going_on, stopped, ended = (windrow(one, str(file)) for one in ("status", "stop", "status"))
            out, _ = run.communicate(timeout=60)
        finally:
            run.kill()
    assert json.loads(out)["ended"] == "asked"
    assert stopped["offsets"] == {str(number): at for number, at in ends_of(pipeline).items()}
    assert [one["ended"] for one in going_on["partitions"]] == [False, False]
    assert [one["ended"] for one in ended["partitions"]] == [True, True]
    assert ended["behind"] == 0
    assert ended["topics"][f"{name}.alerts"]["milliseconds"]["read to decided"]["max"] >= 0
    for one, values in expected(pipeline).items():
        assert written(kafka.servers, one) == values


def windrow(command: str, file: str) -> Any:  # noqa: ANN401 - plain JSON
    """Run a command; return what it prints."""
    result = CliRunner().invoke(main, [command, file, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def workers(pid: int) -> list[int]:
    """Return the Python workers of a run: forks of the daemons, which are forks of the run's server."""
    listed = subprocess.run(["/bin/ps", "-wweo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    parents = {int(one): int(parent) for one, parent, words in rows if "-m windrow.runtime.spark.fork_server" in words}
    return [one for one, parent in parents.items() if parents.get(parents.get(parent, 0)) == pid]
