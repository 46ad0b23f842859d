"""Pipelines with rules: they read back in every form, and what is wrong with them is said with its line."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.graphs import as_graph, graph_of, python_of
from tests.short_forms import RulesPipeline

import windrow as wr
from windrow.authoring.checks import require_valid, validate
from windrow.authoring.pipeline_file import read_document
from windrow.authoring.printing import to_dict, to_json, to_mermaid, to_text, to_yaml
from windrow.errors import PipelineError, each_error
from windrow.expressions.rules import uses_next
from windrow.model import FileList, Recent, TopicList
from windrow.runtime.compatibility import pipeline_changes
from windrow.runtime.savepoint import fingerprint

TEXT = """\
name: fraud
source: {log: {path: purchases}}
decode: {id: string, card: string, t: timestamp, amount: "decimal(12,2)", merchant: "string?", seq: long}
time: {field: t, delay: 30s, future: 1m}
key: [card]
unique: {by: id}
recent: {last: 64, within: 1d}
lists: {blocked: {file: blocked.csv, key: merchant}, vip: {file: vip.txt}}
rules:
- name: jump
  severity: high
  when: amount > 3 * prev.amount
  say: "{prev.id} at {prev.t:%H:%M}, then {more:.2f} more, {{so}}"
  with: {more: amount - prev.amount}
- {name: burst, when: "count(recent, '1m') >= 5"}
- {name: blocked, when: "merchant in blocked and card not in vip", severity: low}
emit: {lateness: 10m, revise: false}
sink: {sqlite: {path: fraud.db, table: alerts}}
key_groups: 3
"""


def read(text: str) -> RulesPipeline:
    document = read_document(text, "fraud.yaml")
    return graph_of(require_valid(document.pipeline, document.place), RulesPipeline)


def test_it_reads_back_in_every_form() -> None:
    pipeline = read(TEXT)
    assert pipeline.rules.recent == Recent(64, 86_400_000_000)
    assert pipeline.rules.lists == (FileList("blocked", "blocked.csv", "merchant"), FileList("vip", "vip.txt"))
    assert read(to_yaml(as_graph(pipeline))) == pipeline
    assert (
        yaml.safe_load(to_yaml(as_graph(pipeline)))
        == to_dict(as_graph(pipeline))
        == json.loads(to_json(as_graph(pipeline)))
    )
    assert eval(python_of(pipeline), {"wr": wr}).graph == as_graph(pipeline)  # noqa: S307 its own print-out
    for rule in pipeline.rules.rules:
        assert f"{rule.name} ({rule.severity}): {rule.when}" in to_text(as_graph(pipeline))
    assert "rules --> sink" in to_mermaid(as_graph(pipeline))


def test_a_list_in_a_topic_reads_back_in_every_form() -> None:
    kafka = TEXT.replace("{log: {path: purchases}}", "{kafka: {servers: 'h:9092', topic: purchases}}")
    pipeline = read(kafka.replace("{file: vip.txt}", "{kafka: {topic: vip, key: card}}"))
    assert pipeline.rules.lists[1] == TopicList("vip", "vip", "card")
    assert read(to_yaml(as_graph(pipeline))) == pipeline
    assert eval(python_of(pipeline), {"wr": wr}).graph == as_graph(pipeline)  # noqa: S307 its own print-out
    assert "vip: the keys of topic vip, field card with a value" in to_text(as_graph(pipeline))
    with pytest.raises(
        PipelineError, match=r"lists.vip.kafka.topic: must be a topic of its own, not the topic of the source"
    ):
        read(kafka.replace("{file: vip.txt}", "{kafka: {topic: purchases}}"))


def test_nothing_but_the_rules_and_what_they_see_is_needed() -> None:
    pipeline = read(
        """\
