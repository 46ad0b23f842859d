"""The table of a stream has the rows that the stream has."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

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


ARRAYS = """
name: k
sources:
  s:
    source: {log: {path: unused}}
    decode:
      id: long
      t: timestamp
      texts: "array<string?>?"
      prices: "array<decimal(12,2)>?"
      times: array<timestamp>
      numbers: "array<long?>"
      items: "array<struct<sku string, price decimal(5,1)?, at timestamp?, tags array<string>?>?>"
    time: {field: t, delay: 20s}
streams:
  x: {from: s, where: id >= 0}
  rows: {from: x, table: {key: id}}
sinks:
  to_x: {from: x, sink: {sqlite: {path: unused.db, table: x}}}
  to_rows: {from: rows, sink: {sqlite: {path: unused.db, table: r}}}
"""
TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=5)
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis's way


def cents(digits: int, scale: int) -> st.SearchStrategy[str]:
    return st.integers(0, 10**digits - 1).map(lambda n: f"{Decimal(n).scaleb(-scale):f}")


def lists(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(of, max_size=4)


RECORDS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 3),
        "texts": st.none() | lists(st.none() | TEXTS),
        "prices": st.none() | lists(cents(12, 2)),
        "times": lists(TIMES.map(datetime.isoformat)),
        "numbers": lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
        "items": lists(
            st.none()
            | st.fixed_dictionaries(
                {
                    "sku": TEXTS,
                    "price": st.none() | cents(5, 1),
                    "at": st.none() | TIMES.map(datetime.isoformat),
                    "tags": st.none() | lists(TEXTS),
                }
            )
        ),
    }
)


def as_row(record: dict[str, Any]) -> dict[str, Any]:
    """What a table has of a record: each array as JSON, in which decimals have all digits, and times microseconds."""

    def time(text: str | None) -> str | None:
        return text and f"{datetime.fromisoformat(text).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"

    items = [item and {**item, "at": time(item["at"])} for item in record["items"]]
    return {**record, "times": list(map(time, record["times"])), "items": items}


@examples(40)
@given(st.lists(RECORDS, min_size=1, max_size=12), st.integers(1, 12))
def test_an_array_is_json_text_in_a_table_in_every_cut(records: list[dict[str, Any]], size: int) -> None:
    log = [
        (0, json.dumps({**record, "t": f"2026-01-01T10:{number:02}:00Z"}).encode())
        for number, record in enumerate(records)
    ]
    cuts = [log[at : at + size] for at in range(0, len(log), size)]
    outputs = play(read_document(ARRAYS, "k.yaml").pipeline, cuts, "fire")
    found = {
        name: [row for output in outputs for row in output[name].changes.to_pylist()] for name in ("to_x", "to_rows")
    }
    names = list(records[0])

    def plain(row: dict[str, Any]) -> dict[str, Any]:
        return {name: json.loads(row[name]) if isinstance(row[name], str) else row[name] for name in names}

    assert [plain(row) for row in found["to_x"]] == list(map(as_row, records))
    table: dict[int, dict[str, Any]] = {}
    for row in found["to_rows"]:
        if row["op"] in {"update_before", "delete"}:
            assert table.pop(row["id"]) == plain(row)
        else:
            table[row["id"]] = plain(row)
    assert table == {record["id"]: as_row(record) for record in records}


COPIES = """
name: k
key_groups: 1
sources:
  s:
    source: {log: {path: unused}}
    decode: {id: double, name: string, t: timestamp}
    time: {field: t, delay: 20s}
    lateness: 10m
streams:
  x: {from: s, deduplicate: {by: [KEY], within: 10m}}
sinks: {to_x: {from: x, sink: {sqlite: {path: unused.db, table: r}}}}
"""


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize(("key", "found"), [("id", [0, 2]), ("name", [0, 1, 2]), ("id, name", [0, 1, 2, 3])])
def test_copies_of_a_record_are_found_in_every_cut(key: str, found: list[int], size: int) -> None:
    # 0.0 and -0.0 are equal
    pairs = [(0.0, "a"), (-0.0, "b"), (1.5, ""), (1.5, "a"), (-0.0, "a"), (0.0, "b"), (1.5, ""), (1.5, "a")]
    log = [
        (0, json.dumps({"id": number, "name": name, "t": f"2026-01-01T10:0{minute}:00Z"}).encode())
        for minute, (number, name) in enumerate(pairs)
    ]
    pipeline = read_document(COPIES.replace("KEY", key), "k.yaml").pipeline
    outputs = play(pipeline, [log[at : at + size] for at in range(0, len(log), size)], "fire")
    rows = [row for output in outputs for row in output["to_x"].changes.to_pylist()]
    assert [(row["id"], row["name"]) for row in rows] == [pairs[place] for place in found]
