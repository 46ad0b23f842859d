"""Expected state and changes, beside those of the memory host on random logs that are made to a load."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.graphs import Runnable, as_graph

from windrow.authoring.pipeline_file import read_document
from windrow.engine.columns import unpack
from windrow.engine.schema import RAW
from windrow.model import MAX_PARTITIONS
from windrow.runtime.memory import MemoryHost
from windrow.tools.capacity.expected import NodeExpected
from windrow.tools.capacity.load import Behind, Keys, Load, measure_load
from windrow.tools.capacity.nodes import expected

PIPELINE = """\
name: spend
source: {{log: {{path: spend}}}}
decode: {{user_id: string, t: timestamp_millis, amount: long}}
time: {{field: t, delay: {delay}s}}
key: [user_id]
window: {window}
aggregate: {{total: sum(amount), events: count()}}
emit: {{lateness: {lateness}s, late: {late}}}
key_groups: 2
sink: {{sqlite: {{path: spend.db, table: spend}}}}
"""
START = 1_767_225_600
PARTITIONS = 2


@dataclass(frozen=True)
class Case:
    """A pipeline and a load: seconds, records a second."""

    window: str
    length: float
    delay: int = 10
    lateness: int = 60
    late: str = "each"
    rate: float = 30.0
    keys: int = 300
    hot: float = 0.0
    behind: float = 20.0
    step: float = 7.0

    @property
    def pipeline(self) -> Runnable:
        """The pipeline."""
        text = PIPELINE.format(delay=self.delay, window=self.window, lateness=self.lateness, late=self.late)
        return read_document(text, "spend.yaml").pipeline

    @property
    def warm(self) -> float:
        """The seconds after which as much is held as ever."""
        return 2 * self.length + self.delay + self.lateness

    @property
    def seconds(self) -> float:
        """The length of the log."""
        return self.warm + 250


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A pipeline with some window, and a load."""
    size = draw(st.sampled_from([10, 30, 60]))
    window, length = draw(
        st.sampled_from(
            [
                (f"{{tumbling: {size}s}}", size),
                (f"{{hopping: {{size: {size}s, slide: 10s}}}}", size),
                (f"{{hopping: {{size: {size}s, slide: 4s}}}}", size),
                (f"{{cumulate: {{size: {size}s, step: 5s}}}}", size),
                (f"{{session: {size // 2}s}}", size),
            ]
        )
    )
    return Case(
        window,
        length,
        delay=draw(st.integers(0, 30)),
        lateness=draw(st.sampled_from([0, 10, 60, 100])),
        late=draw(st.sampled_from(["each", "batch"])),
        rate=draw(st.floats(10, 30)),
        keys=draw(st.integers(20, 600)),
        hot=draw(st.sampled_from([0.0, 0.2])),
        behind=draw(st.floats(1, 60)),
        step=draw(st.floats(5, 13)),
    )


@dataclass(frozen=True)
class Found:
    """The means of rows of state after a step, and the counts of changes after the first seconds."""

    rows: float
    counts: Counter[str]


def log(case: Case, seed: int) -> tuple[pa.Table, np.ndarray]:
    """Return a log, and when its records come: at random, exponentially far behind."""
    rng = np.random.default_rng(seed)
    number = int(case.rate * case.seconds)
    now = np.sort(rng.uniform(0, case.seconds, number))
    curve = Behind.stated({0.99: case.behind})
    times = START + now - np.interp(rng.uniform(0, 1, number), curve.share, curve.at)
    users = rng.integers(0, case.keys, number)
    users[rng.random(number) < case.hot] = 0
    values = [
        b'{"user_id":"u%d","t":%d,"amount":1}' % (user, time)
        for user, time in zip(users.tolist(), (times * 1000).astype(np.int64).tolist(), strict=True)
    ]
    partitions, offsets = users % PARTITIONS, np.zeros(number, np.int64)
    for partition in range(PARTITIONS):
        own = partitions == partition
        offsets[own] = np.arange(np.count_nonzero(own))
    nothing = [pa.nulls(number, RAW.field(name).type) for name in ("log_time", "key")]
    columns = [pa.array(partitions, pa.int32()), pa.array(offsets), *nothing, pa.array(values, pa.binary())]
    return pa.table(columns, schema=RAW), now


def run(case: Case, raw: pa.Table, now: np.ndarray) -> Found:
    """Run it on the memory host."""
    host, counts, rows = MemoryHost(as_graph(case.pipeline), range(PARTITIONS)), Counter[str](), []
    for begin in np.arange(0, case.seconds, case.step):
        part = raw.filter(pa.array((now >= begin) & (now < begin + case.step))).combine_chunks()
        outputs = host.step(part)
        if begin < case.warm:
            continue
        rows.append(sum(unpack(blob).num_rows for state in host.states for _, blob in state.items()))
        for output in outputs:
            counts.update(output.rows.changes.column("op").to_pylist())
            counts["late"] += output.stats.late
            counts["expired"] += output.stats.expired
    counts["seconds"] = round(len(rows) * case.step)
    return Found(float(np.mean(rows)), counts)


