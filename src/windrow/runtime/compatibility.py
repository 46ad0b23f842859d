"""Compatibility of a pipeline with a savepoint.

Compares a pipeline with the one that wrote the savepoint, decides which changes the saved state survives, and migrates
the state to the changed pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from windrow import model as m
from windrow.engine.level import migrate
from windrow.engine.state.store import MemoryState
from windrow.engine.state.widening import StateChange, incompatible_fields, why_not_wider
from windrow.errors import CheckpointError
from windrow.expressions import OperatorSpec, spec_of
from windrow.expressions.rules import uses_next
from windrow.runtime import savepoint as s
from windrow.runtime.savepoint import Meaning
from windrow.telemetry.folders import Folder

_NOTHING = "nothing"
_OTHER_RECORDS = "the state was built from different records: start over"
_NEW = "from here on, a record with an invalid value is a dead letter"
_NEW_COLUMN = (
    "a new column; windows that are open or can still be revised count new records only, and rows that are not "
    "written again have null"
)
_GONE = "it is no longer read"
_RENAMED = "new rows have this source; existing rows keep the old one"


@dataclass(frozen=True)
class PipelineChange:
    """A changed field, identified by its path in the pipeline file.

    `means` is the effect of the change, or None if the change is refused; `why` is the reason, where it is not obvious.
    """

    field: str
    there: Any
    here: Any
    means: str | None
    why: str | None = None

    @property
    def text(self) -> str:
        """The old value, the new value, and the effect of the change or the reason for its refusal."""
        message = f"{self.field}: {_text(self.there)} there, {_text(self.here)} here"
        effect = self.why if self.means is None else self.means
        return message if effect is None else f"{message}: {effect}"

    def refuse(self, why: str | None = None) -> PipelineChange:
        """Return this change as a refused one, with the reason `why` if given."""
        return replace(self, means=None, why=why or self.why)


def pipeline_changes(kept: Meaning, given: Meaning, graph: m.Graph | None = None) -> list[PipelineChange]:
    """Return the differences between the pipeline that wrote a savepoint and the pipeline that resumes from it.

    With the `graph` of the resuming pipeline, also refuse changes that its state rules out.
    """
    before, after = _streams(kept), _streams(given)
    if before.keys() != after.keys():
        why = "streams cannot be added, removed or renamed if others keep their state: start over"
        return [PipelineChange("streams", list(before), list(after), None, why)]
    found: list[PipelineChange] = []
    if kept.get("name") != given.get("name"):  # a graph may have no window, whose settings have it
        found.append(PipelineChange("name", kept.get("name"), given.get("name"), None))
    if kept.get("sources") != given.get("sources"):
        why = "sources cannot be added, removed, renamed or reordered: start over"
        found.append(PipelineChange("sources", kept.get("sources"), given.get("sources"), None, why))
    found += (
        PipelineChange(log.field, log.there, log.here, None if log.why else _RENAMED, log.why)
        for log in s.renamed_logs(kept, given)
    )
    found += _record_changes(_without_partitioning(kept), _without_partitioning(given), _names(kept))
    if all(change.means is not None for change in found):
        for name, section in given.get("records", {}).items():
            there, here = _split_broadcast(kept["records"][name])[1], _split_broadcast(section)[1]
            if there != here:
                means = "the state is divided differently; no result changes"
                found.append(PipelineChange(f"streams.{name}.lookup.broadcast", there, here, means))
    nodes = {} if graph is None else {node.name: node for node in graph.keyed if isinstance(node, m.ResultNode)}
    for name in after:
        changes = _stream_changes(before[name], after[name])
        if graph is not None:
            changes = _refuse_by_state(spec_of(graph, nodes[name]), changes, _plan(before[name], after[name]))
        known = {change.field for change in found}
        changes = [replace(change, field=_path(name, change.field)) for change in changes]
        found += [change for change in changes if change.field not in known]
    return found


def _without_partitioning(meaning: Meaning) -> dict[str, Any]:
    """Return the sources, and the streams without a result table, but not how their states are divided."""
    sections = {name: _split_broadcast(section)[0] for name, section in _records(meaning).items()}
    return {
        name: {key: value for key, value in section.items() if key != s.PARTITIONED_BY}
        if isinstance(section, dict)
        else section
        for name, section in sections.items()
    }


def _names(section: Any) -> set[str]:  # noqa: ANN401 - plain JSON
    """Return all names and values in a section, including those in nested sections."""
    if isinstance(section, dict):
        return set(section).union(*(_names(value) for name, value in section.items() if name != "name"))
    return set().union(*map(_names, section)) if isinstance(section, list) else {str(section)}


def _is_new_optional(change: PipelineChange) -> bool:
    is_new = change.field.startswith("decode.") and change.there is None
    return is_new and m.parse_field_type(type_text(change.here))[1]


def _record_changes(kept: dict[str, Any], given: dict[str, Any], names: Collection[str]) -> Iterator[PipelineChange]:
    """Yield the changes of sources, and of streams without a result table.

    Clocks can change. Optional fields can be added, unless another field has the same name, as a join would rename it.
    """
    for name in dict.fromkeys([*kept, *given]):
        there, here = kept.get(name), given.get(name)
        known = [section for section in (there, here) if section is not None]
        is_source = not all(isinstance(section, dict) and "source" not in section for section in known)
        field = f"{'sources' if is_source else 'streams'}.{name}"
        if not (isinstance(there, dict) and isinstance(here, dict)):
            if there != here:
                # the section of a source that only windows read is its lateness; a new stream has none there
                at = f"{field}.lateness" if is_source else field
                yield PipelineChange(at, there, here, None, _OTHER_RECORDS)
            continue
        for change in _changes(there, here, ()):
            if _is_new_optional(change) and change.field.removeprefix("decode.") not in names:
                found = replace(change, means="null in records that are already in the state")
            elif change.means is not None and change.field.startswith("time."):
                found = change
            else:
                found = change.refuse(_OTHER_RECORDS)
            yield replace(found, field=f"{field}.{change.field}")


def _records(meaning: Meaning) -> dict[str, Any]:
    """Return the sources, without their locations, and the streams without a result table.

    Older versions stored more of a log's location.
    """
    return {
        name: s.without_location(section) if isinstance(section, dict) and "source" in section else section
        for name, section in meaning.get("records", {}).items()
    }


def _split_broadcast(section: Any) -> tuple[Any, bool]:  # noqa: ANN401 - plain JSON
    """Return a stream's section without its broadcast option, and True if the stream was broadcast."""
    if not isinstance(section, dict) or "lookup" not in section:
        return section, False
    lookup = dict(section["lookup"])
    is_broadcast = bool(lookup.pop("broadcast", False))
    return section | {"lookup": lookup}, is_broadcast


