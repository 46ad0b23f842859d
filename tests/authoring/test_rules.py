"""Every rule, held to the cases in its file in `checks/`.

A case is the main job with some sections replaced, and what the rule finds in it (the beginning of each finding).
"""

import inspect
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from windrow.authoring.checks import fields, time, window
from windrow.authoring.checks.alerts import alert_limits
from windrow.authoring.checks.connectors import sink_key, sink_settings, sqlite_digits
from windrow.authoring.checks.graph import SOURCE_RULES, graph_findings
from windrow.authoring.checks.realtime import realtime
from windrow.authoring.checks.results import WINDOW_RULES
from windrow.authoring.pipeline_file import read_document
from windrow.authoring.short_form import short_nodes
from windrow.expressions import spec_of
from windrow.model import WindowNode

CASES = Path(__file__).parent / "checks"
BASE = yaml.safe_load("""
name: user-spend
source: {log: {path: data/spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m, future: 1h}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
emit: {lateness: 1h, late: each, mode: retract}
sink: {sqlite: {path: spend.db, table: user_spend_5m}}
""")


ALL: tuple[Any, ...] = (
    *(fields.pipeline_name, *SOURCE_RULES, fields.short_fields, time.zero_delay),
    *(fields.key_fields, fields.watermark_key, fields.no_key, fields.null_keys, fields.key_groups),
    *(*WINDOW_RULES, window.global_window, window.late_panes, window.lateness, window.no_lateness),
    *(fields.result_columns, sink_settings, sink_key, sqlite_digits, realtime, alert_limits),
)
RULES = {rule.__name__: rule for rule in ALL}

FILES = sorted(CASES.glob("*.yaml"))


@pytest.mark.parametrize(
    ("rule_name", "case"),
    [
        pytest.param(path.stem, case, id=f"{path.stem}-{number}")
        for path in FILES
        for number, case in enumerate(yaml.safe_load(path.read_text()))
    ],
)
def test_a_rule_finds_what_its_case_says(rule_name: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    text = yaml.safe_dump(BASE | case.get("pipeline", {}), sort_keys=False, allow_unicode=True)
    graph = read_document(text, "case.yaml").pipeline
    source, node, sink = short_nodes(graph)
    spec = replace(spec_of(graph, node), decode=source.decode)
    assert isinstance(node, WindowNode)
    given = {"graph": graph, "node": source, "records": source, "spec": spec, "sink": sink.sink}
    given |= {"window": node.window, "is_read": False}
    rule = RULES[rule_name]
    findings = rule(**{name: given[name] for name in inspect.signature(rule).parameters if name in given})
    found = [f"{finding.level} {finding.text}" for finding in findings]
    expected = case["finds"]
    assert [text[: len(begin)] for text, begin in zip(found, expected, strict=True)] == expected, found


def test_each_rule_has_its_cases() -> None:
    assert {path.stem for path in FILES} == RULES.keys()


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ({"delta": {"path": "lake", "table": "t", "partition_by": ["user_id", "events"]}}, []),
        (
            {"parquet": {"path": "lake", "table": "t", "partition_by": ["total", "user_id", "user_id", "nope", "all"]}},
            [
                "sink.parquet.partition_by.0: 'total' is a decimal(38,2); files can be partitioned by user_id, events",
                "sink.parquet.partition_by.2: 'user_id' is given twice; keep one of them",
                "sink.parquet.partition_by.3: there is no column 'nope'; files can be partitioned by user_id, events",
                "sink.parquet.partition_by.4: 'all' is a list; files can be partitioned by user_id, events",
            ],
        ),
    ],
)
def test_files_are_partitioned_by_columns_of_few_types(sink: dict[str, Any], expected: list[str]) -> None:
    aggregate = {"total": "sum(amount)", "events": "count()", "all": "collect_list(amount, 9)"}
    text = yaml.safe_dump(BASE | {"aggregate": aggregate, "sink": sink}, sort_keys=False)
    found = graph_findings(read_document(text, "case.yaml").pipeline)
    assert [finding.text for finding in found if finding.level == "error"] == expected


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json_schema"])
def test_a_schema_has_names_of_its_encoding(kind: str) -> None:
    sink = {"kafka": {"servers": "h:9092", "topic": "t", "encoding": {kind: {"registry": "http://r:8081"}}}}
    text = yaml.safe_dump(BASE | {"aggregate": {"größe": "count()", "_1": "count()"}, "sink": sink}, sort_keys=False)
    found = [one for one in graph_findings(read_document(text, "case.yaml").pipeline) if one.level == "error"]
    message = (
        f"sink.kafka.encoding: 'größe' is not a valid name in {kind}; use letters from a to z, digits and '_', or use "
        "json_schema"
    )
    assert [finding.text for finding in found] == ([] if kind == "json_schema" else [message])


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json_schema"])
def test_the_registry_of_a_sink_has_no_settings_of_readers(kind: str) -> None:
    registry = {"url": "http://r:8081", "missing": [7]}
    sink = {"kafka": {"servers": "h:9092", "topic": "t", "encoding": {kind: {"registry": registry}}}}
    text = yaml.safe_dump(BASE | {"sink": sink}, sort_keys=False)
    found = [one for one in graph_findings(read_document(text, "case.yaml").pipeline) if one.level == "error"]
    where = f"sink.kafka.encoding.{kind}.registry.missing"
    assert [finding.text for finding in found] == [f"{where}: is for records that are read; remove it"]


def test_columns_have_different_names_in_the_json_of_protobuf() -> None:
    sink = {"kafka": {"servers": "h:9092", "topic": "t", "encoding": {"protobuf": {"registry": "http://r:8081"}}}}
    aggregate = dict.fromkeys(("userId", "windowEnd", "a_1", "a1", "_a", "a"), "count()")
    text = yaml.safe_dump(BASE | {"aggregate": aggregate, "sink": sink}, sort_keys=False)
    found = [one for one in graph_findings(read_document(text, "case.yaml").pipeline) if one.level == "error"]
    assert [finding.text for finding in found] == [
        f"sink.kafka.encoding: {first!r} and {second!r} have one name in the JSON of protobuf, {name!r}; rename one"
        for first, second, name in (
            ("user_id", "userId", "userId"),
            ("window_end", "windowEnd", "windowEnd"),
            ("a_1", "a1", "a1"),
        )
    ]
