"""The table of a stream has the rows that the stream has."""

from __future__ import annotations

import json

import pytest

from windrow.authoring.pipeline_file import read_document
from windrow.runtime.memory import play

SESSIONS = """
name: k
sources:
  s:
    source: {log: {path: unused}}
    decode: {id: long, t: timestamp}
    time: {field: t, delay: 20s}
    lateness: 10m
streams:
  visits: {from: s, key: id, window: {session: 1m}, aggregate: {n: count()}, emit: {lateness: 4m}}
  x: {from: visits, derive: {twice: 2 * n}, select: [twice]}
sinks: {to_x: {from: x, sink: {sqlite: {path: unused.db, table: r}}}}
"""


@pytest.mark.parametrize("size", [1, 4])
def test_a_row_that_is_added_and_taken_back_at_one_place_is_in_no_table(size: int) -> None:
    # the last record is late and waits for the session of the first three, which it revises as that fires
    times = ["00:24", "01:02", "02:00", "00:00"]
    log = [(0, json.dumps({"id": 1, "t": f"2026-01-01T10:{time}Z"}).encode()) for time in times]
    outputs = play(
        read_document(SESSIONS, "k.yaml").pipeline, [log[at : at + size] for at in range(0, 4, size)], "fire"
    )
    changes = [(row["op"], row["twice"]) for output in outputs for row in output["to_x"].changes.to_pylist()]
    assert changes == [("insert", 8)]
