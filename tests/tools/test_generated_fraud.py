"""Generated card purchases: the rules hold for what has labels, and hardly for anything else."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.test_generator import clock, consume, texts

from windrow.connectors.log.source import EmbeddedLog
from windrow.errors import InputError
from windrow.model import LogSource
from windrow.testing.servers.kafka import Kafka
from windrow.tools.generate import FraudSpec, write_kafka, write_log

MINUTE = 60_000_000
HOUR = 60 * MINUTE
SMALL = FraudSpec(events=5000, cards=400, partitions=3, fraud_share=0.02)
LINE = re.compile(
    rb'\{"id": "1767225600-\d+", "card": "c\d{6}", "t": \d{16}, "amount": \d+\.\d\d, "lat": -?\d+\.\d{4}, '
    rb'"lon": -?\d+\.\d{4}, "merchant": "[a-z-]+-\d+", "country": "[A-Z]{2}"\}'
)
KINDS = ("impossible_travel", "unusual_amount", "burst", "blocked_merchant")
Record = dict[str, Any]
Ids = dict[str, set[str]]


@dataclass
class Log:
    """A log that was written: its lines by partition, and the files beside."""

    lines: dict[int, list[bytes]]
    labels: list[Record]
    blocked: set[str]

    @classmethod
    def read(cls, folder: Path) -> Log:
        found = texts(folder)
        labels = [json.loads(line) for line in found.pop("labels.jsonl").splitlines()]
        blocked = set(found.pop("blocked.csv").decode().splitlines()[1:])
        lines = {int(name[len("partition-") : -len(".jsonl")]): text.splitlines() for name, text in found.items()}
        return cls(lines, labels, blocked)

    @property
    def records(self) -> list[Record]:
        return [json.loads(line) for lines in self.lines.values() for line in lines]

    @property
    def labelled(self) -> Ids:
        return {kind: {label["id"] for label in self.labels if label["kind"] == kind} for kind in KINDS}

    def cards(self) -> list[list[Record]]:
        """Return the purchases of each card by event time, each once."""
        found = defaultdict(list)
        for record in {record["id"]: record for record in self.records}.values():
            found[record["card"]].append(record)
        return [sorted(records, key=lambda record: (record["t"], record["id"])) for records in found.values()]

    def raised(self) -> Ids:
        """Return the ids for which each rule holds, by the rules' definition."""
        found: Ids = {kind: set() for kind in KINDS}
        for records in self.cards():
            for at, record in enumerate(records):
                recent = [one for one in records[max(0, at - 64) : at] if one["t"] >= record["t"] - 24 * HOUR]
                for kind in rules_that_hold(record, recent, self.blocked):
                    found[kind].add(record["id"])
        return found


def rules_that_hold(record: Record, recent: list[Record], blocked: set[str]) -> list[str]:
    amounts = [one["amount"] for one in recent]
    many = 8
    holds = (
        bool(recent) and distance(recent[-1], record) > 100 + 900 * (record["t"] - recent[-1]["t"]) / HOUR,
        len(recent) >= many and record["amount"] > statistics.fmean(amounts) + 4 * statistics.stdev(amounts),
        sum(one["t"] >= record["t"] - MINUTE for one in recent) >= 5,
        record["merchant"] in blocked,
    )
    return [kind for kind, one in zip(KINDS, holds, strict=True) if one]


def distance(one: Record, other: Record) -> float:
    """Return the distance in km, by the spherical law of cosines."""
    (north, east), (other_north, other_east) = ((math.radians(r["lat"]), math.radians(r["lon"])) for r in (one, other))
    cosine = math.sin(north) * math.sin(other_north)
    cosine += math.cos(north) * math.cos(other_north) * math.cos(east - other_east)
    return 6371 * math.acos(max(-1, min(1, cosine)))


def write(spec: FraudSpec, folder: Path) -> Log:
    write_log(spec, folder, overwrite=True)
    return Log.read(folder)


