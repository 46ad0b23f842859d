"""Which changes of a pipeline can resume from a savepoint, and what is said of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.graphs import as_graph, graph_of
from tests.runtime.spend import MINUTE, spend
from tests.short_forms import Pipeline, ProcessPipeline

import windrow as wr
from windrow.authoring.pipeline_file import read_document
from windrow.connectors.sink import Run
from windrow.engine.state.store import MemoryState
from windrow.errors import CheckpointError
from windrow.model import (
    Aggregate,
    Count,
    DataType,
    DecimalType,
    Decode,
    Delay,
    DoubleType,
    EventTime,
    Field,
    Graph,
    KafkaSource,
    LogSource,
    LongType,
    Max,
    PostgresSink,
    Process,
    Punctuated,
    Records,
    SqliteSink,
    StringType,
    Tumbling,
)
from windrow.runtime.compatibility import changes_since, pipeline_changes, upgraded
from windrow.runtime.savepoint import Savepoint, fingerprint
from windrow.runtime.stream.checkpoint import Checkpoint

PIPELINE = spend(LogSource("data/spend"), SqliteSink("spend.db", "spend"))
Edit = Callable[[Pipeline], Pipeline]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A savepoint of `PIPELINE` before its first step."""
    savepoint = Savepoint(Run("user-spend", "one"), 3, {0: 5}, (0,), 8, fingerprint(as_graph(PIPELINE)))
    savepoint.write(tmp_path / "savepoint", ((group, MemoryState()) for group in range(8)))
    return tmp_path / "savepoint"


def emit(**settings: Any) -> Edit:  # noqa: ANN401 - any setting of `Emit`
    return lambda pipeline: replace(pipeline, emit=replace(pipeline.emit, **settings))


def time(**settings: Any) -> Edit:  # noqa: ANN401 - any setting of `EventTime`
    return lambda pipeline: replace(pipeline, time=replace(pipeline.time, **settings))


def decode(*fields: Field) -> Edit:
    return lambda pipeline: replace(pipeline, decode=Decode((*pipeline.decode.fields, *fields)))


def amount(field: Field) -> Edit:
    return lambda pipeline: replace(pipeline, decode=Decode((*pipeline.decode.fields[:2], field)))


CAN: list[tuple[Edit, list[str]]] = [
    (lambda pipeline: pipeline, []),
    (lambda pipeline: replace(pipeline, sink=PostgresSink("postgresql://localhost/a", "b")), []),
    (lambda pipeline: replace(pipeline, source=LogSource("elsewhere/spend")), []),
    (
        lambda pipeline: replace(pipeline, source=LogSource("elsewhere")),
        ['source: "spend" there, "elsewhere" here: new rows have this source; existing rows keep the old one'],
    ),
    (lambda pipeline: replace(pipeline, aggregates=pipeline.aggregates[::-1]), []),
    (emit(at_end="hold"), []),
    (lambda pipeline: replace(pipeline, alerts=wr.alerts(lag="1m", hot_key="off", webhook="https://h")), []),
    (emit(lateness=60 * MINUTE), ['emit.lateness: "30m" there, "1h" here: windows that were dropped stay dropped']),
    (emit(lateness=MINUTE), ['emit.lateness: "30m" there, "1m" here: windows that are past the new lateness']),
    (time(watermark=Delay(0)), ['time.delay: "10m" there, "0s" here: applies from the next record on']),
    (time(future=None, idle=MINUTE), ['time.future: "1h" there, nothing here', 'time.idle: nothing there, "1m" here']),
    (time(jump=MINUTE), ['time.jump: nothing there, "1m" here: applies from the next record on; watermarks never']),
    (
        lambda pipeline: replace(pipeline, key_groups=4),
        ["key_groups: 2 there, 4 here: the state is split or merged"],
    ),
    (lambda pipeline: replace(pipeline, salt=3), ["salt: nothing there, 3 here: records are distributed"]),
    (
        lambda pipeline: replace(pipeline, aggregates=(*pipeline.aggregates[1:], Aggregate("last", Max("amount")))),
        ['aggregate.total: "sum(amount)" there, nothing here', 'aggregate.last: nothing there, "max(amount)" here'],
    ),
    (decode(Field("shop", StringType())), ['decode.shop: nothing there, "string" here: from here on, a record']),
    (
        amount(Field("amount", DecimalType(14, 2), optional=True)),
        ['decode.amount: "decimal(12,2)" there, "decimal(14,2)?" here: applies from the next record on; existing'],
    ),
    (amount(Field("amount", DecimalType(12, 2), alias=("value",))), ['decode.amount: "decimal(12,2)" there, {"type"']),
]