def _refuse_by_state(
    spec: OperatorSpec[m.ResultNode], changes: list[PipelineChange], plan: StateChange
) -> list[PipelineChange]:
    """Return the changes of a stream, with those refused that its state rules out."""
    found = [_refuse_by_node(spec.node, change) for change in changes]
    if any(change.means is None for change in found):
        return found
    reasons = {f"decode.{name}": why for name, why in incompatible_fields(spec, plan).items()}
    return [change.refuse(why) if (why := reasons.get(change.field)) else change for change in found]


def _streams(meaning: Meaning) -> dict[str, Meaning]:
    """Map each stream name of a graph to its settings; the only stream of a short form is named ""."""
    streams: dict[str, Meaning] = meaning.get("streams", {"": meaning})
    return streams


def _path(stream: str, field: str) -> str:
    """Return the path of a stream's field; settings of records apply to all streams, so their path has no stream."""
    shared = field.partition(".")[0] in {"name", "source", "decode", "time", "key_groups"}
    return f"streams.{stream}.{field}" if stream and not shared else field


def _stream_changes(kept: Meaning, given: Meaning) -> list[PipelineChange]:
    # fields that were decoded and are derived now, or the other way round, have other values under the same name
    moved = {
        f"{section}.{name}"
        for there, here in (("decode", "derive"), ("derive", "decode"))
        for name in kept.get(there, {}).keys() & given.get(here, {}).keys()
        for section in (there, here)
    }
    changes = _changes(kept, given, ())
    if given.get("is_chained"):
        why = "other streams depend on it, or it depends on others: start over"
        return [
            change
            if change.field == "key_groups"
            or change.field.startswith("time.")
            or _is_new_optional(change)
            or (change.means is None and change.why is not None)
            else change.refuse(why)
            for change in changes
        ]
    return [change.refuse() if change.field in moved else change for change in changes]


