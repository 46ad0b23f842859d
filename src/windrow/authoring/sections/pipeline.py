"""The syntax of a whole pipeline, with its sections in the order of the data flow.

`PIPELINE` is a pipeline file. `STORY` is the pipeline of a story, which has neither source nor sink. `PROCESS_PIPELINE`
has a process function, so it can be printed but not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from windrow import model as m
from windrow.authoring.sections.alerts import ALERTS_KEY
from windrow.authoring.sections.connectors import SINK, SOURCE
from windrow.authoring.sections.records import DECODE, DERIVE, KEY, TIME, KeyFields
from windrow.authoring.sections.results import AGGREGATE, EMIT, WINDOW
from windrow.authoring.short_form import SOURCE as SHORT_SOURCE
from windrow.authoring.short_form import short_graph, short_parts
from windrow.declare.spec import CODE, DURATION, TEXT, Key, Scalar, Section, Spec, choice, no_yaml
from windrow.declare.yaml_node import YamlNode

NAME = Key(
    "name",
    TEXT,
    "identifies the pipeline's checkpoint and rows: 1 to 100 letters, digits, `.`, `_` or `-`, starting with a letter"
    " or digit. In Python the default is the table's name.",
    required=True,
)
KEY_GROUPS = Key(
    "key_groups",
    Scalar("whole number, 1 to 32768", YamlNode.number, accepts={"type": "integer", "minimum": 1, "maximum": 32768}),
    "the number of groups into which keys, work and state are divided; the upper bound of parallelism. To change it, "
    "resume from a [savepoint](../guides/savepoints.md).",
    default=m.DEFAULT_KEY_GROUPS,
)
MODE = Key(
    "mode",
    choice("micro-batch", "realtime"),
    "how a live run processes records: in steps, or one by one from one Kafka topic to another ([in real "
    "time](../guides/realtime.md)). `windrow run --host` overrides it.",
    default="micro-batch",
)
SALT = Key(
    "salt",
    Scalar("whole number, 1 to `key_groups`", YamlNode.number, accepts={"type": "integer", "minimum": 1}),
    "the number of key groups over which the records of each key are spread, for [hot "
    "keys](../concepts/keys.md#hot-keys), or for many records without a key, at the cost of one more shuffle. For "
    "tumbling, hopping, cumulate and calendar windows, without `early`.",
    default=1,
)
DERIVED = Key(
    "derive",
    DERIVE,
    "computed fields, such as `{domain: \"split_part(url, '/', 3)\"}`, for keys and aggregates, not for other derived "
    "fields.",
    default=(),
)
RECORDS = (
    Key("source", SOURCE, "the log that records are read from.", required=True),
    Key(
        "decode",
        DECODE,
        "the fields of a record, which is a JSON object; others are ignored. A record that lacks a field, or has a "
        "value that its type cannot represent exactly, is a [dead letter](errors.md#dead-letters). A name must not "
        'start with two underscores. A question mark, `"string?"` (in quotes within `{...}`), makes a field optional:'
        " it is null if it is missing or null. The event time and the key cannot be optional.",
        required=True,
    ),
)
EVENT_TIME = Key(
    "time",
    TIME,
    "the event time of a record, and how far behind it the [watermark](../concepts/time.md) is.",
    required=True,
)
KEYED = (
    EVENT_TIME,
    Key(
        "key",
        KEY,
        "the decoded or derived fields that results are grouped by, of any type except `double`. The list can also "
        "define derived fields: `[user, {domain: \"split_part(url, '/', 3)\"}]`. A record whose derived key is null is "
        "a dead letter. Without a key, a window has one row.",
        default=KeyFields(()),
    ),
)
RESULTS = (
    Key("window", WINDOW, "how records are grouped by event time.", required=True),
    Key(
        "aggregate",
        AGGREGATE,
        "the result columns. Each is one of the functions below, over a field or an expression `x`; with a condition,"
        " it includes only records for which the condition is true: `sum(price * quantity) where kind = 'buy'`. Any "
        "other text is a formula: an expression over results that are not formulas, such as `total / events`.",
        required=True,
        field="aggregates",
    ),
    Key(
        "emit",
        EMIT,
        "when results are written and revised.",
        default=m.Emit(),
        shown=True,
        note="optional",
    ),
)
SINK_KEY = Key("sink", SINK, "where results are written.", required=True)


def _pipeline(key: KeyFields, derive: tuple[m.Derive, ...], **sections: Any) -> m.Graph:  # noqa: ANN401
    given = {name: sections.pop(name) for name in ("window", "aggregates", "emit", "salt")}
    node = m.WindowNode("", SHORT_SOURCE, key.names, **given)
    return short_graph(node, derive=derive + key.derive, **sections)


def _parts(graph: m.Graph) -> Mapping[str, Any]:
    parts = dict(short_parts(graph))
    return parts | {"key": KeyFields(parts["key"]), "aggregate": parts.get("aggregates")}


PIPELINE: Section[m.Graph] = Section(
    "",
    _pipeline,
    (NAME, MODE, *RECORDS, DERIVED, *KEYED, *RESULTS, SINK_KEY, KEY_GROUPS, SALT, ALERTS_KEY),
    parts=_parts,
)


@dataclass(frozen=True)
class StoryPipeline:
    """The `pipeline` of a story.

    That its fields exist and have suitable types is checked later, by `validate`.
    """

    time: m.EventTime
    key: tuple[str, ...]
    window: m.Window
    aggregates: tuple[m.Aggregate, ...]
    emit: m.Emit
    derive: tuple[m.Derive, ...] = ()
    salt: int = 1


def _story(key: KeyFields, derive: tuple[m.Derive, ...], **sections: Any) -> StoryPipeline:  # noqa: ANN401
    return StoryPipeline(key=key.names, derive=derive + key.derive, **sections)


STORY: Section[StoryPipeline] = Section("", _story, (DERIVED, *KEYED, *RESULTS, SALT))


def state_words(state: m.KeyedState) -> str:
    """Return the kind and types of a state, such as ``map(string, long)``."""
    match state:
        case m.ValueState(_, type_):
            return f"value({type_})"
        case m.ListState(_, type_):
            return f"list({type_})"
        case m.MapState(_, key, type_):
            return f"map({key}, {type_})"
        case _:
            assert_never(state)


_PROCESS: Spec[m.Process] = Section(
    "",
    m.Process,
    (
        Key("function", CODE, "", required=True),
        Key(
            "state",
            Scalar("states", no_yaml, lambda states: {state.name: state_words(state) for state in states}),
            "",
            required=True,
        ),
        Key(
            "returns",
            Scalar("columns", no_yaml, lambda fields: {field.name: str(field.type) for field in fields}),
            "",
            required=True,
        ),
        Key("order", choice("log", "event_time"), "", required=True),
        Key("ttl", DURATION, ""),
        Key("on_timer", CODE, ""),
        Key("on_processing_timer", CODE, ""),
    ),
)
PROCESS_KEY = Key("process", _PROCESS, "", required=True)
AT_END = Key("at_end", choice("fire", "hold"), "", default=m.ProcessNode.at_end)


def _process_pipeline(
    key: KeyFields,
    process: m.Process,
    at_end: Literal["fire", "hold"],
    **sections: Any,  # noqa: ANN401
) -> m.Graph:
    return short_graph(m.ProcessNode("", SHORT_SOURCE, key.names, process, at_end), **sections)


PROCESS_PIPELINE: Section[m.Graph] = Section(
    "",
    _process_pipeline,
    (NAME, MODE, *RECORDS, DERIVED, *KEYED, PROCESS_KEY, AT_END, SINK_KEY, KEY_GROUPS, ALERTS_KEY),
    parts=_parts,
)