SPECS = st.builds(
    FraudSpec,
    events=st.integers(0, 3000),
    cards=st.one_of(st.none(), st.integers(150, 1000)),
    partitions=st.integers(1, 5),
    seed=st.integers(0, 1000),
    duration=st.sampled_from([HOUR, 24 * HOUR, 20 * 24 * HOUR]),
    disorder=st.sampled_from([0, 4_000_000]),
    late_share=st.sampled_from([0.0, 0.1]),
    duplicate_share=st.sampled_from([0.0, 0.1]),
    fraud_share=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
)


@given(SPECS)
def test_the_rules_hold_for_what_has_labels_and_hardly_for_anything_else(spec: FraudSpec) -> None:
    with TemporaryDirectory() as folder:
        log = write(spec, Path(folder))
    raised, labelled = log.raised(), log.labelled
    assert len({record["id"] for record in log.records}) == spec.events
    unusual, false = labelled.pop("unusual_amount"), raised.pop("unusual_amount")
    assert unusual <= false
    assert len(false - unusual) <= 0.005 * spec.events + 3
    assert raised == labelled


def test_a_day_has_cases_of_each_kind_and_few_false_alarms(tmp_path: Path) -> None:
    spec = FraudSpec(events=60_000, cards=3000, fraud_share=0.01, late_share=0.02, duplicate_share=0.02)
    log = write(spec, tmp_path / "log")
    raised, labelled = log.raised(), log.labelled
    assert all(len(labelled[kind]) > 50 for kind in KINDS)
    assert all(labelled[kind] <= raised[kind] for kind in KINDS)
    assert sum(len(raised[kind] - labelled[kind]) for kind in KINDS) < 0.002 * spec.events


def test_some_travel_and_none_of_them_too_fast(tmp_path: Path) -> None:
    log = write(replace(SMALL, duration=20 * 24 * HOUR, fraud_share=0), tmp_path / "log")
    far = [distance(one, other) for records in log.cards() for one, other in pairwise(records)]
    assert sum(km > 100 for km in far) > 100
    assert not log.labels
    assert not log.raised()["impossible_travel"]


def test_people_keep_to_their_hours(tmp_path: Path) -> None:
    log = write(replace(SMALL, fraud_share=0, duration=10 * 24 * HOUR), tmp_path / "log")
    spread = []
    for records in log.cards():
        hours = [record["t"] / HOUR % 24 * math.tau / 24 for record in records]
        if len(hours) >= 20:
            mean = math.hypot(statistics.fmean(map(math.cos, hours)), statistics.fmean(map(math.sin, hours)))
            spread.append(mean)
    assert statistics.fmean(spread) > 0.4  # evenly spread it would be 0.2


def test_the_same_seed_makes_the_same_bytes(tmp_path: Path) -> None:
    spec = replace(SMALL, late_share=0.05, duplicate_share=0.05)
    for name, seed in {"a": 1, "b": 1, "c": 2}.items():
        write_log(replace(spec, seed=seed), tmp_path / name)
    assert texts(tmp_path / "a") == texts(tmp_path / "b")
    assert texts(tmp_path / "a")["labels.jsonl"] != texts(tmp_path / "c")["labels.jsonl"]


def test_lines_look_as_documented_and_labels_stand_beside(tmp_path: Path) -> None:
    log = write(SMALL, tmp_path / "log")
    assert all(LINE.fullmatch(line) for lines in log.lines.values() for line in lines)
    by_id = {record["id"]: record for record in log.records}
    assert len(log.labels) == len({label["id"] for label in log.labels}) > 100
    for label in log.labels:
        record = by_id[label["id"]]
        assert label == {"id": record["id"], "card": record["card"], "kind": label["kind"], "t": record["t"]}


def test_a_card_is_in_the_partition_of_its_crc(tmp_path: Path) -> None:
    log = write(SMALL, tmp_path / "log")
    assert all(len(lines) > 1000 for lines in log.lines.values())
    for partition, lines in log.lines.items():
        assert {crc32(json.loads(line)["card"].encode()) % 3 for line in lines} == {partition}


def test_the_embedded_log_reads_it(tmp_path: Path) -> None:
    write_log(SMALL, tmp_path / "log")
    read = EmbeddedLog(LogSource(str(tmp_path / "log"))).read_all()
    assert sum(batch.num_rows for batch in read) == SMALL.events