@pytest.mark.parametrize(("edit", "told"), CAN, ids=[str(told) for _, told in CAN])
def test_what_can_change_says_what_it_means(edit: Edit, told: list[str], folder: Path) -> None:
    found = [change.text for change in changes_since(folder, as_graph(edit(PIPELINE)))]
    assert len(found) == len(told)
    assert all(text.startswith(begins) for text, begins in zip(found, told, strict=True)), found
    savepoint, states = upgraded(folder, as_graph(edit(PIPELINE)))
    assert savepoint.meaning == fingerprint(as_graph(edit(PIPELINE)))
    assert len(list(states)) == savepoint.key_groups == edit(PIPELINE).key_groups


CANNOT: list[tuple[Edit, str]] = [
    (lambda pipeline: replace(pipeline, name="other"), "name"),
    (lambda pipeline: replace(pipeline, window=Tumbling(MINUTE)), "window"),
    (lambda pipeline: replace(pipeline, key=("user_id", "amount")), "key"),
    (lambda pipeline: replace(pipeline, time=EventTime("amount", Delay(0))), "time.field"),
    (time(sent="amount"), "time.sent"),
    (emit(mode="discard"), "emit.mode"),
    (emit(late="batch"), "emit.late"),
    (emit(early=Records(3)), "emit.early"),
    (lambda pipeline: replace(pipeline, aggregates=(Aggregate("total", Count()),)), "aggregate.total"),
]


@pytest.mark.parametrize(("edit", "field"), CANNOT, ids=[field for _, field in CANNOT])
def test_what_cannot_change_is_refused_by_its_field(edit: Edit, field: str, folder: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"\n  {field}: .* there, .* here\nundo the change"):
        changes_since(folder, as_graph(edit(PIPELINE)))
    with pytest.raises(CheckpointError):
        upgraded(folder, as_graph(edit(PIPELINE)))


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        (DecimalType(11, 2), r"not every decimal\(12,2\) is the same value as a decimal\(11,2\)"),
        (DecimalType(12, 3), r"not every decimal\(12,2\) is the same value as a decimal\(12,3\)"),
        (DecimalType(14, 4), r"aggregate\.mean is rounded to the digits of its field"),
        (DoubleType(), r"not every decimal\(12,2\) is the same value as a double"),
        (StringType(), r"not every decimal\(12,2\) is the same value as a string"),
    ],
    ids=str,
)
def test_a_type_that_cannot_go_on_is_refused_with_the_reason(type_: DataType, why: str, folder: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"\n  decode\.amount: .* there, .* here: {why}.*\nundo the change"):
        changes_since(folder, as_graph(amount(Field("amount", type_))(PIPELINE)))


@pytest.mark.parametrize(
    ("there", "here", "why"),
    [
        ({"path": "euros"}, {"path": "cents"}, "its values would be read from a different place in a record"),
        ({}, {"path": "cents"}, "its values would be read from a different place in a record"),
        ({"path": "cents"}, {}, "its values would be read from a different place in a record"),
        ({"alias": ["euros"]}, {}, "it would be null in records that contain it as euros"),
        ({"alias": ["a", "b", "c"]}, {"alias": ["b", "d"]}, "it would be null in records that contain it as a, c"),
        ({"alias": ["euros"]}, {"alias": ["euros", "eur"]}, None),
    ],
)
def test_a_field_stays_where_it_is_in_a_record(there: dict[str, Any], here: dict[str, Any], why: str | None) -> None:
    before, after = ({"decode": {"n": {"type": "long?", **more} if more else "long?"}} for more in (there, here))
    (change,) = pipeline_changes(before, after)
    assert (change.field, change.means is None) == ("decode.n", why is not None)
    assert why is None or change.why == why


def of_two_streams(low: str, high: str, *, changelog: bool = True) -> Graph:
    """A graph with the streams `low` and `high`, and the tables of their rows."""
    made = wr.graph("g")
    records = wr.log("data/log").decode(user="string", at="timestamp", n="long").event_time("at", delay="1m")
    source = made.source("records", records)
    for name, table in (("low", low), ("high", high)):
        windows = source.key_by("user").window(wr.tumbling("5m"))
        stream = made.stream(name, windows.aggregate(n=wr.count(where="n < 5" if name == "low" else "n >= 5")))
        made.sink(f"to_{name}", stream, wr.sqlite("a.db", table=table, changelog=changelog))
    return graph_of(made.build(), Graph)


