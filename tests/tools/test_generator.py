"""The generator: the same for the same seed, in the shape that was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.short_forms import Pipeline, operator_spec

from windrow.connectors.log.source import EmbeddedLog
from windrow.engine import schema
from windrow.engine.decode.decoder import Decoder
from windrow.errors import InputError, SourceError
from windrow.model import (
    Aggregate,
    Count,
    DecimalType,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    LogSource,
    SqliteSink,
    StringType,
    TimestampType,
    Tumbling,
)
from windrow.testing.servers.kafka import Kafka
from windrow.tools.generate import LivePace, LogCounts, LogSpec, NexmarkSpec, generate, write_kafka, write_log
from windrow.tools.generate.events import KINDS, key_bytes, render
from windrow.tools.generate.spec import START

HOUR = 3_600_000_000
SMALL = LogSpec(events=20_000, users=500)
LINE = re.compile(rb'\{"user_id": "u\d{5}", "event_time": \d{13}, "amount": \d+\.\d\d\}')
PIPELINE = Pipeline(
    name="user-spend",
    source=LogSource("spend"),
    decode=Decode(
        (
            Field("user_id", StringType()),
            Field("event_time", TimestampType("millis")),
            Field("amount", DecimalType(12, 2)),
        )
    ),
    time=EventTime("event_time", Delay(0), future=0),
    key=("user_id",),
    window=Tumbling(300_000_000),
    aggregates=(Aggregate("events", Count()),),
    emit=Emit(),
    sink=SqliteSink("x.db", "t"),
)


def table(spec: LogSpec) -> pa.Table:
    return pa.Table.from_batches(generate(spec), schema=schema.RAW)


def micros(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return column.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def texts(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_the_same_seed_makes_the_same_log() -> None:
    assert table(SMALL).equals(table(SMALL))
    assert not table(SMALL).equals(table(replace(SMALL, seed=2)))


def test_records_arrive_in_order_and_offsets_count_up() -> None:
    made = table(SMALL)
    assert made.num_rows == 20_000
    assert (np.diff(micros(made["log_time"])) >= 0).all()
    for partition in range(4):
        offsets = made.filter(pa.compute.equal(made["partition"], partition))["offset"].to_numpy()
        assert (offsets == np.arange(len(offsets))).all()
        assert len(offsets) > 4000


def test_a_user_stays_in_one_partition() -> None:
    pairs = table(SMALL).group_by(["key", "partition"]).aggregate([]).num_rows
    assert pairs == 500


def test_offsets_go_on_from_batch_to_batch() -> None:
    spec = LogSpec(events=300_000, users=7, partitions=3)
    ends: dict[int, int] = {}
    count = 0
    for batch in generate(spec):
        count += 1
        for partition, offset in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True):
            assert offset == ends.get(partition, 0)
            ends[partition] = offset + 1
    assert count > 1
    assert sum(ends.values()) == 300_000


def test_event_times_disorder_and_lateness_are_as_asked() -> None:
    spec = replace(SMALL, events=200_000, late_share=0.1, malformed_share=0)
    made = table(spec)
    decoded = Decoder(operator_spec(PIPELINE)).decode(made)
    assert decoded.dead.num_rows == 0
    times = micros(decoded.good["time"])
    assert (times >= START).all()
    assert (times < START + spec.duration).all()
    delay = micros(made["log_time"]) - times
    assert (delay >= 0).all()
    late = delay > 60_000_000
    assert abs(late.mean() - 0.1) < 0.01
    assert delay[late].max() < 92 * 60_000_000
    assert abs(delay[~late].mean() - 4_000_000) < 100_000


def test_good_lines_look_as_documented() -> None:
    made = table(replace(SMALL, malformed_share=0))
    assert all(LINE.fullmatch(value) for value in made["value"].to_pylist())


def test_malformed_records_are_all_dead_letters_and_the_others_good() -> None:
    spec = replace(SMALL, malformed_share=0.5)
    decoded = Decoder(operator_spec(PIPELINE)).decode(table(spec))
    assert abs(decoded.dead.num_rows - 10_000) < 500
    kinds = {reason.split(":")[0] for reason in decoded.dead["reason"].to_pylist()}
    assert kinds == {"malformed", "not an object", "missing", "null", "wrong type", "out of range"}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_malformed_record_is_one_line_and_no_good(kind: str) -> None:
    number = np.array([list(KINDS).index(kind) + 1])
    (value,) = render(key_bytes(1), np.array([1_767_225_600_000]), np.array([5]), number, None).to_pylist()
    assert b"\n" not in value
    batch = pa.record_batch([[0], [0], [None], [None], [value]], schema=schema.RAW)
    assert Decoder(operator_spec(PIPELINE)).decode(batch).dead.num_rows == 1


def test_duplicates_come_in_addition_and_later() -> None:
    made = table(replace(SMALL, duplicate_share=0.1, malformed_share=0))
    assert abs(made.num_rows - 22_000) < 300
    assert made.group_by(["value"]).aggregate([]).num_rows <= 20_000


def test_a_hot_key_has_its_share() -> None:
    made = table(replace(SMALL, hot_key_share=0.5))
    hot = sum(key == b"u00000" for key in made["key"].to_pylist())
    assert abs(hot - 10_000) < 500


@pytest.mark.parametrize(
    "wrong", [{"events": -1}, {"users": 0}, {"partitions": 0}, {"duration": 999}, {"disorder": -1}, {"late_share": 1.1}]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be"):
        LogSpec(**wrong)


class TestLog:
    def test_the_log_holds_what_was_generated(self, tmp_path: Path) -> None:
        made = write_log(SMALL, tmp_path / "spend")
        rows = table(SMALL).select(["partition", "offset", "value"]).sort_by([("partition", "ascending")])
        log = pa.Table.from_batches(EmbeddedLog(LogSource(str(tmp_path / "spend"))).read_all())
        assert log.select(["partition", "offset", "value"]).equals(rows)
        assert made.records == 20_000
        assert made.malformed > 5
        assert made.late > 20

    def test_the_time_of_arrival_can_be_inside(self, tmp_path: Path) -> None:
        write_log(replace(SMALL, log_time=True, malformed_share=0), tmp_path)
        for text in texts(tmp_path).values():
            records = [json.loads(line) for line in text.splitlines()]
            assert all(record["_log_time"] >= record["event_time"] for record in records)
            assert [r["_log_time"] for r in records] == sorted(r["_log_time"] for r in records)

    def test_a_log_is_replaced_only_if_told(self, tmp_path: Path) -> None:
        write_log(SMALL, tmp_path / "log")
        before = texts(tmp_path / "log")
        other = replace(SMALL, seed=5, partitions=2)
        with pytest.raises(InputError, match="already holds a log"):
            write_log(other, tmp_path / "log")
        assert texts(tmp_path / "log") == before
        write_log(other, tmp_path / "log", overwrite=True)
        assert sorted(texts(tmp_path / "log")) == ["partition-0.jsonl", "partition-1.jsonl"]
        assert [entry.name for entry in tmp_path.iterdir()] == ["log"]

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_a_folder_of_something_else_is_left_alone(self, tmp_path: Path, *, overwrite: bool) -> None:
        (tmp_path / "partition-0.jsonl").touch()
        (tmp_path / "thesis.tex").touch()
        with pytest.raises(InputError, match="is not empty and is not a log"):
            write_log(SMALL, tmp_path, overwrite=overwrite)
        with pytest.raises(InputError, match="is a file"):
            write_log(SMALL, tmp_path / "thesis.tex", overwrite=overwrite)
        assert sorted(texts(tmp_path)) == ["partition-0.jsonl", "thesis.tex"]

    def test_an_unwritable_place_is_a_clear_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(SourceError, match=r"cannot write the log .*file/log"):
            write_log(SMALL, tmp_path / "file" / "log")

    def test_nothing_is_left_of_a_log_that_was_not_finished(self, tmp_path: Path) -> None:
        def stop(_: LogCounts) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_log(SMALL, tmp_path / "log", progress=stop)
        assert list(tmp_path.iterdir()) == []


def clock(step: int) -> LivePace:
    """Return a pace of 1000 events a second whose clock goes on by `step` microseconds each time that one waits."""
    now = [START]

    def wait(_: float) -> bool:
        now[0] += step
        return False

    return LivePace(1000.0, now=lambda: now[0], wait=wait)


class TestLive:
    spec = LogSpec(events=5000, users=50, partitions=2, malformed_share=0, late_share=0, log_time=True)

    def test_events_come_at_the_rate_with_times_of_now(self, tmp_path: Path) -> None:
        told: list[int] = []
        made = write_log(self.spec, tmp_path, pace=clock(100_000), progress=lambda m: told.append(m.records))
        assert told == list(range(100, 5001, 100))
        assert made.records == 5000
        records = [json.loads(line) for text in texts(tmp_path).values() for line in text.splitlines()]
        assert max(record["_log_time"] for record in records) == (START + 5_000_000) // 1000
        delays = [record["_log_time"] - record["event_time"] for record in records]
        assert min(delays) >= 0
        assert abs(np.mean(delays) - 4000) < 400

    def test_it_appends_whole_lines_to_a_log(self, tmp_path: Path) -> None:
        write_log(SMALL, tmp_path / "log")
        before = texts(tmp_path / "log")
        with (tmp_path / "log" / "partition-1.jsonl").open("ab") as file:
            file.write(b'{"user_id": "u1", "event_t')
        sizes: list[bool] = []

        def all_lines_end(_: LogCounts) -> None:
            sizes.extend(text.endswith(b"\n") for text in texts(tmp_path / "log").values())

        write_log(self.spec, tmp_path / "log", pace=clock(100_000), progress=all_lines_end)
        assert all(sizes)
        after = texts(tmp_path / "log")
        assert all(after[name].startswith(text) for name, text in before.items())
        assert (
            after["partition-1.jsonl"]
            .removeprefix(before["partition-1.jsonl"])
            .startswith(b'{"user_id": "u1", "event_t\n{"user_id": ')
        )

    def test_it_stops_when_told(self, tmp_path: Path) -> None:
        answers: Iterator[bool] = iter([False, False, True])
        now = iter(range(START, START + 10_000_000, 1_000_000))
        pace = LivePace(10.0, now=lambda: next(now), wait=lambda _: next(answers))
        assert write_log(self.spec, tmp_path, pace=pace).records == 30


def consume(servers: str, topic: str, partitions: int) -> list[tuple[int, int, bytes, bytes, int]]:
    """Return partition, offset, key, value and timestamp of all records of a topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "x", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
            continue
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        found.append((message.partition() or 0, message.offset() or 0, key, value, message.timestamp()[1]))
    consumer.close()
    return sorted(found)