def test_records_come_late_and_again_as_asked(tmp_path: Path) -> None:
    spec = replace(SMALL, events=20_000, disorder=0, late_share=0.1, late_by=10 * MINUTE, duplicate_share=0.1)
    spec = replace(spec, log_time=True)
    made = write_log(spec, tmp_path / "log")
    log = Log.read(tmp_path / "log")
    assert made.records == len(log.records) == spec.events + made.duplicates
    assert abs(made.duplicates - 2000) < 200
    assert abs(made.late - 2200) < 250
    assert made.labels == len(log.labels)
    for lines in log.lines.values():
        arrivals = [json.loads(line)["_log_time"] for line in lines]
        assert arrivals == sorted(arrivals)
    first = {record["id"]: record["_log_time"] - record["t"] for record in reversed(log.records)}
    delays = [delay for delay in first.values() if delay]
    assert abs(len(delays) - 2000) < 200
    assert 9 * MINUTE < max(delays) < 11 * MINUTE


@pytest.mark.parametrize(
    "wrong", [{"events": -1}, {"cards": 0}, {"partitions": 0}, {"duration": 999}, {"late_by": -1}, {"fraud_share": 2}]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be"):
        FraudSpec(**wrong)


def test_too_few_cards_for_the_rate_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cards must be at least 30 for 1 purchases per second, not 29"):
        write_log(FraudSpec(events=3600, cards=29, duration=HOUR), tmp_path / "log")
    with pytest.raises(InputError, match=r"cards must be at least 30,000 for 1,000 purchases per second, not 59"):
        write_log(FraudSpec(cards=59), tmp_path / "log", pace=clock(20_000))
    assert list(tmp_path.iterdir()) == []


class TestLive:
    spec = FraudSpec(events=4000, partitions=2, fraud_share=0.05, disorder=0, late_share=0)

    def test_events_come_at_the_rate_with_times_of_now(self, tmp_path: Path) -> None:
        told: list[int] = []
        write_log(
            replace(self.spec, log_time=True),
            tmp_path / "log",
            pace=clock(20_000),
            progress=lambda made: told.append(made.records),
        )
        log = Log.read(tmp_path / "log")
        assert len(log.records) == told[-1] == 4000
        assert all(abs(count - 20 * step) < 40 for step, count in enumerate(told, start=1))
        assert all(0 <= record["_log_time"] - record["t"] <= 20_000 for record in log.records)
        assert log.raised() == log.labelled
        assert len(log.labels) > 30

    def test_what_is_under_way_at_the_end_arrives_then(self, tmp_path: Path) -> None:
        spec = replace(self.spec, disorder=4_000_000, log_time=True)
        write_log(spec, tmp_path / "log", pace=clock(20_000))
        records = Log.read(tmp_path / "log").records
        assert len(records) == 4000
        end = max(record["_log_time"] for record in records)
        assert sum(record["_log_time"] == end for record in records) > 1000
        assert all(record["_log_time"] >= record["t"] for record in records)

    def test_labels_are_appended(self, tmp_path: Path) -> None:
        for count in (1, 2):
            write_log(self.spec, tmp_path / "log", pace=clock(20_000))
            log = Log.read(tmp_path / "log")
            assert len(log.records) == 4000 * count
        assert len(log.labels) == 2 * len({label["id"] for label in log.labels})
        assert (tmp_path / "log" / "blocked.csv").read_text().count("value") == 1


def test_a_topic_with_labels_in_a_folder(kafka: Kafka, tmp_path: Path) -> None:
    write_kafka(SMALL, kafka.servers, "fraud", labels=tmp_path / "topic")
    log = write(SMALL, tmp_path / "log")
    found = consume(kafka.servers, "fraud", 3)
    assert [value for _, _, _, value, _ in found] == [line for _, lines in sorted(log.lines.items()) for line in lines]
    assert all(json.loads(value)["card"].encode() == key for _, _, key, value, _ in found)
    for name in ("labels.jsonl", "blocked.csv"):
        assert (tmp_path / "topic" / name).read_bytes() == (tmp_path / "log" / name).read_bytes()
