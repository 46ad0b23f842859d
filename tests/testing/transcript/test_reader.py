"""Stories are read strictly, with file and line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from windrow.engine.tick import Tick
from windrow.errors import TranscriptError
from windrow.expressions import is_window_spec
from windrow.model import (
    MAX_PARTITIONS,
    BooleanType,
    DecimalType,
    Delay,
    Emit,
    Field,
    Graph,
    LongType,
    RulesNode,
    StringType,
    TimestampType,
    Tumbling,
)
from windrow.testing.transcript import parse_story, read_story
from windrow.testing.transcript.rows import change_text
from windrow.testing.transcript.story import (
    ChangeRow,
    End,
    Expect,
    ExpectDead,
    ExpectLate,
    LateRow,
    MarkWatermark,
    RecordStep,
)

TEN = 1_767_261_600_000_000
MINUTE = 60_000_000

STORY = """\
name: a story
pipeline:
  time: {field: t, delay: 1m}
  key: [user]
  window: {tumbling: 5m}
  aggregate: {total: sum(amount)}
  emit: {lateness: 10m}
steps:
  - records:
      - {user: A, t: "10:00", amount: 5.25}
      - {p: 1, user: "no", t: "10:01:02.000003", amount: 1.5, _log_time: "10:00:00.5"}
      - {raw: "no json"}
  - expect:
      - [insert, on_time, "10:00", A, 5.250]
  - late:
      - [0, 1, "10:00/10:05"]
  - dead:
      - [0, 1, malformed]
  - end: hold
final:
  - ["10:00", A, 5.25]
"""

MARKED = STORY.replace("delay: 1m", "punctuated: w").replace(
    "  - expect:\n", '  - watermark: "10:05"\n  - watermark: {1: "10:06", 3: "10:07"}\n  - expect:\n'
)


def test_story() -> None:
    story = parse_story(STORY, "a.yaml")
    assert (story.name, story.file) == ("a story", "a.yaml")
    pipeline = story.streams[""]
    assert is_window_spec(pipeline)
    assert pipeline.decode.fields == (
        Field("user", StringType()),
        Field("t", TimestampType("micros")),
        Field("amount", DecimalType(18, 2)),
    )
    assert pipeline.time.watermark == Delay(MINUTE)
    assert pipeline.node.window == Tumbling(5 * MINUTE)
    assert pipeline.node.emit == Emit(lateness=10 * MINUTE, at_end="hold")
    assert [type(step) for step in story.steps] == [RecordStep, Expect, ExpectLate, ExpectDead, End]
    assert story.log == {
        0: [b'{"user": "A", "t": 1767261600000000, "amount": 5.25}', b"no json"],
        1: [b'{"user": "no", "t": 1767261662000003, "amount": 1.5, "_log_time": 1767261600500}'],
    }
    expect = story.steps[1]
    assert isinstance(expect, Expect)
    assert expect.place.line == 14
    row = expect.rows[0]
    assert row == ChangeRow("insert", "on_time", (TEN, TEN + 5 * MINUTE), ("A",), row.values)
    assert str(row.values[0]) == "5.250"
    assert len(story.final[""].rows) == 1


def test_marks_are_steps_and_take_offsets() -> None:
    story = parse_story(MARKED, "a.yaml")
    marks = [step.records for step in story.steps if isinstance(step, MarkWatermark)]
    assert marks == [
        # 3 is a partition of the story too: a later mark names it
        tuple((partition, b'{"w": 1767261900000000}') for partition in (0, 1, 3)),
        ((1, b'{"w": 1767261960000000}'), (3, b'{"w": 1767262020000000}')),
    ]
    assert story.streams[""].decode.fields[-1] == Field("w", TimestampType("micros"))


def test_types_come_from_the_records() -> None:
    text = STORY.replace("amount: 5.25}", "amount: 5.25, n: 7, on: true}").replace(
        "amount: 1.5,", "amount: 1.125, n: -7, on: false,"
    )
    fields = parse_story(text, "a.yaml").streams[""].decode.fields
    assert fields[2:] == (Field("amount", DecimalType(18, 3)), Field("n", LongType()), Field("on", BooleanType()))


LISTED = """\
name: lists
pipeline:
  sources: {orders: {time: {field: t, delay: 1m}}}
  streams:
    lines: {from: orders, flat_map: items}
    sold: {from: lines, key: sku, window: {tumbling: 5m}, aggregate: {paid: sum(price)}}