def expectation(case: Case, raw: pa.Table) -> NodeExpected:
    """Return what the model says for the load that is measured on the log; its keys are known."""
    measured = measure_load(as_graph(case.pipeline), raw.to_batches(), "it")
    load = replace(measured, keys={"": Keys.even(case.keys, case.hot)})
    graph = as_graph(case.pipeline)
    (found,) = expected(graph, load, case.step)
    return found


def near(law: float, found: float, within: float = 0.15) -> bool:
    """Return whether a count is as expected, but for chance."""
    most = max(law, found)
    return abs(law - found) <= within * most + 4 * math.sqrt(most) + 4


@example(Case("{tumbling: 1m}", 60))
@example(Case("{hopping: {size: 1m, slide: 10s}}", 60, delay=2, behind=40))
@example(Case("{session: 20s}", 40, keys=500))
@given(cases())
@settings(examples(2), phases=[Phase.explicit, Phase.reuse, Phase.generate])  # each takes a second
def test_rows_and_changes_are_those_of_the_memory_host(case: Case) -> None:
    raw, now = log(case, 1)
    law = expectation(case, raw)
    assume(not law.doubts)
    found = run(case, raw, now)
    seconds = found.counts["seconds"]
    assert near(law.rows, found.rows), (law.rows, found.rows)
    assert near(law.late * seconds, found.counts["late"]), (law.late * seconds, found.counts)
    assert near(law.expired * seconds, found.counts["expired"]), (law.expired * seconds, found.counts)
    inserts = found.counts["insert"] + found.counts["update_after"]
    assert near((law.inserts + law.updates) * seconds, inserts), ((law.inserts + law.updates) * seconds, found.counts)
    total = sum(found.counts[op] for op in ("insert", "update_before", "update_after", "delete"))
    assert near(law.changelog * seconds, total), (law.changelog * seconds, found.counts)


def test_sessions_in_which_late_records_wait_are_in_doubt() -> None:
    case = Case("{session: 5s}", 10, delay=9, rate=10.0, keys=20, hot=0.2, behind=41.0, step=5.0)
    assert any("late records that wait" in one for one in expectation(case, log(case, 1)[0]).doubts)
    calm = replace(case, hot=0.0, behind=5.0)
    assert not expectation(calm, log(calm, 1)[0]).doubts


def test_a_stated_disorder_has_the_quantiles_that_were_stated() -> None:
    curve = Behind.stated({0.5: 1.0, 0.99: 30.0, 0.999: 300.0})
    for share, seconds in ((0.5, 1.0), (0.99, 30.0), (0.999, 300.0)):
        assert float(curve.within(seconds)) == pytest.approx(share, abs=1e-6)
    assert Behind.stated({1.0: 60.0, 0.9: 10.0}).at[-1] == 60.0
    assert float(Behind.stated({}).within(0.0)) == 1.0


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20), st.floats(0, 120), st.floats(0.1, 50))
def test_the_share_past_a_limit_is_the_mean_of_the_curve(gaps: list[float], limit: float, span: float) -> None:
    at = np.cumsum(gaps)
    curve = Behind.counted(at.tolist(), [1.0] * len(gaps))
    points = limit + (np.arange(20_000) + 0.5) / 20_000 * span
    past = curve.past(limit, span)
    assert past == pytest.approx(float((1 - curve.within(points)).mean()), abs=1e-3)
    assert past >= 0


def test_keys_of_a_sample_are_estimated_by_those_seen_once() -> None:
    rng = np.random.default_rng(3)
    counts = np.unique(rng.integers(0, 5_000, 5_000), return_counts=True)[1]
    keys = Keys.sampled(counts)
    assert keys.number == pytest.approx(5_000, rel=0.1)
    assert float(keys.active(20_000.0)) == pytest.approx(5_000 * (1 - np.exp(-4)), rel=0.1)
    assert sum(n * share for n, share in zip(keys.numbers, keys.shares, strict=True)) == pytest.approx(1)


def test_a_source_lateness_leaves_records_out() -> None:
    load = Load({"a": 10.0}, {"a": 100.0}, {"": Keys.even(10)}, Behind.stated({0.9: 10.0}))
    text = """\
name: g
sources:
  a:
    source: {log: {path: a}}
    decode: {k: string, t: timestamp}
    time: {field: t, delay: 5s}
    lateness: 5s
streams:
  counts: {from: a, key: k, window: {tumbling: 10s}, aggregate: {n: count()}, emit: {lateness: 1m}}
sinks:
  to: {from: counts, sink: {sqlite: {path: a.db, table: a}}}
"""
    graph = as_graph(read_document(text, "g.yaml").pipeline)
    (found,) = expected(graph, load, 1.0)
    assert found.taken == pytest.approx(9.0)
    assert found.expired == pytest.approx(1.0)


