"""Lists as the rules of each version see them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from tests.graphs import graph_of
from tests.short_forms import RulesPipeline, operator_spec

import windrow as wr
from windrow.engine.operators.rules.versions import Entries


def test_a_list_that_is_gone_and_never_had_an_entry_is_empty() -> None:
    """Rules that were in force before, and have records judged again, can name it."""
    records = wr.log("purchases").decode(id="string", card="string", t="timestamp").event_time("t", delay="10s")
    rules = records.key_by("card").rules(wr.rule("large", when="true"), recent=wr.recent(last=2, within="1h"))
    pipeline = rules.to(wr.sqlite("alerts.db", table="alerts"), name="p")
    zeros = np.zeros(2, dtype=np.int64)
    assert Entries(operator_spec(graph_of(pipeline, RulesPipeline))).contain(
        "blocked", pa.array(["a", None]), zeros, zeros
    ).to_pylist() == [False, None]
