"""Keys of the two sides of a join: of one type, or refused with their line, whatever the kind of join."""

from __future__ import annotations

import json
from itertools import product

import pyarrow as pa
import pytest
from tests.authoring.test_graph_file import problems_of, read
from tests.engine.pipelines import MINUTE, raw

from windrow.model import MAX_PARTITIONS
from windrow.runtime.memory import MemoryHost

PAIRS = """\
name: pairs
sources:
  right:
    source: {{log: {{path: data/right}}}}
    decode: {{b: "{right}", at: timestamp_micros, y: string}}
    time: {{field: at, delay: 0s, idle: 1m}}
    lateness: 1h
  left:
    source: {{log: {{path: data/left}}}}
    decode: {{a: "{left}", t: timestamp_micros, x: string}}
    time: {{field: t, delay: 0s, idle: 1m}}
    lateness: 1h
streams:
{streams}
sinks:
  to_pairs: {{from: pairs, sink: {{sqlite: {{path: pairs.db, table: pairs}}}}}}
"""
LAST = "  last: {from: right, table: {key: b}}\n"
KINDS = {
    "interval": "  pairs: {from: left, join: {with: right, by: {a: b}, before: 15m}}",
    "outer": "  pairs: {from: left, join: {with: right, by: {a: b}, before: 15m, how: full}}",
    "lookup": LAST + "  pairs: {from: left, lookup: {table: last, by: {a: b}}}",
    "broadcast": LAST + "  pairs: {from: left, lookup: {table: last, by: {a: b}, broadcast: true}}",
    "order": LAST + "  pairs: {from: left, lookup: {table: last, by: {a: b}, as_of: order}}",
    "tables": LAST
    + "  own: {from: left, table: {key: a}}\n  pairs: {from: own, join: {with: last, by: {a: b}, how: left}}",
}
TIMES = {"timestamp": "1970-01-01T00:00:01Z", "timestamp_millis": 1000}
VALUES = {
    "string": "1",
    "long": 1,
    "boolean": True,
    "decimal(10,2)": "1.00",
    "decimal(10,4)": "1.0000",
    "decimal(12,2)": "1.00",
    "decimal(10,0)": "1",
    "decimal(38,4)": "1.0000",
} | TIMES


def written(kind: str, left: str, right: str) -> str:
    return PAIRS.format(left=left, right=right, streams=KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_unlike_types_are_refused_with_their_line(kind: str) -> None:
    for left, right in product(VALUES, VALUES):
        if left != right and not {left, right} <= set(TIMES):
            text = written(kind, left, right)
            line = text[: text.index("pairs: {from: ")].count("\n") + 1
            section = "join" if "join:" in text else "lookup"
            (found,) = problems_of(text)
            assert found.startswith(f"{line}: streams.pairs.{section}.by: 'a' in "), found
            assert f" is {left}, but 'b' in " in found, found
            assert f" is {right}: derive a field of the same type, such as CAST(b AS ...)" in found, found


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_one_type_meet(kind: str) -> None:
    pairs = [*((one, one) for one in VALUES), *product(TIMES, TIMES)]
    for left, right in pairs:
        host = MemoryHost(read(written(kind, left, right)), [0, MAX_PARTITIONS])
        row = json.dumps({"b": VALUES[right], "at": 0, "y": "right"}).encode()
        record = json.dumps({"a": VALUES[left], "t": MINUTE, "x": "left"}).encode()
        outputs = [*host.step(pa.concat_tables([raw(0, 0, row), raw(MAX_PARTITIONS, 0, record)])), *host.end()]
        found = pa.concat_tables([one.by_sink["to_pairs"].changes for one in outputs]).to_pylist()
        assert [(one["x"], one["y"]) for one in found if one["op"] == "insert"] == [("left", "right")], (left, right)