class TestKafka:
    def test_a_topic_is_created_and_holds_what_was_generated(self, kafka: Kafka) -> None:
        made = write_kafka(SMALL, kafka.servers, "generated")
        assert made.records == 20_000
        rows = table(SMALL)
        columns = [rows["partition"], rows["offset"], rows["key"], rows["value"]]
        times = (micros(rows["log_time"]) // 1000).tolist()
        expected = sorted(zip(*(column.to_pylist() for column in columns), times, strict=True))
        assert consume(kafka.servers, "generated", 4) == expected

    def test_a_topic_with_other_partitions_is_refused(self, kafka: Kafka, topic: Callable[..., str]) -> None:
        name = topic(3)
        with pytest.raises(InputError, match=f"topic {name} has 3 partitions, not 4"):
            write_kafka(SMALL, kafka.servers, name)
        assert write_kafka(replace(SMALL, partitions=3), kafka.servers, name).records == 20_000

    def test_no_broker_is_a_clear_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("windrow.tools.generate.kafka._TIMEOUT", 1.0)
        with pytest.raises(SourceError, match=r"no Kafka broker can be reached at 127\.0\.0\.1:1"):
            write_kafka(SMALL, "127.0.0.1:1", "spend")


class TestNexmark:
    spec = NexmarkSpec(events=20_007, partitions=3, duration=HOUR)

    @staticmethod
    def records(folder: Path) -> dict[str, list[dict[str, Any]]]:
        """Return the records of each log, in the order of their partitions."""
        lines = {
            log.name: [line for text in texts(log).values() for line in text.splitlines()] for log in folder.iterdir()
        }
        return {log: [json.loads(line) for line in found] for log, found in lines.items()}

    def test_the_same_seed_makes_the_same_logs(self, tmp_path: Path) -> None:
        for name, seed in {"a": 1, "b": 1, "c": 2}.items():
            write_log(replace(self.spec, seed=seed), tmp_path / name)
        made = {name: [texts(tmp_path / name / log) for log in self.spec.logs] for name in "abc"}
        assert made["a"] == made["b"]
        assert all(one != other for one, other in zip(made["a"], made["c"], strict=True))

    def test_each_kind_has_its_share_and_ids_count_up(self, tmp_path: Path) -> None:
        made = write_log(self.spec, tmp_path / "nexmark")
        found = self.records(tmp_path / "nexmark")
        assert made == LogCounts(20_007)
        assert {log: len(records) for log, records in found.items()} == self.spec.records(20_007)
        assert self.spec.records(20_007) == {"persons": 401, "auctions": 1203, "bids": 18_403}
        for log in ("persons", "auctions"):
            assert {record["id"] for record in found[log]} == set(range(1000, 1000 + len(found[log])))

    def test_events_refer_to_persons_and_auctions_before_them(self, tmp_path: Path) -> None:
        write_log(self.spec, tmp_path / "nexmark")
        found = self.records(tmp_path / "nexmark")
        since = {log: {record["id"]: record["dateTime"] for record in found[log]} for log in ("persons", "auctions")}
        assert all(since["persons"][auction["seller"]] <= auction["dateTime"] for auction in found["auctions"])
        assert all(since["persons"][bid["bidder"]] <= bid["dateTime"] for bid in found["bids"])
        assert all(since["auctions"][bid["auction"]] <= bid["dateTime"] for bid in found["bids"])
        assert all(auction["dateTime"] < auction["expires"] for auction in found["auctions"])
        hot = [bid for bid in found["bids"] if bid["auction"] % 100 == 0]
        assert 0.45 < len(hot) / len(found["bids"]) < 0.6

    def test_a_record_arrives_within_twice_the_mean_delay(self, tmp_path: Path) -> None:
        write_log(replace(self.spec, disorder=1_000_000, log_time=True), tmp_path / "nexmark")
        for log in self.spec.logs:
            for text in texts(tmp_path / "nexmark" / log).values():
                records = [json.loads(line) for line in text.splitlines()]
                arrivals = [record["_log_time"] for record in records]
                times = [datetime.fromisoformat(record["dateTime"] + "+00:00") for record in records]
                delays = [arrival - time.timestamp() * 1000 for arrival, time in zip(arrivals, times, strict=True)]
                assert arrivals == sorted(arrivals)
                assert min(delays) > -1
                assert 1900 < max(delays) < 2001

    def test_logs_are_replaced_only_if_told(self, tmp_path: Path) -> None:
        write_log(self.spec, tmp_path / "nexmark")
        with pytest.raises(InputError, match="already holds a log"):
            write_log(self.spec, tmp_path / "nexmark")
        write_log(replace(self.spec, events=50, partitions=1), tmp_path / "nexmark", overwrite=True)
        assert {log: len(records) for log, records in self.records(tmp_path / "nexmark").items()} == self.spec.records(
            50
        )
        (tmp_path / "nexmark" / "thesis").mkdir()
        with pytest.raises(InputError, match="is not empty and is not a log"):
            write_log(self.spec, tmp_path / "nexmark", overwrite=True)

    def test_live_events_are_appended(self, tmp_path: Path) -> None:
        for count in (1, 2):
            write_log(replace(self.spec, events=500), tmp_path / "nexmark", pace=clock(100_000))
            assert {log: len(found) for log, found in self.records(tmp_path / "nexmark").items()} == {
                log: records * count for log, records in self.spec.records(500).items()
            }

    def test_topics(self, kafka: Kafka) -> None:
        write_kafka(replace(self.spec, events=100), kafka.servers, "nexmark")
        consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "counting"})
        for log, records in self.spec.records(100).items():
            ends = [consumer.get_watermark_offsets(TopicPartition(f"nexmark-{log}", at), timeout=10) for at in range(3)]
            assert sum(end for _, end in ends) == records
        consumer.close()
