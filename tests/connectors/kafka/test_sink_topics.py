"""The Kafka sink keeps what sinks promise: each step once for readers of what is committed, by one run."""

from __future__ import annotations

import json
import pickle
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from tests.contracts.child import Halting
from tests.contracts.steps import DAY, RUN, change, pipeline, step
from tests.contracts.test_sink_follows import CLOCK_ROWS, JOURNAL, NEXT
from tests.graphs import sink_spec_of
from tests.servers.registry import SchemaRegistry
from tests.short_forms import Pipeline
from tests.waiting import join, wait_until

import windrow as wr
from windrow.authoring.pipeline_file import read_document
from windrow.connectors.kafka.producer import TransactionalProducer
from windrow.connectors.kafka.sink import KafkaTopics
from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.sink import Follows, Run
from windrow.engine.changelog import StepOutput
from windrow.engine.schema import CLOCKS
from windrow.errors import SinkError, SinkUnavailableError
from windrow.model import AvroFormat, JsonSchemaFormat, KafkaSink, KafkaSource, ProtobufFormat, Registry
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.testing.servers.kafka import Kafka


@pytest.fixture
def model(kafka: Kafka) -> Pipeline:
    """The pipeline of the contract into topics that are not there yet."""
    return pipeline(KafkaSink(kafka.servers, f"spend-{uuid.uuid4().hex[:12]}"))


def records(model: Pipeline, companion: str = "") -> list[tuple[bytes | None, bytes | None]]:
    """What a reader of committed records finds in a topic, by partition."""
    assert isinstance(model.sink, KafkaSink)
    source = KafkaSource(model.sink.servers, model.sink.topic + companion)
    return [
        pair
        for batch in KafkaTopic(source).read_all()
        for pair in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]


def values(model: Pipeline, companion: str = "") -> list[dict[str, Any]]:
    return [json.loads(value or b"null") for _, value in records(model, companion)]


def users(model: Pipeline) -> list[str]:
    return sorted(one["user"] for one in values(model))


def sums(model: Pipeline, *names: str) -> StepOutput:
    return step(model, [change("insert", 0, name, Decimal(1), 1) for name in names])


def committed(model: Pipeline, *steps: StepOutput, run: Run = RUN) -> None:
    with closing(KafkaTopics(sink_spec_of(model))) as sink:
        last = sink.open(run)
        for epoch, output in enumerate(steps, 0 if last is None else last + 1):
            sink.commit(epoch, output)


def test_each_kind_of_rows_is_in_its_topic(model: Pipeline) -> None:
    late = [["spend", 3, 2**40, DAY, DAY, DAY, 90_000, "expired", '{"user":"a"}']]
    dead = [["spend", 0, 7, DAY, "malformed: not UTF-8", b"\xff"], ["spend", 1, 8, None, "malformed: no value", None]]
    first = step(model, [change("insert", 0, "A", Decimal("7.00"), 2), change("insert", 0, "B", Decimal(3), 1)])
    changes = [
        change("update_before", 0, "A", Decimal("7.00"), 2),
        change("update_after", 0, "A", Decimal("8.00"), 3, pane="late", revision=1),
        change("delete", 0, "B", Decimal(3), 1, pane="late", revision=1),
    ]
    committed(model, first, step(model, changes, late=late, dead=dead, clocks=CLOCK_ROWS[0]))
    found = {(one["user"], one["op"]): (one["total"], one["pane"], one["revision"]) for one in values(model)}
    assert found == {
        ("A", "insert"): ("7.00", "on_time", 0),
        ("B", "insert"): ("3.00", "on_time", 0),
        ("A", "update_after"): ("8.00", "late", 1),
        ("B", "delete"): ("3.00", "late", 1),
    }
    assert [one["record"] for one in values(model, ".late")] == ['{"user":"a"}']
    assert sorted(records(model, ".dead")) == [(b"spend/0/7", b"\xff"), (b"spend/1/8", None)]
    keys = [key for key, _ in records(model)]
    assert json.loads(keys[0] or b"")["window_start"] == "2026-01-01T00:00:00.000000Z"