def _changes(kept: Any, given: Any, path: tuple[str, ...]) -> Iterator[PipelineChange]:  # noqa: ANN401 - plain JSON
    if path in _ORDERED and set(kept or ()) == set(given or ()) and list(kept or ()) != list(given or ()):
        yield PipelineChange(".".join(path), kept, given, None, "it is the order of columns in the state")
    if path in s.FREE or (kept == given and not isinstance(given, dict)):
        return
    if kept == given:  # also in another order
        for name in given:
            yield from _changes(kept[name], given[name], (*path, name))
        return
    change = PipelineChange(".".join(path), kept, given, None)
    judge = _JUDGES.get(path) or _JUDGES.get((*path[:-1], "*"))
    if path in _EFFECTS:
        yield replace(change, means=_EFFECTS[path])
    elif judge is not None:
        yield judge(change)
    elif isinstance(kept, dict | None) and isinstance(given, dict | None) and path not in _WHOLE:
        before, after = kept or {}, given or {}
        for name in dict.fromkeys([*before, *after]):
            yield from _changes(before.get(name), after.get(name), (*path, name))
    else:
        yield change.refuse(_REFUSED.get(path))


_REFUSED: dict[tuple[str, ...], str] = {
    ("process", "ttl"): "the state of a key would not expire when planned",
    ("process", "order"): "one order keeps records until their time, and the other does not",
}
"""Why a field cannot change, where the reason is not obvious."""

_WHOLE = {("key",), ("window",), ("time", "delay"), ("emit", "early")}
"""Sections that are reported as a whole."""

_ORDERED = {("process", "state"), ("process", "returns")}
"""Fields whose names are in the same order as the columns of the state."""

_Judge = Callable[[PipelineChange], PipelineChange]
"""Returns the change of a field with its effect, or as a refused change."""


def _judge_lateness(change: PipelineChange) -> PipelineChange:
    longer = "windows that were dropped stay dropped, and their records expire; other windows stay longer"
    shorter = "windows that are past the new lateness are dropped in the first step"
    return replace(change, means=longer if _is_longer(change) else shorter)


def _new_or_gone(new: str, gone: str) -> _Judge:
    """Return a judge for a field that can be added or removed, but not changed."""
    return lambda change: replace(change, means=new if change.there is None else gone if change.here is None else None)


def _judge_decoded(change: PipelineChange) -> PipelineChange:
    if change.there is None or change.here is None:
        return replace(change, means=_NEW if change.there is None else _GONE)
    there, here = (field if isinstance(field, dict) else {} for field in (change.there, change.here))
    if there.get("path") != here.get("path"):
        return change.refuse("its values would be read from a different place in a record")
    (before, was_optional), (after, is_optional) = (
        m.parse_field_type(type_text(field)) for field in (change.there, change.here)
    )
    if is_optional and (gone := set(there.get("alias", ())) - set(here.get("alias", ()))):
        # if the field is not optional, such a record is a dead letter
        return change.refuse(f"it would be null in records that contain it as {', '.join(sorted(gone))}")
    if was_optional and not is_optional:
        return change.refuse("records in the state may lack it")
    stays = "" if before == after else "; existing values stay as they were read"
    return _widen(change, [(before, after)], f"applies from the next record on{stays}")


def _judge_returned(change: PipelineChange) -> PipelineChange:
    if change.there is None or change.here is None:
        return change
    return _widen(change, [(m.parse_type(change.there), m.parse_type(change.here))], "applies from the next row on")


def _judge_state(change: PipelineChange) -> PipelineChange:
    if change.there is None or change.here is None:
        return change
    # such as map(string, decimal(12,2)): a type has no blank
    (kind, before), (other, after) = (text.removesuffix(")").split("(", 1) for text in (change.there, change.here))
    if kind != other:
        return change
    both = zip(map(m.parse_type, before.split(", ")), map(m.parse_type, after.split(", ")), strict=True)
    return _widen(change, list(both), "applies from the next entry on; existing entries stay as they are")


def _widen(change: PipelineChange, both: list[tuple[m.DataType, m.DataType]], means: str) -> PipelineChange:
    """Return a change with its effect; refuse it if a new type cannot hold all values of the old one."""
    why = next(filter(None, (why_not_wider(there, here) for there, here in both)), None)
    return change.refuse(why) if why else replace(change, means=means)


def type_text(field: Any) -> str:  # noqa: ANN401 - plain JSON
    """Return the type of a decoded field as written in a pipeline file, without its other settings."""
    return str(field["type"] if isinstance(field, dict) else field)


