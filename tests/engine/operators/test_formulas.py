"""Rows for which a formula fails are dead letters, and in no table, in every cut of the log and after a crash."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import raw
from tests.examples import examples
from tests.graphs import Runnable, as_graph

from windrow.authoring.pipeline_file import read_document
from windrow.engine.changelog import concat_by_sink, empty_by_sink
from windrow.engine.schema import RAW
from windrow.engine.tick import Crash
from windrow.runtime.memory import MemoryHost, play

HEAD = """
name: k
sources:
  s:
    source: {log: {path: unused}}
    decode: {id: long, t: timestamp, c: string}
    time: {field: t, delay: 20s}
    lateness: 10m
streams:
"""
TAIL = """
sinks: {to_x: {from: x, sink: {sqlite: {path: unused.db, table: r}}}}
"""
LATE = "emit: {lateness: 4m}"


def window(name: str, kind: str, emit: str = LATE, formula: str = "CAST(last AS BIGINT)") -> str:
    results = f'{{n: count(), last: last_in_log(c), v: {formula}, half: 1 / (n - 1), name: "last || n"}}'
    return f"  {name}: {{from: s, key: id, window: {{{kind}}}, aggregate: {results}, {emit}}}\n"


SESSION = "session: 1m"
MINUTES = "tumbling: 1m"
STREAMS = {
    "windows": window("x", MINUTES),
    "accumulate": window("x", MINUTES, "emit: {lateness: 4m, mode: accumulate}"),
    "discard": window("x", MINUTES, "emit: {lateness: 4m, mode: discard}"),
    "early": window("x", MINUTES, "emit: {lateness: 4m, early: {count: 2}}"),
    "early, accumulate": window("x", MINUTES, "emit: {lateness: 4m, early: {count: 1}, mode: accumulate}"),
    "counted": window("x", MINUTES, "emit: {lateness: 4m, late: {count: 2}}"),
    "hopping": window("x", "hopping: {size: 2m, slide: 1m}"),
    "global": window("x", "global: {}", "emit: {early: {count: 1}}"),
    "sessions": window("x", SESSION),
    "sessions, accumulate": window("x", SESSION, "emit: {lateness: 4m, mode: accumulate}"),
    "sessions, early": window("x", SESSION, "emit: {lateness: 4m, early: {count: 1}}"),
    "having": window("y", MINUTES) + "  x: {from: y, where: v > 3}\n",
    "derived": window("y", SESSION) + "  x: {from: y, derive: {twice: 2 * v}, select: [window_end, id, twice]}\n",
    "windows of windows": (
        window("y", MINUTES)
        + '  x: {from: y, key: id, window: {tumbling: 5m}, aggregate: {m: count(), v: sum(v), f: "v // (m - 2)"}}\n'
    ),
    "windows of sessions": (
        window("y", SESSION) + "  x: {from: y, window: {tumbling: 5m}, aggregate: {m: count(), v: sum(v)}}\n"
    ),
    "all so far": (
        window("y", MINUTES)
        + '  x: {from: y, key: id, window: {global: {}}, aggregate: {m: count(), v: sum(v), f: "v // (m - 2)"}}\n'
    ),
    "join": (
        window("y", MINUTES)
        + window("z", "tumbling: 2m")
        + "  x: {from: y, join: {with: z, by: id, after: 2m, how: left}}\n"
    ),
}


def graph(streams: str) -> Runnable:
    return read_document(HEAD + streams + TAIL, "k.yaml").pipeline


Log = list[tuple[int, bytes]]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Records of two keys, of a time that goes on, with late ones; some texts are no numbers."""
    found = []
    for number in range(draw(st.integers(1, 24))):
        second = max(0, 12 * number - draw(st.sampled_from([0, 0, 10, 40, 90, 200])))
        text = draw(st.sampled_from(["1", "5", "9", "x"]))
        row = {"id": draw(st.integers(1, 2)), "t": f"2026-01-01T10:{second // 60:02}:{second % 60:02}Z", "c": text}
        found.append((0, json.dumps(row).encode()))
    return found


