"""Pipelines with rules: the sections `unique`, `recent`, `lists`, `rules` and `emit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow import model as m
from windrow.authoring.sections.alerts import ALERTS_KEY
from windrow.authoring.sections.pipeline import DERIVED, EVENT_TIME, KEY_GROUPS, MODE, NAME, RECORDS, SINK_KEY
from windrow.authoring.sections.records import KEY, KeyFields
from windrow.authoring.short_form import SOURCE as SHORT_SOURCE
from windrow.authoring.short_form import short_graph, short_parts
from windrow.declare.spec import (
    DURATION,
    FIELD_NAME,
    FLAG,
    NUMBER,
    TEXT,
    TEXT_SCHEMA,
    Each,
    Key,
    Named,
    Scalar,
    Schema,
    Section,
    Shapes,
    choice,
    mapping_schema,
)
from windrow.declare.yaml_node import YamlMapping, YamlNode, read_texts


class _RuleSection(Section[m.Rule]):
    """A rule. Its key `with` is the argument `evidence` in Python, where `with` is a keyword."""

    def python(self, value: m.Rule) -> str:
        given = [repr(value.name), f"when={value.when!r}"]
        given += [] if value.severity == m.Rule.severity else [f"severity={value.severity!r}"]
        given += [] if value.say is None else [f"say={value.say!r}"]
        given += [f"evidence={dict(value.evidence)!r}"] if value.evidence else []
        return f"wr.rule({', '.join(given)})"


RULE = _RuleSection(
    "wr.rule",
    m.Rule,
    (
        Key("name", TEXT, "identifies the rule's alerts; unique among the rules.", required=True),
        Key(
            "when",
            TEXT,
            "the condition, an [expression](../concepts/rules.md#what-a-rule-sees) over the record, `prev`, `next`, "
            "`recent` and lists. Null counts as false.",
            required=True,
        ),
        Key(
            "severity",
            choice("low", "medium", "high", "critical"),
            "the severity of its alerts.",
            default=m.Rule.severity,
            shown=True,
        ),
        Key(
            "say",
            TEXT,
            "the alert's text, by default the rule's name. `{NAME}` stands for the evidence of that name, a field, "
            "`prev.FIELD` or `next.FIELD`; `{NAME:.2f}` uses a Python format.",
        ),
        Key(
            "with",
            Scalar(
                "mapping of names to expressions",
                lambda node: read_texts(node, str.strip),
                dict,
                mapping_schema(TEXT_SCHEMA),
            ),
            "the evidence: values that are written with the alert, as JSON. In Python the argument is `evidence`.",
            default=(),
            field="evidence",
        ),
    ),
)

_LIST: Section[m.FileList] = Section(
    "wr.list_file",
    lambda **given: m.FileList("", **given),
    (
        Key(
            "file",
            TEXT,
            "a file with one entry per line.",
            required=True,
            hint="(a list is a file, or with a source in Kafka a topic, kafka: {topic: ...}; an embedded log cannot "
            "be a list: write its entries to a file)",
            field="path",
            positional=True,
        ),
        Key("key", TEXT, "the column with the entries, if the file is CSV with a header.", field="column"),
    ),
)


class _TopicSection(Section[m.TopicList]):
    """A list in a topic. In Python, the keys below `kafka` are the arguments of the call."""

    def python(self, value: m.TopicList) -> str:
        key = "" if value.field is None else f", key={value.field!r}"
        return f"wr.list_topic({value.topic!r}{key})"


_TOPIC: Section[Mapping[str, Any]] = Section(
    "",
    dict,
    (
        Key(
            "topic",
            TEXT,
            "a compacted topic on the brokers of the source ([lists](../concepts/rules.md#lists)).",
            required=True,
        ),
        Key(
            "key",
            TEXT,
            "the field with the entry, if the keys are JSON objects; by default, the entry is the key.",
            field="field",
        ),
    ),
)
_LIST_TOPIC = _TopicSection(
    "wr.list_topic",
    lambda kafka: m.TopicList("", **kafka),
    (Key("kafka", _TOPIC, "the topic with the entries.", required=True),),
    parts=lambda topic_list: {"kafka": vars(topic_list)},
)
_RULE_LIST: Shapes[m.RuleList] = Shapes(((("kafka",), m.TopicList, _LIST_TOPIC), (("file",), m.FileList, _LIST)))

UNIQUE: Section[str] = Section(
    "",
    lambda by: by,
    (
        Key(
            "by",
            FIELD_NAME,
            "the field that identifies a record among the records of its key, by default its partition and offset. A "
            "record with the same value as an earlier record is a "
            "[duplicate](../concepts/rules.md#late-and-repeated-records).",
            required=True,
        ),
    ),
    parts=lambda by: {"by": by},
)
RECENT = Section(
    "wr.recent",
    m.Recent,
    (
        Key("last", NUMBER, "their maximum number.", required=True),
        Key(
            "within",
            DURATION,
            "their maximum age by event time, and how much newer `next` may be.",
            required=True,
        ),
    ),
)
RULES_EMIT: Section[Mapping[str, Any]] = Section(
    "",
    dict,
    (
        Key(
            "lateness",
            DURATION,
            "how far behind the watermark a record may be. Later records are expired and go to the [late "
            "output](tables.md#t_late).",
            default=m.RuleSet.lateness,
            shown=True,
        ),
        Key(
            "revise",
            FLAG,
            "whether a late record causes the later records of its key to be evaluated again; otherwise an alert "
            "reflects only the records read before its own.",
            default=m.RuleSet.revise,
            shown=True,
        ),
    ),
)
_EMIT_DEFAULT = {"lateness": m.RuleSet.lateness, "revise": m.RuleSet.revise}
LISTS = Named("mapping of names to lists", _RULE_LIST)
RULES = Each("list of rules", RULE)

RULES_KEYS = (
    Key("unique", UNIQUE, "the identity of records."),
    Key(
        "recent",
        RECENT,
        "the earlier records of a key that a rule sees.",
        required=True,
        hint="such as recent: {last: 64, within: 24h}",
    ),
    Key("lists", LISTS, "named sets of entries, for conditions.", default=()),
    Key("rules", RULES, "the rules, which are applied to each record.", required=True),
    Key(
        "emit",
        RULES_EMIT,
        "how rules treat late records.",
        default=_EMIT_DEFAULT,
        shown=True,
        note="optional",
    ),
)


_KEY = Key("key", KEY, "the fields by which records are grouped.", required=True)


def _pipeline(key: KeyFields, derive: tuple[m.Derive, ...], **sections: Any) -> m.Graph:  # noqa: ANN401
    given = {rules_key.name: sections.pop(rules_key.name) for rules_key in RULES_KEYS}
    emit = given.pop("emit")
    node = m.RulesNode("", SHORT_SOURCE, key.names, m.RuleSet(**given, **emit))
    return short_graph(node, derive=derive + key.derive, **sections)


def _parts(graph: m.Graph) -> Mapping[str, Any]:
    parts = dict(short_parts(graph))
    rules = parts["rules"]
    emit = {"lateness": rules.lateness, "revise": rules.revise}
    return {**parts, **vars(rules)} | {"key": KeyFields(parts["key"]), "emit": emit}


RULES_PIPELINE: Section[m.Graph] = Section(
    "",
    _pipeline,
    (NAME, MODE, *RECORDS, DERIVED, EVENT_TIME, _KEY, *RULES_KEYS, SINK_KEY, KEY_GROUPS, ALERTS_KEY),
    parts=_parts,
)


@dataclass(frozen=True)
class StoryRules:
    """The `pipeline` of a story with rules.

    That its fields exist and have suitable types is checked later, by `validate`.
    """

    time: m.EventTime
    key: tuple[str, ...]
    rules: m.RuleSet
    derive: tuple[m.Derive, ...] = ()


def _read_entries(node: YamlNode) -> tuple[m.FileList, ...]:
    """Read lists whose entries are written in the story itself."""
    fields = YamlMapping(node)
    read = [(name, fields.attempt(lambda entries: entries.each(YamlNode.text), node)) for name, node in fields]
    fields.check()
    return tuple(m.FileList(name, name, entries=entries.value) for name, entries in read)


def _story(key: KeyFields, derive: tuple[m.Derive, ...], time: m.EventTime, **sections: Any) -> StoryRules:  # noqa: ANN401
    emit = sections.pop("emit")
    return StoryRules(time, key.names, m.RuleSet(**sections, **emit), derive + key.derive)


_ENTRIES: Schema = mapping_schema({"type": "array", "items": TEXT_SCHEMA})
_STORY_LISTS = Key(
    "lists", Scalar("mapping of names to lists of entries", _read_entries, accepts=_ENTRIES), "", default=()
)
STORY_RULES: Section[StoryRules] = Section(
    "",
    _story,
    (
        DERIVED,
        EVENT_TIME,
        _KEY,
        *(_STORY_LISTS if rules_key.name == "lists" else rules_key for rules_key in RULES_KEYS),
    ),
)


def rules_python(rules: m.RuleSet) -> str:
    """Return the Python source of the call `.rules(...)`."""
    given = [RULE.python(rule) for rule in rules.rules]
    given.append(f"recent={RECENT.python(rules.recent)}")
    given += [] if rules.unique is None else [f"unique={rules.unique!r}"]
    given += [f"lists={LISTS.python(rules.lists)}"] if rules.lists else []
    given.append(f"lateness={DURATION.python(rules.lateness)}")
    given += [] if rules.revise else ["revise=False"]
    return "\n".join([".rules(", *(f"        {argument}," for argument in given), "    )"])