name: fraud
source: {log: {path: purchases}}
decode: {card: string, t: timestamp, amount: long}
time: {field: t, delay: 30s, jump: 1d}
key: card
recent: {last: 1, within: 1h}
rules: [{name: large, when: amount > 1000}]
sink: {sqlite: {path: fraud.db, table: alerts}}
"""
    )
    assert (pipeline.rules.unique, pipeline.rules.lateness, pipeline.rules.revise) == (None, 0, True)
    assert [one.where for one in validate(as_graph(pipeline))] == ["emit.lateness"]


@pytest.mark.parametrize(
    ("was", "now", "line", "problem"),
    [
        ("merchant: ", "prev: string, merchant: ", 3, "decode.prev: 'prev' refers to other records in rules"),
        ("key: [card]", "key: []", 5, "key: is empty, but rules see the records of one key"),
        ("by: id", "by: idd", 6, "unique.by: 'idd' is not a field of decode; did you mean 'id'?"),
        ("by: id", "by: merchant", 6, "unique.by: 'merchant' can be null, but each record must have it"),
        ("last: 64", "last: 0", 7, "recent.last: must be 1 to 10,000, not 0"),
        ("within: 1d", "within: 0s", 7, "recent.within: must be longer than 0"),
        ("recent: {last: 64, within: 1d}\n", "", 1, "the pipeline lacks 'recent' such as recent: {last: 64"),
        ("blocked: {file", "card: {file", 8, "lists.card: 'card' is a field, or `prev`, `next` or `recent`, in"),
        ("file: vip.txt", "file: ' '", 8, "lists.vip.file: is empty; give a file"),
        (
            "{file: vip.txt}",
            "{kafka: {topic: v}}",
            8,
            "lists.vip.kafka: must be a topic on the source's brokers, but the source is not",
        ),
        (
            "{file: vip.txt}",
            "{log: {path: v}}",
            8,
            "lists.vip lacks 'file' (a list is a file, or with a source in Kafka",
        ),
        ("{file: vip.txt}", "{kafka: {key: v}}", 8, "lists.vip.kafka lacks 'topic'"),
        ("{file: vip.txt}", "{kafka: {topic: v}, file: v}", 8, "'file' is not a key of lists.vip"),
        ("3 * prev.amount", "3 * prev.amounts", 12, "rules.0.when: 'amount > 3 * prev.amounts': 'amounts' is not"),
        ("3 * prev.amount", "prev", 12, "rules.0.when: 'amount > prev': `prev` is a record: use a field of it"),
        ("amount > 3 * prev.amount", "prev.amount", 12, "rules.0.when: 'prev.amount' is a decimal(12,2), not a condi"),
        ("3 * prev.amount", "mean(recent)", 12, "rules.0.when: 'amount > mean(recent)': mean() needs a field"),
        (
            "3 * prev.amount",
            "next.amount",
            12,
            "rules.0.when: uses `next`, the following record, which arrives only after",
        ),
        ("3 * prev.amount", "next", 12, "rules.0.when: 'amount > next': `next` is a record: use a field of it"),
        ("{prev.id}", "{next.id}", 13, "rules.0.say: uses `next`, the following record"),
        ("amount - prev.amount", "amount - next.amount", 14, "rules.0.with.more: uses `next`, the following record"),
        (
            "merchant in blocked",
            "lower(next.merchant) in blocked",
            16,
            "rules.2.when: uses `next`, the following record",
        ),
        ("3 * prev.amount", "max(amount)", 12, "rules.0.when: 'amount > max(amount)' calls max(), an aggregate"),
        (
            "{more:.2f}",
            "{mor:.2f}",
            13,
            "rules.0.say: '{prev.id} at {prev.t:%H:%M}, then {mor:.2f} more, {{so}}': 'mor' is",
        ),
        ("{more:.2f}", "{more:d}", 13, "rules.0.say: {more:d} is not a format for a decimal"),
        ("{more:.2f}", "{seq:c}", 13, "rules.0.say: {seq:c} is not a format for a long"),
        ("{more:.2f}", "{more", 13, "rules.0.say: "),
        (
            "more: amount -",
            "more: amounts -",
            14,
            "rules.0.with.more: 'amounts - prev.amount': 'amounts' is not a field",
        ),
        ("name: burst", "name: jump", 15, "rules.1.name: 'jump' is the name of another rule"),
        ("'1m'", "'2d'", 15, "rules.1.when: \"count(recent, '2d') >= 5\": '2d' must be longer than 0 and at most"),
        ("'1m'", "60", 15, "rules.1.when: 'count(recent, 60) >= 5': the second argument of count() is a duration"),
        (
            "merchant in blocked",
            "seq / 2 in blocked",
            16,
            "rules.2.when: 'seq / 2 in blocked and card not in vip': (seq",
        ),
        (
            "merchant in blocked and card not in vip",
            "len(list_filter(recent, lambda x: x.merchant in blocked)) > 1",
            16,
            "rules.2.when: 'len(list_filter(recent, lambda x: x.merchant in blocked)) > 1': `x.merchant in blocked` is",
        ),
        (
            "merchant in blocked and card",
            "len(list_filter(recent.merchant, lambda x: x not in blocked)) > 1 and card",
            16,
            "rules.2.when: 'len(list_filter(recent.merchant, lambda x: x not in blocked)) > 1 and card not in vip': `x",
        ),
        ("severity: low", "severity: none", 16, "rules.2.severity must be low or medium or high or critical"),
        ("severity: low", "then: x", 16, "'then' is not a key of rules.2"),
        ("table: alerts", "table: alerts, key: [alert_id]", 18, "sink.sqlite.key: applies to windows only"),
        ("card: string", "rule: string, card: string", 5, "key.0: 'rule' is a column that every alert has"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(was: str, now: str, line: int, problem: str) -> None:
    text = TEXT.replace(was, now, 1)
    if "rule: string" in now:
        text = text.replace("key: [card]", "key: [rule]")
    with pytest.raises(PipelineError) as raised:
        read(text)
    found = [str(one) for one in each_error(raised.value)]
    assert any(one.startswith(f"fraud.yaml:{line}: {problem}") for one in found), found


def test_a_list_in_a_lambda_is_tested_only_with_what_is_known_of_the_record() -> None:
    text = TEXT.replace(
        "merchant in blocked", "len(list_filter(recent, lambda x: x.seq > 1 and merchant in blocked)) > 1"
    )
    read(text)
    problem = r"`x.merchant in blocked` is within a lambda, .* not for each 'x'; test a f"
    with pytest.raises(PipelineError, match=problem):
        read(text.replace("merchant in", "x.merchant in"))


@pytest.mark.parametrize(
    ("was", "now", "refused"),
    [
        ("3 * prev.amount", "4 * prev.amount", False),
        ("blocked.csv", "other.csv", False),
        ("last: 64", "last: 32", False),
        ("lateness: 10m", "lateness: 5m", False),
        ("by: id", "by: seq", True),
        ("revise: false", "revise: true", True),
        ("seq: long", "seq: 'decimal(38,2)'", True),
        (", seq: long", "", True),
    ],
)
def test_a_savepoint_allows_other_rules_over_the_same_records(was: str, now: str, refused: bool) -> None:  # noqa: FBT001 - a column of the table above
    before, after = read(TEXT), read(TEXT.replace(was, now, 1))
    (change,) = pipeline_changes(fingerprint(as_graph(before)), fingerprint(as_graph(after)), as_graph(after))
    assert (change.means is None) == refused, change.text


@pytest.mark.parametrize(("lateness", "means"), [("20m", "expired records stay expired"), ("5m", "expire from here")])
def test_another_lateness_is_said_in_words_of_records(lateness: str, means: str) -> None:
    before, after = read(TEXT), read(TEXT.replace("lateness: 10m", f"lateness: {lateness}"))
    (change,) = pipeline_changes(fingerprint(as_graph(before)), fingerprint(as_graph(after)), as_graph(after))
    assert means in change.text


NEXT = TEXT.replace("3 * prev.amount", "3 * next.amount").replace("revise: false", "revise: true")


@pytest.mark.parametrize(
    ("was", "now", "refused"),
    [
        ("3 * next.amount", "4 * next.amount", False),
        ("3 * next.amount", "3 * prev.amount", False),
        ("within: 1d", "within: 1h", False),
        ("within: 1d", "within: 2d", True),
    ],
)
def test_a_savepoint_of_rules_with_next_has_what_they_need(was: str, now: str, refused: bool) -> None:  # noqa: FBT001 - a column of the table above
    before, after = read(NEXT), read(NEXT.replace(was, now, 1))
    (change,) = pipeline_changes(fingerprint(as_graph(before)), fingerprint(as_graph(after)), as_graph(after))
    assert (change.means is None) == refused, change.text
    if "prev" in now:
        (change,) = pipeline_changes(fingerprint(as_graph(after)), fingerprint(as_graph(before)), as_graph(before))
        assert change.means is None
        assert (
            "they now use `next`, and the state lacks the alerts that the next record of a key would revise"
            in change.text
        )


def test_an_argument_of_a_lambda_is_not_the_record_after() -> None:
    text = TEXT.replace("amount > 3 * prev.amount", "'len(list_filter(recent, lambda next: next.amount > 1)) > 1'")
    assert not any(map(uses_next, read(text).rules.rules))
    assert any(map(uses_next, read(NEXT).rules.rules))
    assert "and the next one, up to 1d after it, once it is read" in to_text(as_graph(read(NEXT)))