steps:
  - records:
      - {t: "10:00", tags: [], items: []}
      - {t: "10:01", tags: [a, "10:00"], items: [{price: 1.5, sku: A, marks: []}, {sku: B, price: 2.25, marks: [1]}]}
  - end: hold
final:
  sold: []
"""


def test_lists_have_the_type_of_their_elements() -> None:
    story = parse_story(LISTED, "a.yaml")
    graph = story.pipeline
    assert isinstance(graph, Graph)
    types = {one.name: one.type_text for one in graph.sources[0].decode.fields}
    element = "struct<price decimal(18,2), sku string, marks array<long>>"
    assert types == {"t": "timestamp_micros", "tags": "array<string>", "items": f"array<{element}>"}
    assert json.loads(story.log[0][1])["items"][1] == {"sku": "B", "price": 2.25, "marks": [1]}
    with pytest.raises(TranscriptError, match=r"a\.yaml:9: no list of 'items' has an element in any record"):
        parse_story(LISTED.replace("marks: [1]", "marks: []"), "a.yaml")


def test_a_list_is_expected_as_the_text_that_it_is_in_a_table() -> None:
    text = STORY.replace("total: sum(amount)", 'all: "collect_list(user, 3)"').replace(
        "A, 5.250]", "A, [A, 5, 5.20, [é, null]]]"
    )
    story = parse_story(text.replace("A, 5.25]", "A, []]"), "a.yaml")
    (expect,) = (step for step in story.steps if isinstance(step, Expect))
    assert expect.rows[0].values == ('["A",5,"5.20",["é",null]]',)
    assert story.final[""].rows[0].values == ("[]",)


def test_all_shared_stories_are_read() -> None:
    for path in (Path(__file__).parents[2] / "transcripts").glob("*.yaml"):
        assert read_story(path).steps


BAD = [
    ("name: a story\n", "", r"a\.yaml:1: story lacks 'name'"),
    ("name: a story\n", "name: a story\nnames: b\n", r"a\.yaml:2: 'names' is not a key of story; did you mean 'name'"),
    ("name: a story\n", "name: a story\nname: b\n", r"a\.yaml:2: 'name' is given twice"),
    ("  - end: hold\n", "", r"a\.yaml:9: story\.steps must have one `end: fire` or `end: hold`, and has 0"),
    ("  - end: hold\n", "  - end: hold\n  - end: hold\n", "and has 2"),
    (
        "  - end: hold\n",
        "  - end: hold\n  - records:\n    - {user: A}\n",
        r"a\.yaml:21: .*only expectations may follow the end",
    ),
    ("end: hold", "end: stop", r"a\.yaml:19: .*must be fire or hold, not 'stop'"),
    ("- expect:", "- expects:", r"a\.yaml:13: 'expects' is not a key of story\.steps\.1; did you mean 'expect'"),
    ("  - late:", "  - {}\n  - late:", r"a\.yaml:15: story\.steps\.2 .*kind of step"),
    ("  - late:", "  - {end: fire, late: []}\n  - late:", "must have one kind of step, not 2"),
    ('  - ["10:00", A, 5.25]\n', "", r"a\.yaml:20: story\.final is missing: it must be a list"),
    ("final:\n", "", "is not YAML|story lacks 'final'"),
    ("window: {tumbling: 5m}", "window: {sessions: 5m}", r"a\.yaml:5: 'sessions' is not a key"),
    ("window: {tumbling: 5m}", "window: {session: 5m}", r'a\.yaml:14: .* a session is written "start/end"'),
    ("  - expect:", '  - tick: "25:00"\n  - expect:', r"a\.yaml:13: .*'25:00' is not a time of day"),
    ("  - end: hold", '  - end: hold\n  - tick: "10:00"', "only expectations may follow the end of the input"),
    ("  - end: hold", "  - end: hold\n  - crash: after_commit", "only expectations may follow the end of the input"),
    ("  - end: hold", "  - crash: now\n  - end: hold", "must be before_commit or after_commit, not 'now'"),
    ("  - records:", "  - crash: before_commit\n  - records:", r"a\.yaml:9: .*must follow the step to repeat"),
    ("  - end: hold", "  - crash: after_commit\n  - crash: after_commit\n  - end: hold", "must follow the step"),
    ('t: "10:00"', 't: "2026-02-30 10:00"', "'2026-02-30 10:00' is not a time of day"),
    ("A, 5.250]", "null, 5.250]", "must be a text, a plain number"),
    ("A, 5.250]", "A, true]", "must be a number or null, not 'true'"),
    ("sum(amount)", "sum(amounts)", r"a\.yaml:6: .*amounts"),
    ("key: [user]", "key: [users]", r"a\.yaml:4: .*users"),
    ("sum(amount)", "sum(user)", r"a\.yaml:6: "),
    ('t: "10:00"', 't: "25:00"', r"a\.yaml:10: .*'25:00' is not a time of day"),
    ('t: "10:00"', "t: 5", r"a\.yaml:10: .*'5' is not a time of day"),
    ('t: "10:00"', 't: "10:00:00.0000001"', "is not a time of day"),
    ('_log_time: "10:00:00.5"', '_log_time: "10:00:00.0005"', "whole milliseconds"),
    ("user: A, t", "user: 7, t", r"a\.yaml:11: 'user' is a string here, and a long on line 10"),
    ("amount: 1.5", "amount: 15", r"a\.yaml:11: 'amount' is a long here, and a decimal\(18,2\) on line 10"),
    (", amount: 1.5", "", r"a\.yaml:11: the record has no 'amount', but the record on line 10 has"),
    ("user: A, t", "user: null, t", "must be a text, a plain number"),
    ("user: A, t", "user: yes, t", "must be a text, a plain number"),
    ("user: A, t", "user: {name: A}, t", "must be one value, not a mapping"),
    ("user: A, t", "user: [A], t", r"a\.yaml:11: 'user' is a string here, and a array<string> on line 10"),
    ("user: A, t", "tags: [[A]], user: A, t", r"a\.yaml:10: .*tags\.0 must be one value or a mapping, not a list"),
    (
        "user: A, t",
        "tags: [A, 5], user: A, t",
        r"a\.yaml:10: .*tags\.1 is a long, but the elements before it are a string",
    ),
    (
        "user: A, t",
        "tags: [{a: 1}, {b: 1}], user: A, t",
        r"tags\.1 is a struct<b long>, .* before it are a struct<a long>",
    ),
    ("user: A, t", "tags: [{}], user: A, t", r"a\.yaml:10: .*tags\.0 has no field"),
    ("user: A, t", "tags: [], user: A, t", r"a\.yaml:11: the record has no 'tags'"),
    ("user: A, t", "user: 012, t", "must be a text, a plain number"),
    ("user: A, t", "user: .5, t", "must be a text, a plain number"),
    ("user: A, t", "user: 2026-01-01, t", "must be a text, a plain number"),
    ("amount: 5.25", "amount: .inf", "must be a text, a plain number"),
    ("p: 1", "p: -1", "'-1' is not the number of a partition"),
    ("p: 1", "p: 99999999999", "'99999999999' is not the number of a partition"),
    ("amount: 5.25", "amount: " + "9" * 5000, "must be a text, a plain number"),
    ("amount: 5.25", "amount: 5." + "0" * 20, "amount"),
    ("p: 1", "p: one", "'one' is not the number of a partition"),
    ('{raw: "no json"}', '{raw: "a", user: A}', r"a\.yaml:12: .*a raw record has no other keys"),
    ('{raw: "no json"}', '{raw: "a\\nb"}', "must be a text of one line"),
    ('{raw: "no json"}', "{p: 0}", "has no field"),
    ('{raw: "no json"}', "{}", "has no field"),
    ('{raw: "no json"}', "7", "must be a mapping"),
    ("  - expect:", '  - watermark: "10:05"\n  - expect:', "needs a source with marks"),
    ("  - expect:", "  - records: []\n  - expect:", "must have a record"),
    ("insert, on_time", "upsert, on_time", "must be insert or update_before"),
    ("insert, on_time", "insert, ontime", "must be early or on_time or late, not 'ontime'"),
    ("A, 5.250]", "A]", r"a\.yaml:14: .* must be \[op, pane, window, user, total\], and has 4 values instead of 5"),
    ("A, 5.250]", "A, five]", "must be a number or null, not 'five'"),
    ("A, 5.250]", "7, 5.250]", "must be a string, not '7'"),
    ('on_time, "10:00"', 'on_time, "10:01"', "no window starts at '10:01'"),
    ("10:00/10:05", "10:00/10:06", "the window from '10:00' ends at '10:05', not at '10:06'"),
    ('[0, 1, "10:00/10:05"]', "[0, 1]", "must be"),
    ('[0, 1, "10:00/10:05"]', '[0, -1, "10:00"]', "must be an offset"),
    ("[0, 1, malformed]", "[0, 1]", "must be"),
    ("steps:", "steps: [", r"a\.yaml:\d+: .*is not YAML"),
]


GRAPH = """\
name: a story of streams
pipeline:
  sources:
    one: {time: {field: t, delay: 1m}, lateness: 1h}
    two: {time: {field: at, punctuated: w}}
  streams:
    both: {from: [first, named]}
    first: {from: one, select: [user]}
    named: {from: two, select: [user]}
    fives: {from: both, key: user, window: {tumbling: 5m}, aggregate: {n: count()}}
    tens: {from: fives, key: user, window: {tumbling: 10m}, aggregate: {n: sum(n)}}