_EFFECTS: dict[tuple[str, ...], str] = {
    ("key_groups",): "the state is split or merged; no result changes",
    ("salt",): "records are distributed differently; no result changes",
    ("time", "delay"): "applies from the next record on; watermarks never decrease",
    ("time", "punctuated"): "applies from the next record on; watermarks never decrease",
    ("time", "future"): "applies from the next record on; dead letters stay dead letters",
    ("time", "jump"): "applies from the next record on; watermarks never decrease",
    ("time", "idle"): "applies from the next tick on; an idle partition stays idle until its next record",
    ("time", "all_idle"): "applies from the next tick on; the low watermark does not go back",
    ("lists",): "applies from the next record on",
    ("recent", "last"): "applies from the next record on; records that were dropped are not seen again",
    ("recent", "within"): "applies from the next record on; records that were dropped are not seen again",
    ("process", "function"): "it is called from the next record on, with the existing state",
    ("process", "on_timer"): "it is called for timers from here on, including those already set",
    ("process", "on_processing_timer"): "it is called for timers from here on, including those already set",
}


"""The effects of changes that are always allowed."""


def _judge_rules(change: PipelineChange) -> PipelineChange:
    if _use_next(change.here) and not _use_next(change.there):
        return change.refuse(
            "they now use `next`, and the state lacks the alerts that the next record of a key would revise: start over"
        )
    means = "records are judged by them from here on; existing alerts stay until they are revised"
    names = {rule["name"] for rule in change.here or ()}
    removed = [rule["name"] for rule in change.there or () if rule["name"] not in names]
    if removed:
        means += f", and those of {', '.join(map(repr, removed))} for good, because no rule of that name revises them"
    return replace(change, means=means)


def _use_next(rules: Any) -> bool:  # noqa: ANN401 - plain JSON
    return any(
        uses_next(m.Rule(rule["name"], rule["when"], say=rule.get("say"), evidence=tuple(rule.get("with", {}).items())))
        for rule in rules or ()
    )


_JUDGES: dict[tuple[str, ...], _Judge] = {
    ("decode", "*"): _judge_decoded,
    ("derive", "*"): _new_or_gone(_NEW, _GONE),
    ("aggregate", "*"): _new_or_gone(_NEW_COLUMN, "it is no longer computed; drop its columns from the tables"),
    ("emit", "lateness"): _judge_lateness,
    ("rules",): _judge_rules,
    ("process", "returns", "*"): _judge_returned,
    ("process", "state", "*"): _judge_state,
}
"""The judges of all other changes; `*` stands for any name."""


def _text(value: Any) -> str:  # noqa: ANN401 - plain JSON
    return _NOTHING if value is None else json.dumps(value)


def changes_since(folder: Folder, graph: m.Graph) -> list[PipelineChange]:
    """Return the changes made since the savepoint in a folder, with their effects.

    Raise CheckpointError if the pipeline cannot resume from the savepoint.
    """
    kept, now = s.Savepoint.read(folder).meaning, s.fingerprint(graph)
    found = pipeline_changes(kept, now, graph)
    for other in s.other_tables(kept, graph):
        why = "the table has rows of the old pipeline: undo the change, or choose another table and start over"
        found.append(PipelineChange(other.field, other.there, other.here, None, why))
    refused = [change for change in found if change.means is None]
    if refused:
        listed = "\n  ".join(change.text for change in refused)
        msg = (
            f"the pipeline cannot resume from the savepoint {folder}, as its state would mean something else:\n"
            f"  {listed}\nundo the change, or start over (windrow run --backfill reads the log again)"
        )
        raise CheckpointError(msg)
    return found


def upgraded(folder: Folder, graph: m.Graph) -> tuple[s.Savepoint, Iterator[tuple[int, MemoryState]]]:
    """Return the savepoint in a folder, and its states, converted for the pipeline that resumes from it.

    Raise CheckpointError if the pipeline cannot resume from the savepoint, or if a file is damaged.
    """
    changes_since(folder, graph)
    savepoint, now = s.Savepoint.read(folder), s.fingerprint(graph)
    since = savepoint.decoded_since if _decoding(savepoint.meaning) == _decoding(now) else savepoint.offsets
    given = replace(
        savepoint,
        key_groups=graph.key_groups,
        meaning=now,
        identity=_identity(savepoint, now),
        decoded_since=since,
    )
    before, after = _streams(savepoint.meaning), _streams(now)
    plans = {name: _plan(before[name], after[name]) for name in after}
    # the state of deduplications stays as it is
    others = {node.name: StateChange((), 0) for node in graph.computed if node.name not in plans}
    same = all(plan == _plan(after[name], after[name]) for name, plan in plans.items())
    # as text: the order of fields is that of the columns of stored records
    same &= json.dumps(_records(savepoint.meaning)) == json.dumps(_records(now))
    if same and savepoint.key_groups == graph.key_groups:
        return given, s.Savepoint.states(folder)
    return given, iter(enumerate(migrate(graph, plans | others, (state for _, state in s.Savepoint.states(folder)))))


