"""The sections `decode`, `derive`, `key` and `time`, which describe records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from windrow import model as m
from windrow.declare.spec import (
    DURATION,
    FIELD_NAME,
    FLAG,
    FRACTION,
    TEXT,
    TEXT_SCHEMA,
    Each,
    Key,
    Kind,
    OneOf,
    Scalar,
    Schema,
    Section,
    Spec,
    Wrapped,
    call_by_names,
    choice,
    each_item,
    list_or_one,
    mapping_schema,
)
from windrow.declare.yaml_node import YamlMapping, YamlNode, read_texts
from windrow.errors import PipelineError

_CUT_TYPE = re.compile(r"decimal\s*\(\s*\d+\s*")
_CUT_NESTED = re.compile(r"struct\s*<[^>]*$")
_REST_OF_TYPE = re.compile(r"\s*\d+\s*\)\??")
_TYPE_SCHEMA: Schema = {
    "anyOf": [
        {"enum": [*m.TYPE_NAMES, "decimal(12,2)"]},
        {
            "type": "string",
            "pattern": rf"^({'|'.join(m.TYPE_NAMES)})\?$|^decimal\s*\(.*\)\??$|^\s*array\s*<.*>\s*\??\s*$",
        },
    ]
}


class _Decode(Spec[m.Decode]):
    """The section `decode`, such as ``{user: string, amount: {type: "decimal(12,2)", alias: [amt]}}``."""

    called = "mapping of names to types"

    def read(self, node: YamlNode) -> m.Decode:
        fields = YamlMapping(node)
        read = []
        cut = False
        for name, entry in fields:
            if cut and _REST_OF_TYPE.fullmatch(name):
                continue  # reported with the first half
            cut = bool(entry.is_scalar and _CUT_TYPE.fullmatch(entry.node.value))
            read.append(fields.attempt(partial(_read_field, name), entry))
        fields.check()
        return m.Decode(tuple(field.value for field in read))

    def plain(self, value: m.Decode) -> dict[str, Any]:
        return {
            field.name: {"type": field.type_text} | more if (more := _more(field)) else field.type_text
            for field in value.fields
        }

    def python(self, value: m.Decode) -> str:
        calls = []
        for field in value.fields:
            more = "".join(f", {name}={setting!r}" for name, setting in _more(field).items())
            calls.append((field.name, f"wr.field({field.type_text!r}{more})" if more else repr(field.type_text)))
        return call_by_names(".decode", calls)

    def schema(self) -> Schema:
        return mapping_schema({"anyOf": [_TYPE.schema(), _FIELD.schema()]})

    def document(self, path: str) -> Iterator[str]:
        yield (
            f"- `{path}.FIELD` (type or mapping, required): the type, or a mapping with the type and these settings."
        )
        yield from _FIELD.document(f"{path}.FIELD")


def _read_field(name: str, node: YamlNode) -> m.Field:
    if not node.is_mapping:
        return m.Field(name, *_TYPE.read(node))
    settings = dict(_FIELD.read(node))
    return m.Field(name, *settings.pop("type"), **settings)


def _more(field: m.Field) -> dict[str, Any]:
    """Return all settings of a field except its type."""
    more: dict[str, Any] = {"alias": list(field.alias)} if field.alias else {}
    more |= {"tombstones": True} if field.tombstones else {}
    return more | ({"path": ".".join(field.path)} if field.path else {})


def _parse_type(text: str) -> tuple[m.DataType, bool]:
    if _CUT_NESTED.search(text):
        msg = 'a comma ends a value within {...}; put the type in quotes: "array<struct<sku string, qty long>>"'
        raise PipelineError(msg)
    if _CUT_TYPE.fullmatch(text):
        msg = 'a comma ends a value within {...}; put the type in quotes: "decimal(12,2)"'
        raise PipelineError(msg)
    return m.parse_field_type(text)


_TYPE: Scalar[tuple[m.DataType, bool]] = Scalar("type", lambda node: node.parsed(_parse_type), accepts=_TYPE_SCHEMA)
_FIELD: Section[Mapping[str, Any]] = Section(
    "",
    dict,
    (
        Key(
            "type",
            _TYPE,
            "the type, with a question mark if optional.",
            required=True,
            hint='such as type: "decimal(12,2)"',
        ),
        Key(
            "alias",
            Each("list of names", TEXT),
            "other names of the field in records. A record that has two of the names with different values is a [dead"
            ' letter](errors.md#dead-letters). In Python `amount=wr.field("decimal(12,2)?", alias=["amt"])`.',
            default=(),
        ),
        Key(
            "tombstones",
            FLAG,
            "the field is a column of the record's key: a record that has a key but no value, a"
            " [tombstone](#tombstones), is read with its key in these fields. In Python"
            ' `currency=wr.field("string", tombstones=True)`.',
            default=False,
        ),
        Key(
            "path",
            Scalar("text", lambda node: tuple(node.text().split("."))),
            "the path to the field in nested objects, in place of its name: `customer.id`; or to a [field outside the"
            " value](#fields-outside-the-value).",
            default=(),
        ),
    ),
)


DECODE = _Decode()


class _Derive(Spec[tuple[m.Derive, ...]]):
    """The section `derive`, such as ``{domain: "split_part(url, '/', 3)"}``."""

    called = "mapping of names to expressions"

    def read(self, node: YamlNode) -> tuple[m.Derive, ...]:
        return tuple(m.Derive(name, sql) for name, sql in read_texts(node, str.strip))

    def plain(self, value: tuple[m.Derive, ...]) -> dict[str, str]:
        return {derived.name: derived.sql for derived in value}

    def python(self, value: tuple[m.Derive, ...]) -> str:
        return call_by_names(".derive", [(derived.name, repr(derived.sql)) for derived in value])

    def schema(self) -> Schema:
        return mapping_schema(TEXT_SCHEMA)


DERIVE = _Derive()


@dataclass(frozen=True)
class KeyFields:
    """The names of all fields of a key, and the definitions of those that are derived within the key."""

    names: tuple[str, ...]
    derive: tuple[m.Derive, ...] = ()


class _KeyFields(Spec[KeyFields]):
    """The section `key`: ``[user, {domain: "split_part(url, '/', 3)"}]``, or ``user`` for a single field."""

    called = "name or list of names"

    def read(self, node: YamlNode) -> KeyFields:
        fields = [field for part in each_item(node, _read_key_part) for field in part]
        names = tuple(field if isinstance(field, str) else field.name for field in fields)
        return KeyFields(names, tuple(field for field in fields if isinstance(field, m.Derive)))

    def plain(self, value: KeyFields) -> list[str]:
        return list(value.names)

    def python(self, value: KeyFields) -> str:
        return f".key_by({', '.join(map(repr, value.names))})"

    def schema(self) -> Schema:
        return list_or_one({"anyOf": [TEXT_SCHEMA, mapping_schema(TEXT_SCHEMA, minProperties=1)]}, TEXT_SCHEMA)


def _read_key_part(node: YamlNode) -> tuple[str | m.Derive, ...]:
    if not node.is_mapping:
        return (node.text(),)
    derived = DERIVE.read(node)
    if not derived:
        msg = f"{node.called} is empty; give a field, or define one by an expression"
        raise node.error(msg)
    return derived


KEY = _KeyFields()


_ADAPTIVE = Section(
    "wr.adaptive",
    m.Adaptive,
    (
        Key(
            "target",
            FRACTION,
            "the fraction of the records so far that the delay covers, above 0 and at most 1: `0.999`.",
            required=True,
            positional=True,
        ),
        Key("min", DURATION, "the minimum delay.", required=True, field="least"),
        Key("max", DURATION, "the maximum delay, also before the first record.", required=True, field="most"),
    ),
)


class _DelayByPartition(Spec[m.DelayByPartition]):
    """The delays of individual partitions and the default for all others, such as ``{default: 5m, 3: 30m}``."""

    called = "mapping of partitions to durations"

    def read(self, node: YamlNode) -> m.DelayByPartition:
        fields = YamlMapping(node)
        given = {name: fields.attempt(YamlNode.duration, value) for name, value in fields}
        if _DEFAULT not in given:
            fields.problem(node.error(f"{node.called} lacks '{_DEFAULT}', the delay of all other partitions"))
        for name in given.keys() - {_DEFAULT}:
            if not (name.isascii() and name.isdigit()):
                fields.problem(
                    node.error(f"{name!r} in {node.called} is neither the number of a partition nor {_DEFAULT}")
                )
        fields.check()
        delays = {int(name): result.value for name, result in given.items() if name != _DEFAULT}
        return m.DelayByPartition(given[_DEFAULT].value, tuple(sorted(delays.items())))

    def plain(self, value: m.DelayByPartition) -> dict[str, str]:
        delays = {str(partition): m.format_duration(micros) for partition, micros in value.delays}
        return {_DEFAULT: m.format_duration(value.default), **delays}

    def python(self, value: m.DelayByPartition) -> str:
        delays = {partition: m.format_duration(micros) for partition, micros in value.delays}
        return f"wr.delay_by_partition({delays!r}, default={m.format_duration(value.default)!r})"

    def schema(self) -> Schema:
        delay = DURATION.schema()
        names = {"pattern": f"^([0-9]+|{_DEFAULT})$"}
        return mapping_schema(delay, properties={_DEFAULT: delay}, required=[_DEFAULT], propertyNames=names)


_DEFAULT = "default"


def _delay_words(delay: str) -> str:
    return f"a partition's watermark is {delay} behind the greatest event time read from it"


def _delays_words(delay: m.DelayByPartition) -> str:
    own = (f"that of partition {partition} is {m.format_duration(micros)} behind" for partition, micros in delay.delays)
    return "\n".join([_delay_words(m.format_duration(delay.default)), *own])


DELAY: OneOf[m.Delay | m.DelayByPartition | m.Adaptive] = OneOf(
    "delay",
    {
        "by_partition": Kind(
            (m.DelayByPartition,),
            _DelayByPartition(),
            _delays_words,
            "a [delay for each partition](../concepts/time.md#a-delay-by-partition): `{default: 5m, 3: 30m}`.",
            note="in place of a duration",
        ),
        "adaptive": Kind(
            (m.Adaptive,),
            _ADAPTIVE,
            lambda delay: (
                _delay_words(f"{m.format_duration(delay.least)} to {m.format_duration(delay.most)}")
                + f",\nso that {delay.target * 100:g} % of its records so far were on time"
            ),
            "an [adaptive delay](../concepts/adaptive_delay.md), computed from the lateness of the partition's "
            "records so far.",
            note="in place of a duration",
        ),
    },
    scalar=Kind(
        (m.Delay,),
        Wrapped("", m.Delay, "micros", DURATION),
        lambda delay: _delay_words(m.format_duration(delay.micros)),
        "",
    ),
)


def _event_time(delay: m.Watermark | None, punctuated: str | None, **settings: Any) -> m.EventTime:  # noqa: ANN401
    return m.EventTime(watermark=delay or m.Punctuated(punctuated or ""), **settings)


def _time_parts(time: m.EventTime) -> Mapping[str, Any]:
    mark = time.watermark
    punctuated, delay = (mark.field, None) if isinstance(mark, m.Punctuated) else (None, mark)
    return {"delay": delay, "punctuated": punctuated}


_BOTH = "has both 'delay' and 'punctuated'; a punctuated source carries its watermark itself"
TIME = Section(
    ".event_time",
    _event_time,
    (
        Key(
            "field",
            FIELD_NAME,
            "the event time, a timestamp; if decoded as `_log_time: timestamp_millis`, the log timestamp of an "
            "embedded log or of the log of a file.",
            required=True,
            positional=True,
        ),
        Key(
            "delay",
            DELAY,
            "how far out of order records may be: a partition's watermark is the greatest event time read from it, "
            "minus [this delay](../watermark-policy.md).",
            unless="punctuated",
            hint="(how far out of order records arrive), or 'punctuated'",
        ),
        Key(
            "punctuated",
            FIELD_NAME,
            "the log [carries its watermarks](../concepts/punctuation.md). This field of a record, a timestamp of the"
            " same type as the event time, sets its partition's watermark for the records after it; the watermark "
            "never decreases. A record that has it but lacks the key or the event time is only a mark, not a dead "
            "letter.",
            note="in place of `time.delay`",
        ),
        Key(
            "future",
            DURATION,
            "a record whose event time (or mark) is ahead of its log timestamp by more than this is a dead letter and"
            " advances no watermark. Records without a log timestamp are not checked.",
        ),
        Key(
            "jump",
            DURATION,
            "guards clocks [without log timestamps](../concepts/wrong_clocks.md#without-log-timestamps-jump): a record "
            "whose event time is ahead of its partition's clock by more than this does not advance the clock, unless "
            "five records in a row are. It still counts in its window. With `time.future`, records with a log timestamp"
            " advance the clock as usual. Not with `time.punctuated`.",
        ),
        Key(
            "sent",
            FIELD_NAME,
            "the time of sending according to the device's clock, a timestamp. Its difference from the log timestamp,"
            " the error of that clock, is added to the event time. A record without a log timestamp is a dead letter.",
        ),
        Key(
            "idle",
            DURATION,
            "a partition without records for this long, in processing time, becomes [idle](../concepts/idle.md): it "
            "does not hold back the low watermark until it has records again.",
        ),
        Key(
            "all_idle",
            choice("hold", "advance"),
            "when all partitions are idle, the low watermark stays where it is, or advances with processing time, "
            "which requires `time.idle`.",
            default=m.EventTime.all_idle,
        ),
    ),
    parts=_time_parts,
    conflict=lambda given: _BOTH if {"delay", "punctuated"} <= given.keys() else None,
)