steps:
  - records:
      - {p: one/0, user: A, t: "10:00"}
      - {p: two/1, user: B, at: "10:01", x: 1}
  - watermark: {two/0: "10:05"}
  - watermark: "10:06"
  - expect: []
  - late:
      fives: [[two/1, 0], [one/0, 0, "10:00"]]
  - expect:
      tens: [[insert, on_time, "10:00", A, 1]]
  - end: fire
final:
  tens: [["10:00", A, 1]]
  fives: []
"""


def test_a_story_of_several_streams() -> None:
    story = parse_story(GRAPH, "a.yaml")
    assert isinstance(story.pipeline, Graph)
    assert [source.decode.fields[-1].name for source in story.pipeline.sources] == ["t", "w"]
    assert (story.pipeline.at_end, [sink.name for sink in story.pipeline.sinks]) == ("fire", ["to_tens", "to_fives"])
    assert sorted(story.log) == [0, MAX_PARTITIONS, MAX_PARTITIONS + 1]
    marks = [[partition for partition, _ in step.records] for step in story.steps if isinstance(step, MarkWatermark)]
    assert marks == [[MAX_PARTITIONS], [MAX_PARTITIONS, MAX_PARTITIONS + 1]]
    expected = [(step.stream, len(step.rows)) for step in story.steps if isinstance(step, Expect)]
    assert expected == [("fives", 0), ("tens", 0), ("tens", 1)]
    (late,) = [step for step in story.steps if isinstance(step, ExpectLate)]
    assert late.rows == (LateRow("two/1", 0, None), LateRow("one/0", 0, (TEN, TEN + 5 * MINUTE)))
    assert {name: len(final.rows) for name, final in story.final.items()} == {"tens": 1, "fives": 0}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("p: one/0", "p: 0", r"a\.yaml:14: .*'0' is not a partition \(one/0, one/1 \.\.\.\)"),
        ("p: one/0", "p: three/0", "'three/0' is not a partition"),
        ("p: one/0", "p: one/x", "'x' is not the number of a partition"),
        ("{two/0:", "{one/0:", r"a\.yaml:16: .* needs a source with marks"),
        ('  tens: [["10:00"', '  both: [["10:00"', r"a\.yaml:25: 'both' is not a key of story\.final; .* fives"),
        ("      tens: [[", "      ten: [[", r"a\.yaml:22: 'ten' is not a key of .*; did you mean 'tens'"),
        ("select: [user]}\n    fives", "select: [x]}\n    fives", r"a\.yaml:7: .*same fields"),
        ("from: fives", "from: five", r"a\.yaml:11: .*five"),
    ],
)
def test_a_malformed_story_of_several_streams(old: str, new: str, message: str) -> None:
    assert GRAPH.count(old) == 1
    with pytest.raises(TranscriptError, match=message):
        parse_story(GRAPH.replace(old, new), "a.yaml")


CHANGES = """\
name: changes
pipeline:
  sources:
    rows: {format: debezium, time: {field: t, delay: 0s}, lateness: 1h}
  streams:
    row: {from: rows, table: {key: id}}
    sums: {from: row, key: v, window: {global: {}}, aggregate: {n: count()}}