JOIN = """\
name: g
sources:
  a:
    source: {log: {path: a}}
    decode: {k: string, t: timestamp_millis}
    time: {field: t, delay: 10s}
    lateness: 10s
  b:
    source: {log: {path: b}}
    decode: {k: string, t: timestamp_millis}
    time: {field: t, delay: 10s}
    lateness: 10s
streams:
  made: {from: a, join: {with: b, by: k, after: 60s}}
  unique: {from: a, deduplicate: {by: k, within: 60s}}
sinks:
  to_made: {from: made, sink: {sqlite: {path: a.db, table: a}}}
  to_unique: {from: unique, sink: {sqlite: {path: a.db, table: u}}}
"""


def test_a_join_and_a_deduplication_hold_what_can_be_met() -> None:
    graph = as_graph(read_document(JOIN, "g.yaml").pipeline)
    rng, number, seconds, keys, step = np.random.default_rng(1), 6_000, 300, 500, 10
    now = np.sort(rng.uniform(0, seconds, number))
    times = ((START + now - rng.exponential(0.5, number)) * 1000).astype(np.int64)
    sources = rng.integers(0, 2, number)
    values = [b'{"k":"%d","t":%d}' % row for row in zip(rng.integers(0, keys, number), times, strict=True)]
    offsets = np.zeros(number, np.int64)
    for source in range(2):
        own = sources == source
        offsets[own] = np.arange(np.count_nonzero(own))
    nothing = [pa.nulls(number, RAW.field(name).type) for name in ("log_time", "key")]
    columns = [pa.array(sources * MAX_PARTITIONS, pa.int32()), pa.array(offsets), *nothing, pa.array(values)]
    raw = pa.table(columns, schema=RAW)
    host, rows, steps, pairs = MemoryHost(graph, [0, MAX_PARTITIONS]), Counter[str](), 0, 0
    for begin in range(0, seconds, step):
        mask = (now >= begin) & (now < begin + step)
        parts = [raw.filter(pa.array(mask & (sources == source))).combine_chunks() for source in range(2)]
        outputs = host.step(pa.concat_tables(parts))
        if begin < seconds // 3:
            continue
        steps += 1
        for state in host.states:
            for (kind, _), blob in state.items():
                rows[kind] += unpack(blob).num_rows
        pairs += sum(output.by_sink["to_made"].changes.num_rows for output in outputs)
    load = Load({"a": 10.0, "b": 10.0}, {"a": 50.0, "b": 50.0}, {"": Keys.even(keys)}, Behind.stated({0.99: 2.3}))
    found = {one.node.name: one for one in expected(graph, load, step)}
    left, right = (one.rows for one in found["made"].state)
    assert near(left, rows["made/left"] / steps)
    assert near(right, rows["made/right"] / steps)
    assert near(found["unique"].rows, rows["unique/keys"] / steps)
    assert near(found["made"].changelog * steps * step, pairs)


def test_a_deduplication_of_keys_that_come_in_bursts_is_measured() -> None:
    """Each key comes some times within a few seconds, and not again: a law of keys that come evenly is far off."""
    text = JOIN.replace("  made: {from: a, join: {with: b, by: k, after: 60s}}\n", "").replace(
        "  to_made: {from: made, sink: {sqlite: {path: a.db, table: a}}}\n", ""
    )
    graph = as_graph(read_document(text, "g.yaml").pipeline)
    rng, number, seconds, step = np.random.default_rng(1), 4_000, 400, 10
    begun = rng.uniform(0, seconds, number // 4)
    keys = rng.integers(0, len(begun), number)
    now = begun[keys] + rng.exponential(3.0, number)
    order = np.argsort(now)
    now, keys = now[order], keys[order]
    times = ((START + now) * 1000).astype(np.int64)
    values = [b'{"k":"%d","t":%d}' % row for row in zip(keys, times, strict=True)]
    nothing = [pa.nulls(number, RAW.field(name).type) for name in ("log_time", "key")]
    columns = [pa.array(np.zeros(number), pa.int32()), pa.array(np.arange(number)), *nothing, pa.array(values)]
    raw = pa.table(columns, schema=RAW)
    host, rows, steps, accepted = MemoryHost(graph, [0]), 0, 0, 0
    for begin in range(0, seconds, step):
        outputs = host.step(raw.filter(pa.array((now >= begin) & (now < begin + step))).combine_chunks())
        accepted += sum(output.by_sink["to_unique"].changes.num_rows for output in outputs)
        if begin >= seconds // 3:
            steps += 1
            rows += sum(unpack(blob).num_rows for state in host.states for _, blob in state.items())
    load = measure_load(graph, raw.to_batches(), "a log")
    assert near(load.accepted["unique"] * number, accepted, 0.01)
    found = {one.node.name: one for one in expected(graph, load, step)}
    assert near(found["unique"].rows, rows / steps)
    stated = {one.node.name: one for one in expected(graph, replace(load, accepted={}), step)}
    assert stated["unique"].rows > 1.5 * found["unique"].rows