def test_what_its_topic_cannot_take_of_late_records_and_dead_letters_is_cut(kafka: Kafka, model: Pipeline) -> None:
    assert isinstance(model.sink, KafkaSink)
    # of more than the client sends, and of more than the topic takes
    kafka.create_topic(f"{model.sink.topic}.late", 1, {"max.message.bytes": "200000"})
    raw, small, record = b"\xff" * 3_000_000, b"\xfe" * 900_000, json.dumps({"user": '"' * 150_000})
    dead: list[list[Any]] = [
        ["spend", 0, 7, None, "malformed: not UTF-8", raw],
        ["spend", 0, 8, None, "malformed: not UTF-8", small],
        ["sums", None, None, None, f"expression: {'x' * 2_000_000}", b"{}"],
    ]
    late = [["spend", 3, 2**40, DAY, DAY, DAY, 90_000, "expired", record]]
    # which the topic takes one by one
    noise = "".join(sha256(str(number).encode()).hexdigest() for number in range(1_500))
    late += [["spend", 3, offset, DAY, DAY, DAY, 90_000, "expired", f"{noise}{offset}"] for offset in range(20)]
    committed(model, step(model, [], late=late, dead=dead))
    wait_until(
        lambda: len(records(model, ".late")) == len(late) and len(records(model, ".dead")) == len(dead), "the records"
    )
    assert dict(records(model, ".dead")) == {b"spend/0/7": raw[:65_536], b"spend/0/8": small, b"sums": b"{}"}
    (found,) = (one for one in values(model, ".late") if one["offset"] == 2**40)
    assert found["record"] == record[:65_536]
    assert found["reason"] == (
        f"expired: record has the first 65,536 of {len(record):,} bytes, SHA-256 {sha256(record.encode()).hexdigest()}"
    )


def test_a_step_is_written_once_and_a_gap_is_refused(model: Pipeline) -> None:
    with closing(KafkaTopics(sink_spec_of(model))) as sink:
        assert sink.open(RUN) is None
        sink.commit(0, sums(model, "A"))
        sink.commit(0, sums(model, "never"))
        with pytest.raises(SinkError, match=r"received step 2 but expects step 1.*--fresh"):
            sink.commit(2, sums(model, "never"))
        assert sink.open(RUN) == 0
        sink.commit(0, sums(model, "never"))
        sink.commit(1, step(model))
    with closing(KafkaTopics(sink_spec_of(model))) as sink:
        assert sink.open(RUN) == 1
        sink.commit(2, sums(model, "B"))
    assert users(model) == ["A", "B"]
    with pytest.raises(SinkError, match="not open"):
        sink.commit(3, sums(model, "C"))


def test_another_run_is_refused_until_the_topics_are_cleared(model: Pipeline) -> None:
    committed(model, sums(model, "A"))
    other = KafkaTopics(sink_spec_of(model))
    with pytest.raises(SinkError, match=r"topic .* holds the rows of another run .*--fresh"):
        other.open(NEXT)
    committed(model, sums(model, "B"))  # it was not disturbed
    stranger = pipeline(model.sink, name="other")
    with pytest.raises(SinkError, match=r"topic .* belongs to pipeline 'spend'"):
        KafkaTopics(sink_spec_of(stranger)).open(Run("other", "run-9"))
    with pytest.raises(SinkError, match=r"topic .* belongs to pipeline 'spend'"):
        KafkaTopics(sink_spec_of(stranger)).clear()
    other.clear()
    assert other.open(NEXT) is None
    other.commit(0, sums(model, "C"))
    other.close()
    assert users(model) == ["C"]


def test_a_topic_with_records_of_somebody_else_is_refused(kafka: Kafka, topic: Callable[..., str]) -> None:
    name = topic(1)
    kafka.produce(name, 0, [b"v"])
    model = pipeline(KafkaSink(kafka.servers, name))
    with pytest.raises(SinkError, match=f"topic '{name}' holds rows that windrow did not write"):
        KafkaTopics(sink_spec_of(model)).open(RUN)