steps:
  - records:
      - {id: 1, v: a, t: "10:00"}
      - {op: u, id: 1, v: b, t: "10:01"}
      - {op: d, id: 1, t: "10:02"}
      - {op: t, t: "10:03"}
  - end: fire
final:
  sums: []
"""


def test_a_story_of_changes_of_rows() -> None:
    story = parse_story(CHANGES, "a.yaml")
    (source,) = story.pipeline.sources
    assert (source.source.format, [field.name for field in source.decode.fields]) == ("debezium", ["id", "v", "t"])
    found = [json.loads(value) for value in story.log[0]]
    sides = [(one["op"], one["before"] is not None, one["after"] is not None) for one in found]
    assert sides == [("c", False, True), ("u", False, True), ("d", True, False), ("t", False, False)]
    assert [one["source"]["ts_ms"] - found[0]["source"]["ts_ms"] for one in found] == [0, 60_000, 120_000, 180_000]
    assert found[0]["after"] == {"id": 1, "v": "a", "t": found[0]["source"]["ts_ms"] * 1000}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("op: u", "op: x", r"a\.yaml:11: .*op must be c or r or u or d or t, not 'x'"),
        ('op: d, id: 1, t: "10:02"', "op: d, id: 1", r"a\.yaml:12: .* lacks 't', the time of the change"),
        ("op: u, id: 1, v: b", "op: u, id: 1", r"a\.yaml:11: the record has no 'v'"),
        ("format: debezium", "format: avro", "format must be json or debezium"),
    ],
)
def test_a_malformed_story_of_changes(old: str, new: str, message: str) -> None:
    assert CHANGES.count(old) == 1
    with pytest.raises(TranscriptError, match=message):
        parse_story(CHANGES.replace(old, new), "a.yaml")


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_malformed_story_is_an_error_with_its_line(old: str, new: str, message: str) -> None:
    assert STORY.count(old) == 1
    with pytest.raises(TranscriptError, match=message) as caught:
        parse_story(STORY.replace(old, new), "a.yaml")
    assert caught.value.place is not None


def windowed(window: str, rows: str) -> str:
    """Return a story with another window and other expected rows."""
    head, _, rest = STORY.replace("{tumbling: 5m}", window).partition("  - expect:\n")
    return f"{head}  - expect:\n{rows}  - end: hold\nfinal: []\n" if rest else head


@pytest.mark.parametrize(
    ("window", "written", "bounds"),
    [
        ("{session: 5m}", '"10:01/10:06"', (TEN + MINUTE, TEN + 6 * MINUTE)),
        ("{session: 5m}", '"2025-12-31 10:01/2026-01-01 10:00"', (TEN - 24 * 60 * MINUTE + MINUTE, TEN)),
        ("{hopping: {size: 5m, slide: 2m}}", '"10:00"', (TEN, TEN + 5 * MINUTE)),
        ("{hopping: {size: 5m, slide: 2m}}", '"10:02/10:07"', (TEN + 2 * MINUTE, TEN + 7 * MINUTE)),
        ("{tumbling: 1 day}", '"2026-01-02"', (TEN + 14 * 60 * MINUTE, TEN + 38 * 60 * MINUTE)),
        (
            "{tumbling: {size: 1 day, zone: Europe/Berlin}}",
            '"2026-03-28 23:00"',
            (TEN + (86 * 24 + 13) * 60 * MINUTE, TEN + (87 * 24 + 12) * 60 * MINUTE),
        ),
    ],
)
def test_windows_are_written_by_their_start_or_both_ends(window: str, written: str, bounds: tuple[int, int]) -> None:
    story = parse_story(windowed(window, f"      - [insert, on_time, {written}, A, 1]\n"), "a.yaml")
    (expect,) = (step for step in story.steps if isinstance(step, Expect))
    assert expect.rows[0].window == bounds
    row = replace(expect.rows[0], key=("A",))
    assert written.partition("/")[0].strip('"').removesuffix(" 00:00") in change_text(story.streams[""], row)


def test_global_window_has_its_name() -> None:
    text = windowed("{global: {}}", "      - [insert, early, global, A, null]\n").replace(
        "emit: {lateness: 10m}", "emit: {early: {count: 2}}"
    )
    story = parse_story(text, "a.yaml")
    (expect,) = (step for step in story.steps if isinstance(step, Expect))
    assert expect.rows[0].window == (-62_135_596_800_000_000, 253_402_300_799_999_999)
    assert change_text(story.streams[""], expect.rows[0]) == "[insert, early, global, A, null]"
    with pytest.raises(TranscriptError, match="must be 'global'"):
        parse_story(text.replace("early, global", 'early, "10:00"'), "a.yaml")


@pytest.mark.parametrize(
    ("window", "written", "message"),
    [
        ("{session: 5m}", '"10:01/10:05"', "a session lasts at least as long as its gap"),
        ("{session: 5m}", '"10:01"', 'a session is written "start/end"'),
        ("{hopping: {size: 5m, slide: 2m}}", '"10:01"', "no window starts at '10:01'"),
        ("{tumbling: {size: 1 day, zone: Europe/Berlin}}", '"2026-03-29"', "no window starts at '2026-03-29'"),
    ],
)
def test_windows_that_are_none(window: str, written: str, message: str) -> None:
    with pytest.raises(TranscriptError, match=message):
        parse_story(windowed(window, f"      - [insert, on_time, {written}, A, 1]\n"), "a.yaml")


def test_ticks_are_steps_without_records() -> None:
    text = STORY.replace("  - expect:\n", '  - tick: "10:00:05"\n  - expect:\n')
    story = parse_story(text, "a.yaml")
    assert story.feed[1] == Tick(TEN + 5_000_000)
    assert story.log == parse_story(STORY, "a.yaml").log


@pytest.mark.parametrize("text", ["", "a", "[]", "- a", "name: a\n---\nname: b\n"])
def test_what_is_no_story(text: str) -> None:
    with pytest.raises(TranscriptError, match=r"a\.yaml:\d"):
        parse_story(text, "a.yaml")


RULED = """\
name: a story of rules
pipeline:
  time: {field: t, delay: 1m}
  key: [card]
  recent: {last: 2, within: 1h}
  lists: {blocked: [evil, worse]}
  rules: [{name: bad, when: merchant in blocked}]
