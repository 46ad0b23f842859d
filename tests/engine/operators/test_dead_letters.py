"""Dead letters of streams: each has the place of its own record, and is a function of the row, not of the cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.graphs import Runnable, as_graph

from windrow.authoring.pipeline_file import read_document
from windrow.runtime.memory import play

HEAD = """
name: k
sources:
  s:
    source: {log: {path: unused}}
    decode: {id: long, t: timestamp, c: "string?", n: long, list: "array<string>?"}
    time: {field: t, delay: 0s}
    lateness: 1h
streams:
"""
TAIL = """
sinks: {to_x: {from: x, sink: {sqlite: {path: unused.db, table: r}}}}
"""


def graph(streams: str) -> Runnable:
    return read_document(HEAD + streams.strip("\n") + TAIL, "k.yaml").pipeline


def records(texts: Sequence[str | None]) -> list[tuple[int, bytes]]:
    """Records of which each has the number of its offset, and a text, in two branches by turns."""
    rows = [
        {"id": 1 + n % 2, "t": f"2026-01-01T10:00:{n:02}Z", "c": text, "n": n, "list": [text or "1", text or "1", "1"]}
        for n, text in enumerate(texts)
    ]
    return [(0, json.dumps(row).encode()) for row in rows]


def dead_of(pipeline: Runnable, steps: Sequence[Sequence[tuple[int, bytes]]]) -> list[dict[str, Any]]:
    return [row for output in play(as_graph(pipeline), steps, "fire") for row in output["to_x"].dead.to_pylist()]


BRANCHES = """
  f: {from: s, where: id = 1}
  g: {from: s, where: id = 2}
  u: {from: [g, f]}