def told(outputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What outputs say, in all that is the same in every cut: the changes of each row in order, and the rest."""
    changes = defaultdict(list)
    for output in outputs:
        for row in output["to_x"].changes.to_pylist():
            key = [str(row[name]) for name in ("window_start", "window_end", "id", "row") if name in row]
            changes[tuple(key)].append(row)
    late, dead = (
        sorted(str(row) for output in outputs for row in getattr(output["to_x"], name).to_pylist())
        for name in ("late", "dead")
    )
    return {"changes": dict(changes), "late": late, "dead": dead}


@pytest.mark.parametrize("streams", STREAMS.values(), ids=STREAMS)
@examples(4)
@given(log=logs(), size=st.integers(1, 6), data=st.data())
def test_rows_and_dead_letters_are_the_same_in_every_cut_and_after_a_crash(
    streams: str, log: Log, size: int, data: st.DataObject
) -> None:
    pipeline = graph(streams)
    cut: list[Any] = [log[at : at + size] for at in range(0, len(log), size)]
    outputs = play(as_graph(pipeline), [log], "fire")
    table(outputs, is_by_pane="discard" in streams)
    whole, parts = told(outputs), told(play(as_graph(pipeline), cut, "fire"))
    assert parts == whole
    at = data.draw(st.integers(1, len(cut)))
    crashed = [*cut[:at], Crash(is_committed=data.draw(st.booleans())), *cut[at:]]
    assert told(play(as_graph(pipeline), crashed, "fire")) == whole


def test_a_dead_letter_of_a_row_says_which_formula_fails_and_what_the_row_is() -> None:
    log = [(0, b'{"id":1,"t":"2026-01-01T10:00:00Z","c":"x"}'), (0, b'{"id":2,"t":"2026-01-01T10:00:00Z","c":"3"}')]
    *_, last = play(as_graph(graph(window("x", MINUTES))), [log], "fire")
    (row,) = last["to_x"].dead.to_pylist()
    assert {name: row[name] for name in ("source", "partition", "offset", "log_time")} == {
        "source": "x",
        "partition": None,
        "offset": None,
        "log_time": None,
    }
    assert row["reason"] == (
        "expression: v: Could not convert string 'x' to INT64 when casting from source column last: "
        "at window 2026-01-01T10:00:00Z to 2026-01-01T10:01:00Z, id=1"
    )
    assert json.loads(row["raw"]) == {
        "window_start": "2026-01-01T10:00:00.000000Z",
        "window_end": "2026-01-01T10:01:00.000000Z",
        "id": 1,
        "n": 1,
        "last": "x",
        "v": None,
        "half": None,
        "name": "x1",
    }
    (change,) = last["to_x"].changes.to_pylist()
    assert (change["id"], change["v"], change["half"]) == (2, 3, None)


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("last || chr(CAST(n - 1 AS INTEGER))", "the result holds U+0000"),
        ("to_timestamp(n * 1e12)", "the result is a time outside the years 1 to 9999"),
        ("n // (n - 1)", "Division by zero"),
    ],
)
def test_what_no_column_can_have_is_a_failure(formula: str, why: str) -> None:
    log = [(0, b'{"id":1,"t":"2026-01-01T10:00:00Z","c":"x"}')]
    *_, last = play(as_graph(graph(window("x", MINUTES, formula=f'"{formula}"'))), [log], "fire")
    (row,) = last["to_x"].dead.to_pylist()
    assert row["reason"].startswith(f"expression: v: {why}")
    assert json.loads(row["raw"])["v"] is None
    assert last["to_x"].changes.num_rows == 0


@pytest.mark.parametrize("streams", [one for name, one in STREAMS.items() if name != "discard"])
@examples(4)
@given(log=logs(), data=st.data())
def test_a_state_of_an_earlier_version_keeps_its_rule_for_windows_that_had_begun(
    streams: str, log: Log, data: st.DataObject
) -> None:
    """Earlier versions wrote null where a formula failed, as TRY_CAST does; what they wrote is taken back."""
    at = data.draw(st.integers(1, len(log)))
    now, then = (
        graph(streams),
        graph(streams.replace("CAST(last", "TRY_CAST(last").replace("(m - 2)", "nullif(m - 2, 0)")),
    )
    before = MemoryHost(as_graph(then), [0])
    outputs = [before.step(raw(0, 0, *(value for _, value in log[:at])))]
    states = before.copy_states()
    for state in states:
        summary = state.summary()
        assert summary is not None
        state.set_summary(re.sub(rb', "null_until": -?\d+', b"", summary))
    after = MemoryHost(as_graph(now), [0])
    after.begin(states)
    outputs.append(after.step(raw(0, at, *(value for _, value in log[at:])) if log[at:] else RAW.empty_table()))
    outputs.append(after.end())
    none = empty_by_sink(as_graph(now))
    found = table([concat_by_sink(none, (group.by_sink for group in output)) for output in outputs])
    # what is read of the log in the step of the new version had begun by then
    assert found == table(play(as_graph(then), [log], "fire"))


def table(outputs: Sequence[dict[str, Any]], *, is_by_pane: bool = False) -> dict[Any, dict[str, Any]]:
    """Apply changes, which must fit what is there."""
    rows: dict[Any, dict[str, Any]] = {}
    for output in outputs:
        for row in output["to_x"].changes.to_pylist():
            own = {name: value for name, value in row.items() if name not in {"op", "pane", "revision"}}
            names = ["window_start", "window_end", "id", "row", *(["revision"] if is_by_pane else [])]
            key = tuple(str(row[name]) for name in names if name in row)
            match row["op"]:
                case "insert":
                    assert key not in rows
                    rows[key] = own
                case "update_after":
                    rows[key] = own
                case "delete":
                    assert rows.pop(key) == own
                case _:
                    assert rows[key] == own
    return rows