steps:
  - records: [{card: A, t: "10:01", merchant: evil}]
  - expect: [[insert, on_time, "10:01", A, "0:0", bad, bad]]
  - end: hold
final: [["10:01", A, "0:0", bad, bad]]
"""


def test_lists_of_rules_are_in_the_story() -> None:
    pipeline = parse_story(RULED, "a.yaml").streams[""]
    assert isinstance(pipeline.node, RulesNode)
    assert [(one.name, one.entries) for one in pipeline.node.rules.lists] == [("blocked", ("evil", "worse"))]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[evil, worse]", "evil.txt", r"a\.yaml:6: .*must be a list"),
        ("bad, bad]]\n  - end", "bad]]\n  - end", r"a\.yaml:10: .*\[op, pane, time, card, subject, rule, text\]"),
        ('"10:01", A, "0:0"', 'global, A, "0:0"', r"a\.yaml:10: .*time: 'global' is not a time"),
        ('"0:0", bad, bad]]\n  - end', "0, bad, bad]]\n  - end", r"a\.yaml:10: .*subject must be a string"),
        ("merchant in blocked", "merchant in locked", r"a\.yaml:7: .*locked"),
    ],
)  # fmt: skip
def test_problem_in_a_story_of_rules(old: str, new: str, message: str) -> None:
    with pytest.raises(TranscriptError, match=message):
        parse_story(RULED.replace(old, new), "a.yaml")


def test_only_raw_records_have_no_types() -> None:
    text = "\n".join(line for line in STORY.splitlines() if "user:" not in line)
    with pytest.raises(TranscriptError, match=r"a\.yaml:3: the story needs a record that is not raw"):
        parse_story(text, "a.yaml")


def test_all_problems_are_told_at_once() -> None:
    text = STORY.replace("insert, on_time", "upsert, on_time").replace("[0, 1, malformed]", "[0]")
    with pytest.raises(TranscriptError) as caught:
        parse_story(text, "a.yaml")
    assert [line.split(" ")[0] for line in str(caught.value).splitlines()] == ["a.yaml:14:", "a.yaml:18:"]


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match="nofile"):
        read_story(tmp_path / "nofile.yaml")
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: \xe9\n")
    with pytest.raises(TranscriptError, match="UTF-8"):
        read_story(path)
