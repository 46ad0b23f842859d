"""Rules that resume with another lateness."""

from __future__ import annotations

import json

from tests.engine.pipelines import MINUTE, raw
from tests.graphs import Runnable, as_graph

import windrow as wr
from windrow.engine.level import migrate
from windrow.engine.state.widening import StateChange
from windrow.runtime.memory import MemoryHost


def seen(lateness: str) -> Runnable:
    """Raise an alert on each record, with the number of records before it."""
    records = wr.log("purchases").decode(card="string", t="timestamp_micros").event_time("t", delay="0s")
    any_ = wr.rule("any", when="true", evidence={"n": "count(recent)"})
    rules = records.key_by("card").rules(any_, recent=wr.recent(last=8, within="2h"), lateness=lateness)
    return rules.to(wr.sqlite("alerts.db", table="alerts"), name="p").graph


def test_an_alert_that_is_forgotten_is_not_raised_again() -> None:
    """The state holds no alert of the first record any more, so that one more before it would raise it anew."""
    changes, late = [], []
    host = MemoryHost(as_graph(seen("1m")), [0])
    for offset, minute in enumerate([0, 60, 61, -1, 61 - 0.5]):
        if offset == 3:
            states = migrate(as_graph(seen("2h")), {"": StateChange(lateness=MINUTE)}, host.states)
            host = MemoryHost(as_graph(seen("2h")), [0])
            host.begin(states)
        one = {"card": "A", "t": round((100 + minute) * MINUTE)}
        for output in host.step(raw(0, offset, json.dumps(one).encode())):
            changes += output.rows.changes.to_pylist()
            late += output.rows.late.to_pylist()
    found = [(one["op"], one["subject"], one["revision"], one["evidence"]) for one in changes]
    assert found == [
        ("insert", "0:0", 0, '{"n": 0}'),
        ("insert", "0:1", 0, '{"n": 1}'),
        ("insert", "0:2", 0, '{"n": 2}'),
        # what was not forgotten is judged and revised
        ("insert", "0:4", 0, '{"n": 2}'),
        ("update_before", "0:2", 0, '{"n": 2}'),
        ("update_after", "0:2", 1, '{"n": 3}'),
    ]
    assert [(one["offset"], one["reason"]) for one in late] == [(3, "expired")]