def through_joins(*tables: str) -> Graph:
    """A graph whose aggregate reaches its sinks by way of joins, each with the table of its name."""
    made = wr.graph("g")
    records = wr.log("data/log").decode(user="string", post="string", at="timestamp").event_time("at", delay="1m")
    source = made.source("records", records)
    posts = made.stream("posts", source.table("post"))
    written = made.stream("written", posts.key_by("user").window(wr.global_window()).aggregate(n=wr.count()))
    newest = made.stream("newest", source.table("user"))
    for table in tables:
        joined = made.stream(f"joined_{table}", newest.join(written, by="user"))
        made.sink(f"to_{table}", joined, wr.sqlite("a.db", table=table))
    return graph_of(made.build(), Graph)


@pytest.mark.parametrize(
    ("there", "here", "found"),
    [
        (through_joins("one"), through_joins("one"), []),
        (through_joins("one", "two"), through_joins("two", "one"), []),
        (
            of_two_streams("one", "two"),
            of_two_streams("two", "one"),
            [
                'sinks.to_low: "two of high" there, "two of low" here',
                'sinks.to_high: "one of low" there, "one of high" here',
            ],
        ),
        (of_two_streams("one", "two"), of_two_streams("three", "two"), []),
        (
            of_two_streams("one", "two", changelog=False),
            of_two_streams("one", "two"),
            [f"sinks.to_{name}.sink.sqlite.changelog: false there, true here" for name in ("low", "high")],
        ),
        (of_two_streams("one", "two"), of_two_streams("one", "two", changelog=False), []),
        (
            replace(PIPELINE, sink=SqliteSink("spend.db", "spend", changelog=False)),
            PIPELINE,
            ["sink.sqlite.changelog: false there, true here"],
        ),
    ],
)
def test_a_table_is_of_one_stream_with_its_changelog_or_without(
    there: Pipeline | Graph, here: Pipeline | Graph, found: list[str], tmp_path: Path
) -> None:
    checkpoint = Checkpoint.new(tmp_path, as_graph(there), [0])
    assert checkpoint.differences(as_graph(here)) == []
    (checkpoint.spark / "offsets").mkdir(parents=True)
    (checkpoint.spark / "offsets" / "0").touch()
    assert checkpoint.differences(as_graph(here)) == found
    kept = tmp_path / "kept"
    savepoint = Savepoint(Run(there.name, "one"), 3, {0: 5}, (0,), there.key_groups, fingerprint(as_graph(there)))
    savepoint.write(kept, ((group, MemoryState()) for group in range(there.key_groups)))
    if not found:
        assert changes_since(kept, as_graph(here)) == []
        return
    with pytest.raises(CheckpointError) as refused:
        changes_since(kept, as_graph(here))
    assert all(f"{line}: the table has rows of the old pipeline" in str(refused.value) for line in found)


@pytest.mark.parametrize(
    ("section", "field"),
    [({"from": "records", "where": "n > 5"}, "streams.few"), ("1h", "sources.few.lateness")],
)
def test_a_stream_that_is_new_or_gone_is_named(section: dict[str, Any] | str, field: str) -> None:
    without: dict[str, Any] = {"streams": {}, "records": {}}
    with_it = {"streams": {}, "records": {"few": section}}
    for kept, given in ((without, with_it), (with_it, without)):
        (change,) = pipeline_changes(kept, given)
        assert (change.field, change.means) == (field, None)


@pytest.mark.parametrize("section", ["state", "returns"])
def test_what_a_process_keeps_stays_in_its_order(section: str) -> None:
    kept = {"process": {section: {"a": "value(long)", "b": "value(long)"}}}
    given = {"process": {section: {"b": "value(long)", "a": "value(long)"}}}
    (change,) = pipeline_changes(kept, given)
    assert (change.field, change.means) == (f"process.{section}", None)
    assert change.why == "it is the order of columns in the state"


def test_a_field_that_may_be_lacking_cannot_be_there_always() -> None:
    (change,) = pipeline_changes({"decode": {"a": "long?"}}, {"decode": {"a": "long"}})
    assert (change.means, change.why) == (None, "records in the state may lack it")