def test_a_run_that_follows_is_given_the_topics(model: Pipeline) -> None:
    committed(model, sums(model, "A"), sums(model, "B"))
    with pytest.raises(SinkError, match=r"is at epoch 1, but the savepoint is at epoch 0"):
        KafkaTopics(sink_spec_of(model)).open(NEXT, Follows(RUN, 0))
    with closing(KafkaTopics(sink_spec_of(model))) as before, closing(KafkaTopics(sink_spec_of(model))) as after:
        assert before.open(RUN) == 1
        assert after.open(NEXT, Follows(RUN, 1)) == 1
        after.commit(2, sums(model, "C"))
        with pytest.raises(SinkError, match=r"topic .* was taken over by another run"):
            before.commit(2, sums(model, "never"))
        assert after.open(NEXT, Follows(RUN, 1)) == 2
    with pytest.raises(SinkError, match="another run"):
        KafkaTopics(sink_spec_of(model)).open(RUN)
    assert users(model) == ["A", "B", "C"]


def test_a_topic_gets_the_rows_of_one_stream(model: Pipeline) -> None:
    with closing(KafkaTopics(sink_spec_of(model, "low"))) as sink:
        assert sink.open(RUN) is None
        sink.commit(0, sums(model, "A"))
    with closing(KafkaTopics(sink_spec_of(model, "high"))) as other:
        for refusing in (other.preflight, other.open):
            with pytest.raises(SinkError, match="has the rows of 'low', and those of 'high' would be mixed with them"):
                refusing(RUN)
        other.clear()
        assert other.open(RUN) is None


def test_who_opened_the_topics_last_writes_them(model: Pipeline) -> None:
    with closing(KafkaTopics(sink_spec_of(model))) as given_up, closing(KafkaTopics(sink_spec_of(model))) as next_one:
        given_up.open(RUN)
        given_up.commit(0, sums(model, "A"))
        assert next_one.open(RUN) == 0
        with pytest.raises(SinkError, match="opened by another process of the same run"):
            given_up.commit(1, sums(model, "never"))
        next_one.commit(1, sums(model, "B"))
        with pytest.raises(SinkError, match="opened by another process of the same run"):
            given_up.open(RUN)
    assert users(model) == ["A", "B"]


def test_records_of_another_form_do_not_follow(model: Pipeline) -> None:
    with closing(KafkaTopics(sink_spec_of(model))) as first:
        first.open(RUN)
        first.commit(0, sums(model, "A"))
    assert isinstance(model.sink, KafkaSink)
    other = replace(model, sink=replace(model.sink, format="upsert"))
    said = "has records with format: json, and the sink now has format: upsert: undo the change"
    with closing(KafkaTopics(sink_spec_of(other))) as second:
        for open_ in (second.preflight, second.open):
            with pytest.raises(SinkError, match=said):
                open_(RUN)
        second.clear()
        assert second.open(RUN) is None
    with closing(KafkaTopics(sink_spec_of(other))) as third:
        assert third.open(RUN) is None


@pytest.mark.parametrize("removes", [False, True])
def test_a_writer_of_the_topics_in_another_order_is_fenced(model: Pipeline, kafka: Kafka, *, removes: bool) -> None:
    second = pipeline(KafkaSink(kafka.servers, f"{model.sink.table}-2"))
    with closing(KafkaTopics(sink_spec_of(model), sink_spec_of(second))) as before:
        before.open(RUN)
        before.commit(0, sums(model, "A"), sums(second, "A"))
        models = (second,) if removes else (second, model)
        with closing(KafkaTopics(*map(sink_spec_of, models))) as after:
            assert after.open(NEXT, Follows(RUN, 0)) == 0
            after.commit(1, *(sums(one, "B") for one in models))
            with pytest.raises(SinkError, match=r"taken over by another run"):
                before.commit(1, sums(model, "never"), sums(second, "never"))
    assert users(second) == ["A", "B"]