"""
OF_LOG = {
    "derive of a union": f"{BRANCHES}  x: {{from: u, derive: {{v: CAST(c AS BIGINT)}}, select: [id, v]}}",
    "where of a union": f'{BRANCHES}  x: {{from: u, where: "CAST(c AS BIGINT) > 0"}}',
    "where and derive of a union": (
        f'{BRANCHES}  y: {{from: u, where: "id + length(c) > 0", derive: {{v: CAST(c AS BIGINT)}}}}\n'
        "  x: {from: y, select: [id, v]}"
    ),
    "key of a union": (
        f"{BRANCHES}  x: {{from: u, key: [{{v: CAST(c AS BIGINT)}}], window: {{tumbling: 1h}}, "
        "aggregate: {m: count()}}"
    ),
    "split": (
        '  y: {from: s, split: {big: "CAST(c AS BIGINT) > 5"}, other: rest}\n  x: {from: [y.rest, y.big], select: [id]}'
    ),
    "flat_map": (
        "  y: {from: s, flat_map: list, element: one}\n"
        "  x: {from: y, derive: {v: CAST(one AS BIGINT)}, select: [id, v]}"
    ),
    "deduplication": (
        f"{BRANCHES}  y: {{from: u, deduplicate: {{by: n, within: 1h}}}}\n"
        "  z: {from: y, select: [c, n]}\n"
        "  x: {from: z, derive: {v: CAST(c AS BIGINT)}}"
    ),
}


@pytest.mark.parametrize("streams", OF_LOG.values(), ids=OF_LOG)
@examples(8)
@given(texts=st.lists(st.sampled_from(["bad", "4", "9"]), min_size=1, max_size=8), size=st.integers(1, 8))
def test_a_dead_letter_of_a_record_has_its_own_place_in_every_cut(streams: str, texts: list[str], size: int) -> None:
    pipeline, log = graph(streams), records(texts)
    whole, cut = dead_of(pipeline, [log]), dead_of(pipeline, [log[at : at + size] for at in range(0, len(log), size)])
    assert all(json.loads(row["raw"])["n"] == row["offset"] for row in whole)
    assert {row["offset"] for row in whole} == {n for n, text in enumerate(texts) if text == "bad"}
    assert {(row["source"], row["partition"]) for row in whole} <= {("unused", 0)}
    assert sorted(map(str, cut)) == sorted(map(str, whole))


PERSON = "  person: {from: s, table: {key: id}}\n"
HOURS = "  hours: {from: s, key: id, window: {tumbling: 1h}, aggregate: {c: max(c), many: count()}}\n"
SIDES = "  a: {from: s, select: [id, c]}\n  b: {from: s, derive: {other: c}, select: [id, other]}\n"
BOTH = f"{SIDES}  both: {{from: a, join: {{with: b, by: id, after: 1m, how: left}}}}\n"
OF_ROWS = {
    "windows, null key": (
        (
            f"{HOURS}  y: {{from: hours, select: [c]}}\n"
            "  x: {from: y, key: [{v: c}], window: {tumbling: 1h}, aggregate: {m: count()}}"
        ),
        "hours",
        "window 2026-01-01T10:00:00Z to 2026-01-01T11:00:00Z, id=",
    ),
    "windows, derive of a rename": (
        (
            f"{HOURS}  y: {{from: hours, derive: {{name: c}}, select: [name]}}\n"
            "  x: {from: y, derive: {v: CAST(name AS BIGINT)}, select: [v]}"
        ),
        "hours",
        "window 2026-01-01T10:00:00Z to 2026-01-01T11:00:00Z, id=",
    ),
    "windows, where of a union": (
        (
            f"{HOURS}  y: {{from: hours, where: id = 1, select: [c]}}\n"
            "  z: {from: hours, where: id > 1, select: [c]}\n"
            '  u: {from: [y, z]}\n  x: {from: u, where: "CAST(c AS BIGINT) > 0"}'
        ),
        "hours",
        "window 2026-01-01T10:00:00Z to 2026-01-01T11:00:00Z, id=",
    ),
    "windows, split": (
        (
            f"{HOURS}  y: {{from: hours, select: [c]}}\n"
            '  z: {from: y, split: {big: "CAST(c AS BIGINT) > 5"}, other: rest}\n  x: {from: z.big, select: [c]}'
        ),
        "hours",
        "window 2026-01-01T10:00:00Z to 2026-01-01T11:00:00Z, id=",
    ),
    "session": (
        (
            "  visits: {from: s, key: id, window: {session: 10m}, aggregate: {c: max(c)}}\n"
            "  y: {from: visits, select: [c]}\n  x: {from: y, derive: {v: CAST(c AS BIGINT)}}"
        ),
        "visits",
        "window 2026-01-01T10:00:0",
    ),
    "all so far": (
        (
            "  sums: {from: s, key: id, window: {global: {}}, aggregate: {c: max(c)}}\n"
            "  y: {from: sums, select: [c]}\n"
            "  x: {from: y, key: [{v: CAST(c AS BIGINT)}], window: {global: {}}, aggregate: {m: count()}}"
        ),
        "sums",
        "window 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999999Z, id=",
    ),
    "table": (
        (
            f"{PERSON}  y: {{from: person, select: [id, c]}}\n"
            "  x: {from: y, derive: {v: CAST(c AS BIGINT)}, select: [id, v]}"
        ),
        "person",
        "id=",
    ),
    "join": (
        f"{BOTH}  y: {{from: both, select: [other]}}\n  x: {{from: y, derive: {{v: CAST(other AS BIGINT)}}}}",
        "both",
        "id=",
    ),
    "lookup": (
        (
            f"{PERSON}  seen: {{from: s, lookup: {{table: person, by: id}}}}\n  y: {{from: seen, select: [c]}}\n"
            "  x: {from: y, derive: {v: CAST(c AS BIGINT)}}"
        ),
        "seen",
        "id=",
    ),
}


@pytest.mark.parametrize(("streams", "stream", "identity"), OF_ROWS.values(), ids=OF_ROWS)
def test_a_dead_letter_of_a_row_has_no_place_and_says_which_row_it_is(streams: str, stream: str, identity: str) -> None:
    pipeline, log = graph(streams), records(["bad", None, None, None, "zz", None])
    found = [dead_of(pipeline, steps) for steps in ([log], [[one] for one in log])]
    for dead in found:
        assert dead
        assert {(row["source"], row["partition"], row["offset"], row["log_time"]) for row in dead} == {
            (stream, None, None, None)
        }
        assert all(f": at {identity}" in row["reason"] for row in dead)
        # the row is whole, whatever a selection has left of it
        assert all("id" in json.loads(row["raw"]) for row in dead)
        assert not any(number in str(row) for row in dead for number in (str(2**31 - 1), str(2**63 - 1)))
    # what a later record changes is another row, and one that fails as well
    assert {str(row) for row in found[0]} <= {str(row) for row in found[1]}


def test_the_row_of_a_double_that_json_does_not_have_is_still_json() -> None:
    pipeline = graph(
        "  y: {from: s, derive: {d: 1e308}}\n"
        "  sums: {from: y, key: id, window: {tumbling: 1h}, aggregate: {all: sum(d), c: max(c)}}\n"
        "  x: {from: sums, where: CAST(c AS BIGINT) > 0}"
    )
    log = records(["bad"] * 9)
    dead = dead_of(pipeline, [log])
    assert {json.loads(row["raw"], parse_constant=pytest.fail)["all"] for row in dead} <= {"inf", 0.0, 1e308}