@pytest.mark.parametrize(
    ("there", "here", "can"),
    [
        ("value(decimal(12,2))", "value(decimal(14,4))", True),
        ("list(long)", "list(decimal(19,0))", True),
        ("map(string, decimal(12,2))", "map(string, decimal(13,2))", True),
        ("map(string, decimal(12,2))", "map(string, decimal(11,2))", False),
        ("map(long, long)", "map(double, long)", False),
        ("value(long)", "list(long)", False),
    ],
)
def test_what_a_process_keeps_can_get_a_wider_type(there: str, here: str, *, can: bool) -> None:
    (change,) = pipeline_changes({"process": {"state": {"seen": there}}}, {"process": {"state": {"seen": here}}})
    assert (change.field, change.means is not None) == ("process.state.seen", can)


@pytest.mark.parametrize(("here", "can"), [("decimal(19,0)", True), ("double", False)])
def test_what_a_process_returns_can_get_a_wider_type(here: str, *, can: bool) -> None:
    (change,) = pipeline_changes({"process": {"returns": {"seen": "long"}}}, {"process": {"returns": {"seen": here}}})
    assert (change.field, change.means is not None) == ("process.returns.seen", can)


def test_records_that_a_process_holds_can_get_wider_types_but_no_other_fields(tmp_path: Path) -> None:
    process = Process(print, state=(), returns=(Field("seen", LongType()),), order="event_time")
    pipeline = ProcessPipeline(
        name=PIPELINE.name,
        source=PIPELINE.source,
        decode=PIPELINE.decode,
        time=PIPELINE.time,
        key=PIPELINE.key,
        process=process,
        sink=PIPELINE.sink,
    )
    kept = Savepoint(Run("user-spend", "one"), 3, {0: 5}, (0,), 8, fingerprint(as_graph(pipeline)))
    kept.write(tmp_path / "kept", ((group, MemoryState()) for group in range(8)))
    wider = Field("amount", DecimalType(14, 4), optional=True)
    (change,) = changes_since(
        tmp_path / "kept", as_graph(replace(pipeline, decode=Decode((*pipeline.decode.fields[:2], wider))))
    )
    assert change.means is not None
    more = Decode((*pipeline.decode.fields, Field("shop", StringType())))
    with pytest.raises(CheckpointError, match=r"decode\.shop: .* here: records that wait for their time"):
        changes_since(tmp_path / "kept", as_graph(replace(pipeline, decode=more)))


def test_a_topic_at_other_servers_may_have_another_id(tmp_path: Path) -> None:
    """One that was moved there, with its offsets."""
    pipeline = replace(PIPELINE, source=KafkaSource("one:9092", "spend"))
    kept = Savepoint(
        Run("user-spend", "one"), 3, {0: 5}, (0,), 8, fingerprint(as_graph(pipeline)), identity="the first"
    )
    kept.write(tmp_path / "kept", ((group, MemoryState()) for group in range(8)))
    assert upgraded(tmp_path / "kept", as_graph(pipeline))[0].identity == "the first"
    assert (
        upgraded(tmp_path / "kept", as_graph(replace(pipeline, source=KafkaSource("two:9092", "spend"))))[0].identity
        is None
    )


def test_the_group_that_shows_the_lag_may_change(tmp_path: Path) -> None:
    pipeline = replace(PIPELINE, source=KafkaSource("one:9092", "spend"))
    kept = Savepoint(
        Run("user-spend", "one"), 3, {0: 5}, (0,), 8, fingerprint(as_graph(pipeline)), identity="the first"
    )
    kept.write(tmp_path / "kept", ((group, MemoryState()) for group in range(8)))
    other = replace(pipeline, source=KafkaSource("one:9092", "spend", group="lag"))
    assert changes_since(tmp_path / "kept", as_graph(other)) == []
    assert upgraded(tmp_path / "kept", as_graph(other))[0].identity == "the first"
    assert Checkpoint.new(tmp_path, as_graph(pipeline), [0]).differences(as_graph(other)) == []


def test_a_punctuation_in_the_place_of_a_delay(folder: Path) -> None:
    changed = decode(Field("w", StringType()))(time(watermark=Punctuated("w"))(PIPELINE))
    assert {change.field for change in changes_since(folder, as_graph(changed))} == {
        "decode.w",
        "time.delay",
        "time.punctuated",
    }