_OF_DECODING = ("decode", "derive", "time", "key", "window", "aggregate")
"""The sections that decide whether a record is a dead letter."""


def _decoding(meaning: Meaning) -> Meaning:
    """Return the settings that decide which records are dead letters."""
    streams = {
        name: {key: section.get(key) for key in _OF_DECODING}
        | {setting: section["source"].get("kafka", {}).get(setting) for setting in ("format", "key_format")}
        for name, section in _streams(meaning).items()
    }
    return {"streams": streams, "records": _records(meaning)}


def _identity(savepoint: s.Savepoint, now: Meaning) -> str | None:
    """Return the IDs of a savepoint's logs, with None for each topic that has moved to other servers since.

    A moved topic has a new ID, but the same offsets.
    """
    kept, given = _servers(savepoint.meaning), _servers(now)
    moved = [kept.get(source, servers) != servers for source, servers in given.items()]
    if savepoint.identity is None or not any(moved):
        return savepoint.identity
    if len(moved) == 1:
        return None
    ids = json.loads(savepoint.identity)
    return json.dumps([None if is_moved else id_ for is_moved, id_ in zip(moved, ids, strict=True)])


def _servers(meaning: Meaning) -> dict[str, str | None]:
    """Map each source name to its servers, in the order of the sources; the source of a short form is named "".

    Older versions stored only the servers of sources that windows read.
    """
    servers: dict[str, str | None] | None = meaning.get("servers")
    if servers is not None:
        return servers
    streams = _streams(meaning).values()
    return {stream.get("from", ""): stream["source"].get("kafka", {}).get("servers") for stream in streams}


def _plan(kept: Meaning, now: Meaning) -> StateChange:
    before, after = list(kept.get("aggregate", {})), now.get("aggregate", {})
    return StateChange(
        tuple(before.index(name) if name in before else None for name in after),
        m.parse_duration(kept.get("emit", {}).get("lateness", "0s")),
        same_records=all(
            list(kept.get(name, {}).items()) == list(now.get(name, {}).items())
            for name in ("decode", "derive", "aggregate")
        ),
        were=tuple(_retyped_fields(kept.get("decode", {}), now.get("decode", {}))),
    )


def _retyped_fields(kept: dict[str, Any], now: dict[str, Any]) -> Iterator[m.Field]:
    """Yield the decoded fields whose type has changed or that have become optional, with their old type."""
    for name in sorted(kept.keys() & now.keys()):
        texts = type_text(kept[name]), type_text(now[name])
        if texts[0] != texts[1]:
            yield m.Field(name, *m.parse_field_type(texts[0]))


def _is_longer(change: PipelineChange) -> bool:
    return m.parse_duration(change.here) > m.parse_duration(change.there)


def _refuse_by_node(node: m.ResultNode, change: PipelineChange) -> PipelineChange:
    """Return a change of a stream; refuse it if records in the state of its node would lack a field or an alert."""
    is_held = isinstance(node, m.ProcessNode) and node.process.order == "event_time"
    is_of_records = change.field.startswith(("decode.", "derive."))
    if isinstance(node, m.RulesNode) and change.field == "emit.lateness":
        longer = "expired records stay expired; new records may be further behind"
        shorter = "records that are further behind expire from here on"
        return replace(change, means=longer if _is_longer(change) else shorter)
    if isinstance(node, m.RulesNode) and is_of_records:
        return change.refuse("the recent records of keys were read without it")
    if isinstance(node, m.RulesNode) and change.field == "recent.within" and _is_longer(change):
        alerts = "alerts of older records are not kept, and rules use `next`"
        return change.refuse(alerts) if any(map(uses_next, node.rules.rules)) else change
    if is_held and is_of_records and (change.there is None or change.here is None):
        return change.refuse("records that wait for their time were read without it")
    return change