def test_no_partition_of_a_realtime_run_has_the_same_fence(kafka: Kafka, topic: Callable[..., str]) -> None:
    name, other = f"spend-{uuid.uuid4().hex[:12]}", topic(1)
    settings = {"bootstrap.servers": kafka.servers}
    realtime = TransactionalProducer(
        name, settings, f"windrow-{name}-0", what="partition 0", fenced=lambda: SinkError("fenced"), timeout=10_000
    )
    realtime.start()
    realtime.begin()
    model = pipeline(KafkaSink(kafka.servers, f"{name}-0"))
    with closing(KafkaTopics(sink_spec_of(model))) as sink:
        sink.open(RUN)
        realtime.send(other, b"k", b"v")
        realtime.commit()
    realtime.abandon()


def test_a_commit_whose_answer_is_lost_is_known_when_the_topics_are_opened(
    model: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = TransactionalProducer.commit

    def lose(producer: TransactionalProducer, seconds: float) -> None:
        commit(producer, seconds)
        msg = "no answer"
        raise SinkUnavailableError(msg)

    with closing(KafkaTopics(sink_spec_of(model))) as sink:
        sink.open(RUN)
        with monkeypatch.context() as patch:
            patch.setattr(TransactionalProducer, "commit", lose)
            with pytest.raises(SinkUnavailableError, match="no answer"):
                sink.commit(0, sums(model, "A"))
        with pytest.raises(SinkError, match="not open"):
            sink.commit(0, sums(model, "A"))
        assert sink.open(RUN) == 0
        sink.commit(0, sums(model, "A"))
    assert users(model) == ["A"]


def test_a_transaction_that_the_broker_aborted_is_written_again(model: Pipeline, kafka: Kafka) -> None:
    with closing(KafkaTopics(sink_spec_of(model))) as sink:
        sink.open(RUN)
        # as the broker does after the time limit: nobody else has opened the topics
        admin = TransactionalProducer(
            model.sink.table,
            {"bootstrap.servers": kafka.servers},
            f"windrow-{model.sink.table}.clocks",
            what="",
            fenced=lambda: SinkError(""),
            timeout=10_000,
        )
        admin.start()
        admin.abandon()
        with pytest.raises(SinkUnavailableError, match="time limit"):
            sink.commit(0, sums(model, "A"))
        assert sink.open(RUN) is None
        sink.commit(0, sums(model, "A"))
    assert users(model) == ["A"]


def test_the_journal_comes_back_as_it_was_written(model: Pipeline) -> None:
    assert KafkaTopics(sink_spec_of(model)).journal().equals(CLOCKS.empty_table())
    committed(model, *(step(model, clocks=rows) for rows in CLOCK_ROWS))
    reader = pickle.loads(pickle.dumps(KafkaTopics(sink_spec_of(model))))  # noqa: S301 - our own
    assert reader.journal().equals(JOURNAL)


def test_topics_of_a_graph_are_written_in_one_transaction(model: Pipeline, kafka: Kafka) -> None:
    assert isinstance(model.sink, KafkaSink)
    second = pipeline(KafkaSink(kafka.servers, f"{model.sink.topic}-2", format="debezium"))
    with closing(KafkaTopics(sink_spec_of(model), sink_spec_of(second))) as sink:
        assert sink.open(RUN) is None
        sink.commit(0, sums(model, "A"), step(second, [change("insert", 0, "B", Decimal(1), 1)]))
        # the second output fails after the first one's records were sent
        with pytest.raises(ZeroDivisionError):
            sink.commit(1, sums(model, "never"), Broken(*vars(step(second)).values()))
        assert sink.open(RUN) == 0
        sink.commit(1, step(model), step(second, [change("delete", 0, "B", Decimal(1), 1)]))
    assert users(model) == ["A"]
    (_, insert), (key, delete), tombstone = records(second)
    row = {"window_start": "2026-01-01T00:00:00.000000Z", "window_end": "2026-01-01T00:05:00.000000Z", "user": "B"}
    image = {"pane": "on_time", "revision": 0, **row, "total": "1.00", "events": 1}
    origin = {"connector": "windrow", "name": "spend", "table": second.sink.table}
    assert json.loads(insert or b"") == {"before": None, "after": image, "source": origin, "op": "c"}
    assert json.loads(delete or b"") == {"before": image, "after": None, "source": origin, "op": "d"}
    assert json.loads(key or b"") == row
    assert tombstone == (key, None)


class Broken(StepOutput):
    """A step that cannot be read."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - as the parent
        return 1 / 0 if name == "changes" else super().__getattribute__(name)


def start_child(folder: Path, model: Pipeline, steps: Sequence[StepOutput]) -> subprocess.Popen[str]:
    paths = []
    for name, thing in (("sink", KafkaTopics(sink_spec_of(model))), ("run", RUN), ("steps", list(steps))):
        path = folder / f"{name}.pickle"
        path.write_bytes(pickle.dumps(thing))
        paths.append(str(path))
    command = [sys.executable, "-m", "tests.contracts.child", *paths]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, text=True, cwd=Path(__file__).parents[3], **pipes)  # type: ignore[call-overload, no-any-return]


def test_a_process_killed_within_a_commit_leaves_the_step_before(model: Pipeline, tmp_path: Path) -> None:
    committed(model, sums(model, "A"))
    second = step(model, [change("insert", 0, "B", Decimal(2), 2)], dead=[["spend", 0, 1, None, "malformed", b"x"]])
    halting = Halting(second.changes, second.late, second.dead, second.clocks)
    with start_child(tmp_path, model, [second, halting]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"  # after its changes, before its owner
        process.kill()
    with closing(KafkaTopics(sink_spec_of(model))) as sink:
        assert sink.open(RUN) == 0
        assert (users(model), records(model, ".dead")) == (["A"], [])
        sink.commit(1, second)
    assert users(model) == ["A", "B"]


def test_a_process_killed_at_any_time_leaves_whole_steps(model: Pipeline, tmp_path: Path) -> None:
    names = [f"user-{n}" for n in range(300)]
    steps = [step(model, [change("insert", 5 * k, name, Decimal(k), k) for name in names]) for k in range(40)]
    for kill_after in (3, 5, 4):
        with start_child(tmp_path, model, steps) as process:
            assert process.stdout is not None
            for _ in range(kill_after):
                assert process.stdout.readline()
            process.kill()
    with closing(KafkaTopics(sink_spec_of(model))) as sink:
        last = sink.open(RUN)
    assert last is not None
    assert last >= 11
    found = [(one["window_start"], one["user"]) for one in values(model)]
    assert len(found) == len(set(found)) == 300 * (last + 1)


def test_a_reader_sees_all_of_a_step_or_nothing(model: Pipeline) -> None:
    with closing(KafkaTopics(sink_spec_of(model))) as sink:
        sink.open(RUN)
        done = threading.Event()
        seen = []

        def watch() -> None:
            while not done.is_set():
                seen.append(len(records(model)))

        with _joined(threading.Thread(target=watch), done):
            for epoch in range(10):
                sink.commit(epoch, step(model, [change("insert", epoch, f"u{n}", Decimal(1), 1) for n in range(50)]))
    assert len(seen) > 1
    # a reader asks for each partition's end, one after the other
    assert sorted(seen) == seen
    assert len(records(model)) == 500


class _joined:  # noqa: N801 - a context
    def __init__(self, thread: threading.Thread, done: threading.Event) -> None:
        self._thread, self._done = thread, done

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        join(self._thread)


def test_an_upsert_is_the_row_or_nothing(kafka: Kafka, model: Pipeline) -> None:
    assert isinstance(model.sink, KafkaSink)
    given = replace(model, sink=replace(model.sink, format="upsert"))
    first = step(given, [change("insert", 0, name, Decimal(1), 1) for name in ("A", "B")])
    changes = [
        change("update_before", 0, "A", Decimal(1), 1),
        change("update_after", 0, "A", Decimal("8.00"), 3, pane="late", revision=1),
        change("delete", 0, "B", Decimal(1), 1, pane="late", revision=1),
    ]
    with closing(KafkaTopics(sink_spec_of(given))) as sink:
        assert sink.open(RUN) is None
        sink.commit(0, first)
        # what a step that fails has sent is not committed, and the step is written once
        with pytest.raises(ZeroDivisionError):
            sink.commit(1, Broken(*vars(step(given, changes)).values()))
        assert sink.open(RUN) == 0
        sink.commit(1, step(given, changes))
        sink.commit(1, step(given, changes))
    found: dict[str, list[Any]] = {"A": [], "B": []}
    for key, value in records(given):
        found[json.loads(key or b"")["user"]].append(None if value is None else json.loads(value))
    row = {"window_start": "2026-01-01T00:00:00.000000Z", "window_end": "2026-01-01T00:05:00.000000Z"}
    assert found == {
        "A": [
            {"pane": "on_time", "revision": 0, **row, "user": "A", "total": "1.00", "events": 1},
            {"pane": "late", "revision": 1, **row, "user": "A", "total": "8.00", "events": 3},
        ],
        "B": [{"pane": "on_time", "revision": 0, **row, "user": "B", "total": "1.00", "events": 1}, None],
    }
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    asked = ConfigResource(ConfigResource.Type.TOPIC, given.sink.table)
    assert admin.describe_configs([asked])[asked].result(30)["cleanup.policy"].value == "compact"


SECOND = """\
name: second
sources:
  changes:
    source: {kafka: {topic: TOPIC, servers: "SERVERS", format: debezium}}
    decode: {window_start: timestamp, user: string, total: "decimal(38,2)", events: long}
    time: {field: window_start, delay: 1d}
streams:
  latest: {from: changes, table: {key: [window_start, user]}}
sinks:
  out: {from: latest, sink: {sqlite: {path: FOLDER/second.db, table: second}}}
"""


@pytest.mark.parametrize("kind", [AvroFormat, ProtobufFormat, JsonSchemaFormat])
def test_with_a_schema_the_bytes_do_not_depend_on_steps_and_crashes(
    model: Pipeline, kind: type[AvroFormat | ProtobufFormat | JsonSchemaFormat]
) -> None:
    random, changes, there = Random(3), list[list[Any]](), set[tuple[int, str]]()
    for number in range(200):
        at = random.randrange(0, 45, 5), random.choice("abc")
        op = random.choice(["update_after", "delete"]) if at in there else "insert"
        there ^= {at} if op in {"insert", "delete"} else set()
        changes.append(change(op, *at, Decimal(random.randrange(10**6)) / 100, number, revision=number))
    assert isinstance(model.sink, KafkaSink)
    found = []
    with SchemaRegistry(is_strict=True) as registry:
        given = replace(model, sink=replace(model.sink, format="upsert", encoding=kind(Registry(registry.url))))
        for ends in ([200], [1, 2, 90, 200]):
            with closing(KafkaTopics(sink_spec_of(given))) as sink:
                sink.clear()
                sink.open(RUN)
                for epoch, (begin, end) in enumerate(pairwise([0, *ends])):
                    output = step(given, changes[begin:end])
                    with pytest.raises(ZeroDivisionError):
                        sink.commit(epoch, Broken(*vars(output).values()))
                    sink.open(RUN)
                    sink.commit(epoch, output)
            wait_until(lambda: len(records(given)) == len(changes), "the records")
            found.append(sorted(records(given), key=itemgetter(0)))
        assert [len(registry.versions(f"{given.sink.table}-{part}")) for part in ("key", "value")] == [1, 1]
    assert found[0] == found[1]
    assert (len(found[0]), {(key or b"")[:1] for key, _ in found[0]}) == (200, {b"\0"})


def test_another_pipeline_reads_the_envelope_as_a_table(kafka: Kafka, model: Pipeline, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    seconds = [0, 60, 400, 100, 700, 30, 5_000]  # some come late, and revise
    records = [{"user": "a", "t": int(DAY.timestamp() + at) * 1000, "amount": "1.50"} for at in seconds]
    (log / "partition-0.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    first = (
        wr.log(log)
        .decode(user="string", t="timestamp_millis", amount="decimal(12,2)")
        .event_time("t", delay="0s")
        .key_by("user")
        .window(wr.tumbling("5m"))
        .aggregate(total=wr.sum("amount"), events=wr.count())
        .emit(lateness="1d")
    )
    topic = model.sink.table
    second = SECOND.replace("TOPIC", topic).replace("SERVERS", kafka.servers).replace("FOLDER", str(tmp_path))
    for one in (
        first.to(wr.kafka_sink(topic, servers=kafka.servers, format="debezium"), name="first").graph,
        first.to(wr.sqlite(tmp_path / "first.db", table="first"), name="straight").graph,
        read_document(second, "second.yaml").pipeline,
    ):
        for _ in range(2):  # --fresh deletes the topics
            options = RunSettings(tmp_path / one.name, "memory", until_end=True, fresh=True)
            launch(one, options, lambda _: None, lambda _: None)
    found = []
    for name in ("first", "second"):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as db:
            found.append(db.execute(f"SELECT window_start, user, total, events FROM {name} ORDER BY 1").fetchall())
    assert found[0] == found[1]
    assert [events for *_, events in found[0]] == [4, 1, 1, 1]


UPSERTS = """\
name: first
sources:
  changes:
    source: {log: {path: FOLDER/log, format: debezium}}
    decode: {user: string, total: "decimal(12,2)", t: {type: timestamp_millis, path: source.ts_ms}}
    time: {field: t, delay: 1h}
streams:
  latest: {from: changes, table: {key: user}}
sinks:
  topic: {from: latest, sink: {kafka: {topic: TOPIC, servers: "SERVERS", format: upsert}}}
  straight: {from: latest, sink: {sqlite: {path: FOLDER/first.db, table: first}}}
"""
READ_BACK = """\
name: second
sources:
  changes:
    source: {kafka: {topic: TOPIC, servers: "SERVERS"}}
    decode: {user: {type: string, tombstones: true}, total: "decimal(12,2)?", t: timestamp}
    time: {field: t, delay: 1h}
streams:
  latest: {from: changes, table: {key: user, deleted: total IS NULL}}
sinks:
  out: {from: latest, sink: {sqlite: {path: FOLDER/second.db, table: second}}}
"""


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_a_table_is_read_back_from_its_upserts(kafka: Kafka, model: Pipeline, tmp_path: Path, most: int) -> None:
    log = tmp_path / "log"
    log.mkdir()
    random, users, lines = Random(most), ["a", "7", "true", "", '"q"', '"', '{"user":"a"}', "{b}", "\u00e4", " a"], []
    for number in range(200):
        row = {"user": random.choice(users), "total": f"{number}.50"}
        images = {"before": row, "after": None} if random.random() < 0.3 else {"before": None, "after": row}
        about = {"op": "c" if images["after"] else "d", "source": {"ts_ms": int(DAY.timestamp() + number) * 1000}}
        lines.append(json.dumps({**images, **about}))
    (log / "partition-0.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for text in (UPSERTS, READ_BACK):
        given = text.replace("TOPIC", model.sink.table).replace("SERVERS", kafka.servers)
        graph = read_document(given.replace("FOLDER", str(tmp_path)), "x.yaml").pipeline
        options = RunSettings(tmp_path / graph.name, "memory", until_end=True, max_records=most)
        launch(graph, options, lambda _: None, lambda _: None)
    found = []
    for name in ("first", "second"):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as db:
            found.append(db.execute(f"SELECT user, total, t FROM {name} ORDER BY 1").fetchall())
            assert db.execute(f"SELECT * FROM {name}_dead").fetchall() == []
    assert found[0] == found[1]
    assert 3 < len(found[0]) < len(users)


def test_a_broker_that_is_not_there_is_an_error_that_passes() -> None:
    sink = KafkaTopics(sink_spec_of(pipeline(KafkaSink("127.0.0.1:1", "spend"))))
    with pytest.raises(SinkUnavailableError, match=r"no Kafka broker can be reached at 127.0.0.1:1"):
        sink.open(RUN)


@pytest.fixture(autouse=True)
def removed(model: Pipeline) -> Iterator[None]:
    """Remove the topics after a test."""
    yield
    assert isinstance(model.sink, KafkaSink)
    admin = AdminClient({"bootstrap.servers": model.sink.servers})
    there = [name for name in admin.list_topics(timeout=10).topics if name.startswith(model.sink.topic)]
    for deleted in admin.delete_topics(there).values() if there else ():
        deleted.result(10)