def test_a_field_that_is_decoded_where_it_was_derived_is_another() -> None:
    derived = {"decode": {"a": "long"}, "derive": {"b": "a * 2"}}
    decoded = {"decode": {"a": "long", "b": "long"}}
    for kept, given in ((derived, decoded), (decoded, derived)):
        assert {(change.field, change.means) for change in pipeline_changes(kept, given)} == {
            ("derive.b", None),
            ("decode.b", None),
        }
    assert all(change.means for change in pipeline_changes(derived, {"decode": {"a": "long", "c": "long"}}))


@pytest.mark.parametrize("part", ["state", "returns"])
def test_what_a_process_keeps_cannot_come_or_go(part: str) -> None:
    without, with_it = {"process": {"function": "f"}}, {"process": {"function": "f", part: {"seen": "long"}}}
    for kept, given in ((without, with_it), (with_it, without)):
        assert {change.means for change in pipeline_changes(kept, given)} == {None}


GRAPH = """\
name: shop
sources:
  bought:
    source: {log: {path: data/bought}}
    decode: {user: string, t: timestamp_millis, amount: long}
    time: {field: t, delay: 1m, future: 1h}
  returned:
    source: {kafka: {servers: "localhost:9092", topic: returned}}
    decode: {user: string, t: timestamp_millis, amount: long}
    derive: {twice: amount * 2}
    time: {field: t, delay: 5m, future: 1h}
  other:
    source: {log: {path: data/other}}
    decode: {user: string, t: timestamp_millis}
    time: {field: t, delay: 5m, future: 1h}
streams:
  back: {from: returned, select: [user, t, amount]}
  moved: {from: [bought, back]}
  total: {from: moved, key: user, window: {tumbling: 5m}, aggregate: {total: sum(amount)}}
  alone: {from: other, key: user, window: {tumbling: 5m}, aggregate: {n: count()}}
sinks:
  to_total: {from: total, sink: {sqlite: {path: a.db, table: total}}}
  to_alone: {from: alone, sink: {sqlite: {path: a.db, table: alone}}}
"""


OTHER = "t: timestamp_millis}\n    time: {field: t, delay: "


def of_graph(*changes: tuple[str, str]) -> list[tuple[str, bool]]:
    """The fields that differ from those of the graph above, and whether a run can resume."""
    text = GRAPH
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    kept, given = (fingerprint(read_document(one, "shop.yaml").pipeline) for one in (GRAPH, text))
    return [(change.field, change.means is not None) for change in pipeline_changes(kept, given)]


def test_where_the_logs_of_a_graph_are_may_change() -> None:
    assert of_graph(("data/bought", "elsewhere/bought"), ("localhost:9092", "other:9092")) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # what a selection takes is in no window's own settings
        (("delay: 5m, future", "delay: 6m, future"), [("sources.returned.time.delay", True)]),
        (("delay: 5m, future", "delay: 5m, idle: 1m, future"), [("sources.returned.time.idle", True)]),
        (("derive: {twice: amount * 2}", "derive: {twice: amount * 3}"), [("sources.returned.derive.twice", False)]),
        (("topic: returned", "topic: back"), [("sources.returned.source.kafka.topic", False)]),
        (
            ("select: [user, t, amount]", "where: amount > 1, select: [user, t, amount]"),
            [("streams.back.where", False)],
        ),
        ((f"{OTHER}5m", f"{OTHER}6m"), [("time.delay", True)]),
    ],
)
def test_what_a_graph_reads_is_part_of_its_meaning(change: tuple[str, str], expected: list[tuple[str, bool]]) -> None:
    assert of_graph(change) == expected


def test_a_lookup_can_be_broadcast_from_a_savepoint_on() -> None:
    table = "  last: {from: other, table: {key: user}}\n"
    by_key = f"{table}  found: {{from: moved, lookup: {{table: last, by: user, as_of: order}}}}\n"
    there = GRAPH.replace("streams:\n", f"streams:\n{by_key}")
    there += "  to_found: {from: found, sink: {sqlite: {path: a.db, table: found}}}\n"
    here = there.replace("as_of: order", "as_of: order, broadcast: true")
    for texts, said in (((there, here), "false there, true here"), ((here, there), "true there, false here")):
        kept, given = (fingerprint(read_document(one, "shop.yaml").pipeline) for one in texts)
        (change,) = pipeline_changes(kept, given)
        assert change.means is not None
        assert change.text.startswith(f"streams.found.lookup.broadcast: {said}: the state is divided")
    other = here.replace("as_of: order", "how: left, as_of: order")
    kept, given = (fingerprint(read_document(one, "shop.yaml").pipeline) for one in (there, other))
    assert [(change.field, change.means) for change in pipeline_changes(kept, given)] == [
        ("streams.found.lookup.how", None)
    ]


