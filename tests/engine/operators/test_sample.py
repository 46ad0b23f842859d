"""Which records a sample has."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from windrow.authoring.pipeline_file import read_document
from windrow.runtime.memory import play

SAMPLE = """
name: k
sources:
  s:
    source: {log: {path: unused}}
    decode: {id: long, user: string, t: timestamp}
    time: {field: t, delay: 1m}
    lateness: 10m
streams:
  x: {from: s, sample: {by: user, every: 3}}
sinks: {to_x: {from: x, sink: {sqlite: {path: unused.db, table: r}}}}
key_groups: 4
"""


def record(id_: int, user: str, minute: int) -> bytes:
    return json.dumps({"id": id_, "user": user, "t": f"2026-01-01T10:{minute:02}:00Z"}).encode()


def sampled(log: Sequence[tuple[int, bytes]], size: int) -> list[int]:
    pipeline = read_document(SAMPLE, "k.yaml").pipeline
    steps = [log[at : at + size] for at in range(0, len(log), size)]
    rows = [row for output in play(pipeline, steps, "fire") for row in output["to_x"].changes.to_pylist()]
    assert {row["op"] for row in rows} <= {"insert"}
    return sorted(row["id"] for row in rows)


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_every_third_record_of_each_key(size: int) -> None:
    log = [(0, record(number, "ab"[number % 4 == 0], number)) for number in range(40)]
    by_user = {user: [number for number in range(40) if "ab"[number % 4 == 0] == user] for user in "ab"}
    assert sampled(log, size) == sorted([*by_user["a"][2::3], *by_user["b"][2::3]])


@pytest.mark.parametrize("size", [1, 3, 12])
def test_records_of_several_partitions_are_counted_by_watermark(size: int) -> None:
    # partition 1 is read first and is fifty minutes ahead; the first record of each has no watermark before it, so the
    # order is 10, 0, 11 to 15, 1 to 5
    log = [(1, record(number, "a", 50 + number)) for number in range(6)]
    log += [(0, record(10 + number, "a", number)) for number in range(6)]
    assert sampled(log, size) == [2, 5, 11, 14]


@pytest.mark.parametrize("size", [1, 4])
def test_a_late_record_counts_at_its_place_and_an_expired_one_does_not(size: int) -> None:
    minutes = [10, 20, 14, 5, 21, 22, 23]  # 14 is late by five minutes, 5 by fourteen, which is too late
    log = [(0, record(number, "a", minute)) for number, minute in enumerate(minutes)]
    assert sampled(log, size) == [2, 6]
