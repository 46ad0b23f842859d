"""Two answers are compared as two dictionaries would be, however they come in pieces; two files, to the last digit."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graphs import as_graph, parse_short, sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors import diff
from windrow.connectors.diff import RowDifference, compare, differences
from windrow.connectors.misfits import MISFITS
from windrow.engine.schema import MICROS
from windrow.model import SqliteSink
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.tools.generate import LogSpec, write_log

KEY = ("window_start", "user")
MINUTE = 60_000_000
Row = tuple[Decimal | None, int, float | None, str | None]
Answer = dict[tuple[int, str], Row]

SCHEMA = pa.schema(
    [
        ("window_start", MICROS),
        ("user", pa.string()),
        ("total", pa.decimal128(12, 2)),
        ("events", pa.int64()),
        ("mean", pa.float64()),
        ("last", pa.string()),
    ]
)
ROWS = st.tuples(
    st.none() | st.integers(-300, 300).map(lambda cents: Decimal(cents) / 100),
    st.integers(0, 2),
    st.none() | st.sampled_from([0.5, float("nan"), 1e300]),
    st.none() | st.sampled_from(["", "x"]),
)
ANSWERS = st.dictionaries(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "B", "é", "😀"])), ROWS, max_size=12)


def pieces(answer: Answer, size: int) -> Iterator[pa.Table]:
    """The answer in the order of its keys, in tables of some rows."""
    rows = [(window * MINUTE, user, *values) for (window, user), values in sorted(answer.items())]
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    whole = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    return (whole.slice(start, size) for start in range(0, whole.num_rows, size))


def alike(one: Row, other: Row) -> bool:
    return str(one) == str(other)  # not a number is like itself


PAIRS = st.tuples(ANSWERS, ANSWERS) | st.tuples(ANSWERS, ANSWERS).map(
    lambda pair: (pair[0], pair[0] | dict(list(pair[1].items())[:2]))
)
"""Two answers, often with most rows in both."""


@given(PAIRS, st.tuples(st.integers(1, 5), st.integers(1, 5)), st.integers(0, 4))
def test_it_finds_what_dictionaries_do(pair: tuple[Answer, Answer], sizes: tuple[int, int], limit: int) -> None:
    here, there = pair
    found = compare(pieces(here, sizes[0]), pieces(there, sizes[1]), KEY, limit)
    assert found.only_here == len(here.keys() - there.keys())
    assert found.only_there == len(there.keys() - here.keys())
    different = {key for key in here.keys() & there.keys() if not alike(here[key], there[key])}
    assert found.different == len(different)
    assert found.is_same == (str(sorted(here.items())) == str(sorted(there.items())))
    for side, answer in ((found.here, here), (found.there, there)):
        assert side.rows == len(answer)
        assert side.sums.get("events", 0) == sum(row[1] for row in answer.values())
        assert side.sums.get("total", 0) == sum(row[0] or 0 for row in answer.values())
    keys = sorted({*different, *(here.keys() ^ there.keys())})[:limit]
    assert [(one.key["window_start"], one.key["user"]) for one in found.first] == [
        (f"1970-01-01 00:0{window}:00", user) for window, user in keys
    ]
    for key, one in zip(keys, found.first, strict=True):
        assert (one.here is not None, one.there is not None) == (key in here, key in there)
        assert one.kind == ("differs" if key in different else "here" if key in here else "there")
        if one.here is not None:
            total = here[key][0]
            assert one.here["total"] == (None if total is None else f"{total:.2f}")
            assert one.here["last"] == here[key][3]


BAGS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2), st.none() | st.sampled_from("ab"), st.integers(0, 1), st.none() | st.just("n")
    ),
    max_size=8,
)
"""Rows of which a key can have more than one, or lack a part; the last says whether the value is a misfit."""


def bag(rows: list[tuple[int | None, str | None, int, str | None]], size: int) -> Iterator[pa.Table]:
    """The rows in the order of their keys, nulls last, in tables of some rows, with misfits where there are any."""
    ordered = sorted(rows, key=lambda row: (row[0] is None, row[0] or 0, row[1] is None, row[1] or ""))
    for start in range(0, len(ordered), size):
        piece = ordered[start : start + size]
        table = pa.table(
            {
                "here": pa.array([row[0] for row in piece], pa.int64()),
                "user": pa.array([row[1] for row in piece], pa.string()),
                "n": pa.array([None if row[3] else row[2] for row in piece], pa.int64()),
            }
        )
        misfits = [f'{{"n": "{row[2]}.5"}}' if row[3] else None for row in piece]
        yield table.append_column(MISFITS, pa.array(misfits, pa.string())) if any(misfits) else table


@given(BAGS, BAGS, st.sampled_from([0, 1]), st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_rows_of_one_key_are_compared_as_bags(
    here: list[Any], more: list[Any], is_near: Literal[0, 1], sizes: tuple[int, int]
) -> None:
    there = [*here, *more[:1]] if is_near else more
    found = compare(bag(here, sizes[0]), bag(there, sizes[1]), ("here", "user"), 100)
    seen = Counter((*row[:2], f"{row[2]}.5" if row[3] else row[2]) for row in here)
    others = Counter((*row[:2], f"{row[2]}.5" if row[3] else row[2]) for row in there)
    is_repeated = any(side.repeated for side in (found.here, found.there))
    assert found.is_same == (seen == others and not is_repeated)
    assert (found.here.rows, found.there.rows) == (len(here), len(there))
    assert found.only_here + found.different == (seen - others).total()
    assert found.only_there + found.different == (others - seen).total()
    for side, bags in ((found.here, seen), (found.there, others)):
        keys = Counter(row[:2] for row in bags.elements() if None not in row[:2])
        assert side.repeated == sum(count - 1 for count in keys.values())
        repeats = min((key for key, count in keys.items() if count > 1), default=None)
        assert [(row["here"], row["user"]) for row in side.first_repeated] == [repeats] * (2 if repeats else 0)
        assert all((row["here"], row["user"], row["n"]) in bags for row in side.first_repeated)
    told: Counter[Any] = Counter()
    for one in found.first:
        for row, sign in ((one.here, 1), (one.there, -1)):
            if row is not None:
                told[(*one.key.values(), row["n"])] += sign
    assert {key: n for key, n in told.items() if n} == {
        key: seen[key] - others[key] for key in seen | others if seen[key] != others[key]
    }


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (pa.array([2**53 + 1, None]), pa.array([2.0**53, None]), False),
        (pa.array([2**53, None]), pa.array([2.0**53, None]), True),
        (pa.array([Decimal("0.10")]), pa.array([0.1]), True),
        (pa.array([Decimal("0.10")]), pa.array([0.1000001]), False),
        (pa.array([5]), pa.array([Decimal("5.00")]), True),
        (pa.array([5]), pa.array(["5"]), True),
        (pa.array([5]), pa.array(["5.0"]), False),
        (pa.array([True]), pa.array(["true"]), True),
        (pa.array([b"a"]), pa.array(["a"]), False),
        (pa.array([float("nan")]), pa.array([1]), False),
    ],
)
def test_columns_of_different_types_are_compared_by_value(one: pa.Array, other: pa.Array, *, is_same: bool) -> None:
    sides = [iter([pa.table({"k": list(range(len(side))), "v": side})]) for side in (one, other)]
    assert compare(sides[0], sides[1], ["k"], 5).is_same is is_same


def test_decimals_of_other_scales_are_compared_by_value() -> None:
    def side(value: str, scale: int) -> Iterator[pa.Table]:
        total = pa.array([Decimal(value)], pa.decimal128(38, scale))
        yield pa.table({"user": ["a"], "total": total, "n": pa.array([2**62], pa.int64())})

    assert compare(side("1.50", 2), side("1.5", 1), ["user"], 1).is_same
    found = compare(side("1.50", 2), side("1.505", 3), ["user"], 1)
    assert found.first == [
        RowDifference("differs", {"user": "a"}, {"total": "1.500", "n": 2**62}, {"total": "1.505", "n": 2**62})
    ]


def test_sums_are_exact_beyond_64_bits() -> None:
    rows = pa.table({"k": [1, 2, 3], "n": [2**62] * 3, "d": pa.array([Decimal(10**36)] * 3, pa.decimal128(38, 1))})
    found = compare(iter([rows]), iter(()), ["k"], 0)
    assert found.here.sums == {"n": 3 * 2**62, "d": Decimal(3 * 10**36)}
    assert (found.only_here, found.there.rows, found.first) == (3, 0, [])


MEANS = """\
name: means
source: {{log: {{path: "{log}"}}}}
decode: {{line: {{type: string, path: user_id}}, event_time: timestamp_millis, amount: double}}
time: {{field: event_time, delay: 10m, future: 1h}}
key: [line]
window: {{tumbling: 5m}}
aggregate: {{mean: avg(amount), events: count()}}
emit: {{lateness: 1h, late: each, mode: retract}}
sink: {{sqlite: {{path: "{folder}/one.db", table: means}}}}
"""


def two_files(folder: Path) -> tuple[Pipeline, Path, Path]:
    """A pipeline, and its tables in two files, of steps of other sizes."""
    write_log(LogSpec(events=3000), folder / "log")
    pipeline = parse_short(MEANS.format(log=folder / "log", folder=folder))
    files = folder / "one.db", folder / "other.db"
    for file, step in zip(files, (1000, 170), strict=True):
        written = replace(pipeline, sink=SqliteSink(str(file), "means"))
        options = RunSettings(checkpoint=folder / file.stem, host="memory", until_end=True, max_records=step)
        launch(as_graph(written), options, lambda _: None, lambda _: None)
    return pipeline, *files


@pytest.mark.parametrize("longest", [1 << 28, 1000])
def test_two_files_are_compared_to_the_last_digit(
    longest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "_LONGEST_TEXT", longest)
    pipeline, one, other = two_files(tmp_path)
    assert differences(sink_spec_of(pipeline), one, other) == []
    with closing(sqlite3.connect(other)) as db, db:
        *first, mean = db.execute("SELECT epoch, seq, mean FROM means_changes ORDER BY epoch, seq LIMIT 1").fetchone()
        up = math.nextafter(mean, math.inf)
        db.execute("UPDATE means_changes SET mean = ? WHERE (epoch, seq) = (?, ?)", (up, *first))
        key = db.execute("SELECT window_start, line FROM means ORDER BY 1 DESC, 2 DESC LIMIT 1").fetchone()
        db.execute("DELETE FROM means WHERE (window_start, line) = (?, ?)", key)
    result, changes = differences(sink_spec_of(pipeline), one, other)
    assert result.startswith(f"means: ('{key[0]}', ")
    assert result.endswith(" in one.db, None in other.db")
    assert changes.startswith("means_changes: ('insert', 'on_time', 0, ")
    assert f", {mean}, 1) in one.db" in changes
    assert f", {up}, 1) in other.db" in changes