def test_the_topic_of_a_source_is_known_by_its_id_unless_it_was_moved(tmp_path: Path) -> None:
    text = GRAPH.replace("{log: {path: data/bought}}", '{kafka: {servers: "localhost:9092", topic: bought}}')
    text = text.replace("{log: {path: data/other}}", '{kafka: {servers: "localhost:9092", topic: other}}')
    ids = ["id-bought", "id-returned", "id-other"]
    savepoint = Savepoint(Run("shop", "one"), 3, {0: 5}, (0,), 8, fingerprint_of(text), identity=json.dumps(ids))
    savepoint.write(tmp_path / "kept", ((group, MemoryState()) for group in range(8)))
    given = read_document(text, "shop.yaml").pipeline
    assert upgraded(tmp_path / "kept", given)[0].identity == json.dumps(ids)
    for name, at in (("bought", 0), ("returned", 1), ("other", 2)):
        moved = read_document(text.replace(f'9092", topic: {name}', f'9093", topic: {name}'), "shop.yaml").pipeline
        known = json.loads(str(upgraded(tmp_path / "kept", moved)[0].identity))
        assert known == [None if number == at else id_ for number, id_ in enumerate(ids)]


def test_the_sources_of_a_graph_stay_in_their_order() -> None:
    bought = GRAPH[GRAPH.index("  bought:") : GRAPH.index("  returned:")]
    moved = GRAPH.replace(bought, "").replace("  other:\n", f"{bought}  other:\n")
    kept, given = (fingerprint(read_document(one, "shop.yaml").pipeline) for one in (GRAPH, moved))
    (change,) = pipeline_changes(kept, given)
    assert (change.field, change.means) == ("sources", None)


def test_rows_of_a_union_that_are_known_by_their_branch_are_part_of_its_meaning() -> None:
    """A state of before knew them by their places alone, which told those of one record not apart."""
    assert not any("rows" in section for section in fingerprint_of(GRAPH)["records"].values() if section)
    text = GRAPH.replace("moved: {from: [bought, back]}", "more: {from: back}\n  moved: {from: [back, more]}")
    now = fingerprint_of(text)
    assert now["records"]["moved"]["rows"] == "by branch"
    before = now | {"records": now["records"] | {"moved": {"from": ["back", "more"]}}}
    (change,) = pipeline_changes(before, now)
    assert change.means is None
    assert change.text.endswith("the state was built from different records: start over")


def fingerprint_of(text: str) -> dict[str, Any]:
    return fingerprint(read_document(text, "shop.yaml").pipeline)


def test_the_alerts_of_a_rule_that_is_removed_are_said_to_stay() -> None:
    records = wr.log("purchases").decode(card="string", t="timestamp_micros").event_time("t", delay="0s")

    def meaning(*names: str) -> dict[str, Any]:
        given = [wr.rule(name, when="true") for name in names]
        rules = records.key_by("card").rules(*given, recent=wr.recent(last=5, within="10m"))
        return fingerprint(rules.to(wr.sqlite("alerts.db", table="alerts"), name="p").graph)

    stays = "existing alerts stay until they are revised"
    for now, said in (("ab", ""), ("b", ", and those of 'a' for good, because no rule of that name revises them")):
        (change,) = pipeline_changes(meaning("a"), meaning(*now))
        assert change.means == f"records are judged by them from here on; {stays}{said}"


def test_a_pipeline_with_rules_has_the_checkpoint_of_before(tmp_path: Path) -> None:
    """It cannot be printed as a graph."""
    text = """
        {name: s, source: {log: {path: a}}, decode: {user: string, t: timestamp, n: long}, key: user,
         time: {field: t, delay: 1m}, recent: {last: 5, within: 1h}, rules: [{name: more, when: n > prev.n}],
         sink: {sqlite: {path: a.db, table: s}}}
    """
    pipeline = read_document(text, "s.yaml").pipeline
    assert Checkpoint.new(tmp_path, pipeline, [0]).differences(pipeline) == []
