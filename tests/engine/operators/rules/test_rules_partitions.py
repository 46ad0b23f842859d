"""Records of one key and one id in two partitions: each is judged by itself, with alerts of its own."""

from __future__ import annotations

import json
from itertools import permutations

import pytest
from tests.engine.pipelines import MINUTE, raw
from tests.graphs import Runnable, as_graph

import windrow as wr
from windrow.engine.operators.rules import operator
from windrow.runtime.memory import MemoryHost

FIRST = wr.rule("first", when="prev is null")


def pipeline() -> Runnable:
    records = wr.log("purchases").decode(id="string", card="string", t="timestamp_micros").event_time("t", delay="0s")
    recent = wr.recent(last=5, within="10m")
    rules = records.key_by("card").rules(FIRST, recent=recent, unique="id", lateness="10m")
    return rules.to(wr.sqlite("alerts.db", table="alerts"), name="p").graph


def record(name: str, minute: int) -> bytes:
    return json.dumps({"id": name, "card": "A", "t": (100 + minute) * MINUTE}).encode()


def test_the_alerts_that_stand_do_not_depend_on_which_partition_is_read_first() -> None:
    # in partition 1 an earlier record comes late, and clears the alert of the copy there
    steps = [raw(0, 0, record("b", 5)), raw(1, 0, record("b", 5)), raw(1, 1, record("a", 3))]
    found = []
    for order in permutations(range(3)):
        if order.index(1) > order.index(2):
            continue
        host = MemoryHost(as_graph(pipeline()), [0, 1])
        rows: dict[str, str] = {}
        for number in order:
            for output in host.step(steps[number]):
                for change in output.rows.changes.to_pylist():
                    if change["op"] == "delete":
                        assert rows.pop(change["alert_id"]) == change["subject"]
                    else:
                        rows[change["alert_id"]] = change["subject"]
        found.append(rows)
    assert sorted(found[0].values()) == ["a", "b"]
    assert all(rows == found[0] for rows in found)


def test_an_alert_keeps_the_identity_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a run of a version that made identities otherwise."""
    host = MemoryHost(as_graph(pipeline()), [0])
    with monkeypatch.context() as patched:
        patched.setattr(operator, "alert_id", lambda *_: "as it was")
        host.step(raw(0, 0, record("b", 5)))
    made = [one for output in host.step(raw(0, 1, record("a", 3))) for one in output.rows.changes.to_pylist()]
    changes = [(one["op"], one["subject"], one["alert_id"] == "as it was") for one in made]
    assert changes == [("insert", "a", False), ("delete", "b", True)]


def test_an_evidence_with_u_0000_fails() -> None:
    given = wr.rule("r", when="true", say="{v}", evidence={"v": "id || chr(seq::int)"})
    records = wr.log("purchases").decode(id="string", seq="long", card="string", t="timestamp_micros")
    rules = records.event_time("t", delay="0s").key_by("card").rules(given, recent=wr.recent(last=5, within="10m"))
    host = MemoryHost(rules.to(wr.sqlite("alerts.db", table="alerts"), name="p").graph, [0])
    ones = [{"id": str(seq), "seq": seq, "card": "A", "t": MINUTE - seq} for seq in (65, 0)]
    outputs = [output.rows for output in host.step(raw(0, 0, *(json.dumps(one).encode() for one in ones)))]
    changes = [one for output in outputs for one in output.changes.to_pylist()]
    assert [(one["text"], one["evidence"]) for one in changes] == [("65A", '{"v": "65A"}'), ("null", '{"v": null}')]
    dead = [one for output in outputs for one in output.dead.to_pylist()]
    assert [(one["offset"], one["reason"]) for one in dead] == [(1, "expression: rules.r: the result holds U+0000")]
