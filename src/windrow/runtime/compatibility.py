"""Compatibility of a pipeline with a savepoint.

How a pipeline differs from the one that wrote a savepoint, which of these its
state survives, and the state that it resumes with.
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
from windrow.runtime.savepoint import (
    FREE,
    Meaning,
    Savepoint,
    fingerprint,
    other_tables,
    renamed_logs,
    without_location,
)
from windrow.telemetry.folders import Folder

_NOTHING = "nothing"
_OTHER_RECORDS = "what is kept was made of other records: start over"
_NEW = "a record from here on is a dead letter if its value is not good"
_GONE = "it is read no more"
_RENAMED = "the source of rows from here on; those of before keep the other"


@dataclass(frozen=True)
class PipelineChange:
    """A field (its path in a pipeline file) that is another now.

    `means` is None if it cannot be, `why` the reason of that where it is not plain.
    """

    field: str
    there: Any
    here: Any
    means: str | None
    why: str | None = None

    @property
    def text(self) -> str:
        """The old value, the new value, and the effect of the change or why it is refused."""
        message = f"{self.field}: {_text(self.there)} there, {_text(self.here)} here"
        said = self.why if self.means is None else self.means
        return message if said is None else f"{message}: {said}"

    def refused(self, why: str | None = None) -> PipelineChange:
        """Return the change as one that cannot be."""
        return replace(self, means=None, why=why or self.why)


def pipeline_changes(kept: Meaning, given: Meaning, graph: m.Graph | None = None) -> list[PipelineChange]:
    """Return what differs between the pipeline of a savepoint and one that is to resume from it.

    With the `graph` of the latter, also refuse what its state rules out.
    """
    before, after = _streams(kept), _streams(given)
    if before.keys() != after.keys():
        why = "streams cannot be added, removed or renamed with the state of others: start over"
        return [PipelineChange("streams", list(before), list(after), None, why)]
    found: list[PipelineChange] = []
    if kept.get("name") != given.get("name"):  # a graph may have no window, whose settings have it
        found.append(PipelineChange("name", kept.get("name"), given.get("name"), None))
    if kept.get("sources") != given.get("sources"):
        why = "sources cannot be added, removed, renamed or put in another order: start over"
        found.append(PipelineChange("sources", kept.get("sources"), given.get("sources"), None, why))
    found += (
        PipelineChange(
            renamed_log.field,
            renamed_log.there,
            renamed_log.here,
            None if renamed_log.why else _RENAMED,
            renamed_log.why,
        )
        for renamed_log in renamed_logs(kept, given)
    )
    found += _record_changes(_without_broadcast(kept), _without_broadcast(given), _names(kept))
    if all(change.means is not None for change in found):
        found += _broadcast_changes(kept, given)
    nodes = {} if graph is None else {node.name: node for node in graph.keyed if isinstance(node, m.ResultNode)}
    for name in after:
        changes = _stream_changes(before[name], after[name])
        if graph is not None:
            changes = _possible(spec_of(graph, nodes[name]), changes, _plan(before[name], after[name]))
        known = {change.field for change in found}
        changes = [replace(change, field=_in_stream(name, change.field)) for change in changes]
        found += [change for change in changes if change.field not in known]
    return found


def _without_broadcast(meaning: Meaning) -> dict[str, Any]:
    """Return the sources and the streams that are no results, as if no lookup were broadcast."""
    return {name: _lookup(section)[0] for name, section in _records(meaning).items()}


def _names(section: Any) -> set[str]:  # noqa: ANN401 - plain JSON
    """Return all names and texts in a section, the fields among them."""
    if isinstance(section, dict):
        return set(section).union(*(_names(value) for name, value in section.items() if name != "name"))
    return set().union(*map(_names, section)) if isinstance(section, list) else {str(section)}


def _is_new_optional(change: PipelineChange) -> bool:
    """Whether a field is decoded now that was not, and that records can lack."""
    is_new = change.field.startswith("decode.") and change.there is None
    return is_new and m.parse_field_type(type_text(change.here))[1]


def _record_changes(kept: dict[str, Any], given: dict[str, Any], names: Collection[str]) -> Iterator[PipelineChange]:
    """Go through what differs in sources and in streams that are no results.

    Clocks can change, and optional fields can be new, unless a field has the name already: a join would rename it.
    """
    for name in dict.fromkeys([*kept, *given]):
        there, here = kept.get(name), given.get(name)
        is_source = not all(isinstance(section, dict) and "source" not in section for section in (there, here))
        field = f"{'sources' if is_source else 'streams'}.{name}"
        if not (isinstance(there, dict) and isinstance(here, dict)):
            # of a source that windows alone read it is the lateness
            if there != here:
                yield PipelineChange(f"{field}.lateness", there, here, None, _OTHER_RECORDS)
            continue
        for change in _changes(there, here, ()):
            if _is_new_optional(change) and change.field.removeprefix("decode.") not in names:
                found = replace(change, means="null in the records that are kept by now")
            elif change.means is not None and change.field.startswith("time."):
                found = change
            else:
                found = change.refused(_OTHER_RECORDS)
            yield replace(found, field=f"{field}.{change.field}")


def _records(meaning: Meaning) -> dict[str, Any]:
    """Return the sources and the streams that are no results; an older version kept more of where a log is."""
    return {
        name: without_location(section) if isinstance(section, dict) and "source" in section else section
        for name, section in meaning.get("records", {}).items()
    }


def _broadcast_changes(kept: Meaning, given: Meaning) -> Iterator[PipelineChange]:
    for name, section in given.get("records", {}).items():
        there, here = _lookup(kept["records"][name])[1], _lookup(section)[1]
        if there != here:
            means = "the states are divided in another way; no answer changes"
            yield PipelineChange(f"streams.{name}.lookup.broadcast", there, here, means)


def _lookup(section: Any) -> tuple[Any, bool]:  # noqa: ANN401 - plain JSON
    """Return the section of a stream as if it were not broadcast, and whether it is."""
    if not isinstance(section, dict) or "lookup" not in section:
        return section, False
    lookup = dict(section["lookup"])
    is_broadcast = bool(lookup.pop("broadcast", False))
    return section | {"lookup": lookup}, is_broadcast


def _possible(
    spec: OperatorSpec[m.ResultNode], changes: list[PipelineChange], plan: StateChange
) -> list[PipelineChange]:
    """Return changes of a stream, refused where its state rules them out."""
    found = [_held(spec.node, change) for change in changes]
    if any(change.means is None for change in found):
        return found
    reasons = {f"decode.{name}": why for name, why in incompatible_fields(spec, plan).items()}
    return [change.refused(why) if (why := reasons.get(change.field)) else change for change in found]


def _streams(meaning: Meaning) -> dict[str, Meaning]:
    """Return the streams of a graph by name; that of a short form has none."""
    streams: dict[str, Meaning] = meaning.get("streams", {"": meaning})
    return streams


def _in_stream(name: str, field: str) -> str:
    """Return the path of a stream's field; all streams have the same records."""
    shared = field.partition(".")[0] in {"name", "source", "decode", "time", "key_groups"}
    return f"streams.{name}.{field}" if name and not shared else field


def _stream_changes(kept: Meaning, given: Meaning) -> list[PipelineChange]:
    moved, changes = set(_moved(kept, given)), _changes(kept, given, ())
    if given.get("is_chained"):
        why = "other streams depend on it, or it depends on others: start over"
        return [
            change
            if change.field == "key_groups"
            or change.field.startswith("time.")
            or _is_new_optional(change)
            or (change.means is None and change.why is not None)
            else change.refused(why)
            for change in changes
        ]
    return [change.refused() if change.field in moved else change for change in changes]


def _moved(kept: Meaning, given: Meaning) -> Iterator[str]:
    """Go through the fields that are decoded where they were derived, or the other way: another value by one name."""
    for there, here in (("decode", "derive"), ("derive", "decode")):
        for name in kept.get(there, {}).keys() & given.get(here, {}).keys():
            yield from (f"{there}.{name}", f"{here}.{name}")


def _changes(kept: Any, given: Any, path: tuple[str, ...]) -> Iterator[PipelineChange]:  # noqa: ANN401 - plain JSON
    if path in _ORDERED and set(kept or ()) == set(given or ()) and list(kept or ()) != list(given or ()):
        yield PipelineChange(".".join(path), kept, given, None, "it is the order of columns in what is kept")
    if path in FREE or (kept == given and not isinstance(given, dict)):
        return
    if kept == given:  # also in another order
        for name in given:
            yield from _changes(kept[name], given[name], (*path, name))
        return
    rule = _rule(path)
    typed = _typed(path)
    if typed is not None:
        yield typed(PipelineChange(".".join(path), kept, given, None))
    elif rule is not None:
        yield PipelineChange(".".join(path), kept, given, rule(kept, given))
    elif isinstance(kept, dict | None) and isinstance(given, dict | None) and path not in _WHOLE:
        before, after = kept or {}, given or {}
        for name in dict.fromkeys([*before, *after]):
            yield from _changes(before.get(name), after.get(name), (*path, name))
    else:
        yield PipelineChange(".".join(path), kept, given, None, _REFUSED.get(path))


_REFUSED: dict[tuple[str, ...], str] = {
    ("process", "ttl"): "what is kept of a key would be forgotten at other times than it was to be",
    ("process", "order"): "records that wait for their time are kept in one order, and none in the other",
}
"""Why fields cannot change, where that is not plain."""

_WHOLE = {("key",), ("window",), ("time", "delay"), ("emit", "early")}
"""Fields that are reported as one."""

_ORDERED = {("process", "state"), ("process", "returns")}
"""Fields whose order of names is the order of columns in the state."""

_Rule = Callable[[Any, Any], str | None]


def _lateness(there: str, here: str) -> str:
    if m.parse_duration(here) > m.parse_duration(there):
        return "windows that are forgotten by now stay so, and their records expire; the others wait longer"
    return "windows that are late by more are forgotten in the first step"


def _aggregate(there: str | None, here: str | None) -> str | None:
    if there is None:
        return (
            "a new column; a window that is open, or can still be revised, counts in it what comes from here on, and "
            "rows that are not written again have null"
        )
    return "it is counted no more; drop its columns from the tables" if here is None else None


def _derived(there: str | None, here: str | None) -> str | None:
    if there is None:
        return _NEW
    return _GONE if here is None else None


def _decoded(change: PipelineChange) -> PipelineChange:
    if change.there is None or change.here is None:
        return replace(change, means=_NEW if change.there is None else _GONE)
    there, here = _place(change.there), _place(change.here)
    if there.get("path") != here.get("path"):
        return change.refused("its values would be read from another place in a record")
    (before, lacked), (after, lacks) = (m.parse_field_type(type_text(one)) for one in (change.there, change.here))
    if lacks and (gone := set(there.get("alias", ())) - set(here.get("alias", ()))):
        # of a field that is not optional such a record is a dead letter
        return change.refused(f"it would be null in records that have it as {', '.join(sorted(gone))}")
    if lacked and not lacks:
        return change.refused("records that are known by now may lack it")
    stays = "" if before == after else "; what is known by now stays as it was read"
    return _wider(change, [(before, after)], f"true from the next record on{stays}")


def _place(field: Any) -> dict[str, Any]:  # noqa: ANN401 - plain JSON
    """Return the settings of a decoded field that stand beside its type."""
    return field if isinstance(field, dict) else {}


def _returned(change: PipelineChange) -> PipelineChange:
    if change.there is None or change.here is None:
        return change
    return _wider(change, [(m.parse_type(change.there), m.parse_type(change.here))], "true from the next row on")


def _kept(change: PipelineChange) -> PipelineChange:
    if change.there is None or change.here is None:
        return change
    # such as map(string, decimal(12,2)): there is no blank within a type
    (kind, before), (other, after) = (one.removesuffix(")").split("(", 1) for one in (change.there, change.here))
    if kind != other:
        return change
    both = zip(map(m.parse_type, before.split(", ")), map(m.parse_type, after.split(", ")), strict=True)
    return _wider(change, list(both), "true from the next entry on; what is kept stays as it is")


def _wider(change: PipelineChange, both: list[tuple[m.DataType, m.DataType]], means: str) -> PipelineChange:
    """Return a change with what it means, refused if a type there is not taken by the one here."""
    why = next(filter(None, (why_not_wider(*one) for one in both)), None)
    return change.refused(why) if why else replace(change, means=means)


def type_text(field: Any) -> str:  # noqa: ANN401 - plain JSON
    """Return the type of a decoded field as a pipeline file has it, of all that is said of it there."""
    return str(field["type"] if isinstance(field, dict) else field)


_RULES: dict[tuple[str, ...], _Rule] = {
    ("key_groups",): lambda _, __: "the states are split and joined; no answer changes",
    ("salt",): lambda _, __: "records are spread in another way; no answer changes",
    ("time", "delay"): lambda _, __: "true from the next record on; no watermark goes back",
    ("time", "punctuated"): lambda _, __: "true from the next record on; no watermark goes back",
    ("time", "future"): lambda _, __: "true from the next record on; what is a dead letter stays one",
    ("time", "idle"): lambda _, __: "true from the next tick on; who is idle now stays so until its next record",
    ("time", "all_idle"): lambda _, __: "true from the next tick on; the low watermark does not go back",
    ("emit", "lateness"): _lateness,
    ("lists",): lambda _, __: "true from the next record on",
    ("recent", "last"): lambda _, __: "true from the next record on; what is forgotten by now is seen no more",
    ("recent", "within"): lambda _, __: "true from the next record on; what is forgotten by now is seen no more",
    ("process", "function"): lambda _, __: "it is called from the next record on, with the state that is there",
    ("process", "on_timer"): lambda _, __: "it is called for timers from here on, also for those that are set",
    ("process", "on_processing_timer"): lambda _, __: "it is called for timers from here on, also for those set",
}


def _judging(change: PipelineChange) -> PipelineChange:
    if _use_next(change.here) and not _use_next(change.there):
        return change.refused(
            "they use `next` now, and alerts that the next record of a key would revise are not kept: start over"
        )
    means = "records are judged by it from here on; alerts that are there stay until they are revised"
    removed = [name for name in _rule_names(change.there) if name not in _rule_names(change.here)]
    if removed:
        means += f", and those of {', '.join(map(repr, removed))} for ever: no rule of that name revises them any more"
    return replace(change, means=means)


def _rule_names(rules: Any) -> list[str]:  # noqa: ANN401 - plain JSON
    return [rule["name"] for rule in rules or ()]


def _use_next(rules: Any) -> bool:  # noqa: ANN401 - plain JSON
    return any(
        uses_next(m.Rule(rule["name"], rule["when"], say=rule.get("say"), evidence=tuple(rule.get("with", {}).items())))
        for rule in rules or ()
    )


def _typed(path: tuple[str, ...]) -> Callable[[PipelineChange], PipelineChange] | None:
    match path:
        case ("decode", _):
            return _decoded
        case ("rules",):
            return _judging
        case ("process", "returns", _):
            return _returned
        case ("process", "state", _):
            return _kept
        case _:
            return None


def _rule(path: tuple[str, ...]) -> _Rule | None:
    match path:
        case ("aggregate", _):
            return _aggregate
        case ("derive", _):
            return _derived
        case _:
            return _RULES.get(path)


def _text(value: Any) -> str:  # noqa: ANN401 - plain JSON
    return _NOTHING if value is None else json.dumps(value)


def meant(folder: Folder, graph: m.Graph) -> list[PipelineChange]:
    """Return what has changed since the savepoint in a folder, and what that means.

    Raise CheckpointError if the pipeline cannot resume from there.
    """
    kept, now = Savepoint.read(folder).meaning, fingerprint(graph)
    found = pipeline_changes(kept, now, graph)
    for other in other_tables(kept, graph):
        why = "the table has the rows of before: leave that as it was, or choose another table and start over"
        found.append(PipelineChange(other.field, other.there, other.here, None, why))
    refused = [change for change in found if change.means is None]
    if refused:
        listed = "\n  ".join(change.text for change in refused)
        msg = (
            f"the pipeline cannot resume from the savepoint {folder}, as what it knows would mean something else:\n"
            f"  {listed}\nleave that as it was, or start over (windrow run --backfill reads the log again)"
        )
        raise CheckpointError(msg)
    return found


def upgraded(folder: Folder, graph: m.Graph) -> tuple[Savepoint, Iterator[tuple[int, MemoryState]]]:
    """Return the savepoint in a folder as one of a pipeline that resumes from it, and its states.

    Raise CheckpointError as `meant` does, and where a file is damaged.
    """
    meant(folder, graph)
    savepoint, now = Savepoint.read(folder), fingerprint(graph)
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
    # what deduplications keep stays as it is
    others = {node.name: StateChange((), 0) for node in graph.computed if node.name not in plans}
    same = all(plan == _plan(after[name], after[name]) for name, plan in plans.items())
    # in their order, which is that of the columns of stored records
    same &= json.dumps(_records(savepoint.meaning)) == json.dumps(_records(now))
    if same and savepoint.key_groups == graph.key_groups:
        return given, Savepoint.states(folder)
    return given, iter(enumerate(migrate(graph, plans | others, (state for _, state in Savepoint.states(folder)))))


_OF_DECODING = ("decode", "derive", "time", "key", "window", "aggregate")
"""The sections that decide whether a record is a dead letter."""


def _decoding(meaning: Meaning) -> Meaning:
    """Return the settings that decide which records are dead letters."""
    streams = {
        name: {key: one.get(key) for key in _OF_DECODING} | {"format": one["source"].get("kafka", {}).get("format")}
        for name, one in _streams(meaning).items()
    }
    return {"streams": streams, "records": _records(meaning)}


def _identity(savepoint: Savepoint, now: Meaning) -> str | None:
    """Return what the logs of a savepoint are known by, without those of topics at other servers.

    Such a topic is one that was moved there: it has another id, and the same offsets.
    """
    kept, given = _servers(savepoint.meaning), _servers(now)
    moved = [kept.get(source, servers) != servers for source, servers in given.items()]
    if savepoint.identity is None or not any(moved):
        return savepoint.identity
    if len(moved) == 1:
        return None
    ids = json.loads(savepoint.identity)
    return json.dumps([None if is_moved else id_ for is_moved, id_ in zip(moved, ids, strict=True)])


def _servers(of: Meaning) -> dict[str, str | None]:
    """Return the servers of each source by name, in order; a short form has one without a name.

    An older version kept those of sources that windows read.
    """
    servers: dict[str, str | None] | None = of.get("servers")
    if servers is not None:
        return servers
    streams = _streams(of).values()
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
        were=tuple(_were(kept.get("decode", {}), now.get("decode", {}))),
    )


def _were(kept: dict[str, Any], now: dict[str, Any]) -> Iterator[m.Field]:
    """Go through the decoded fields that are of another type now, or may be lacking now, as they were."""
    for name in sorted(kept.keys() & now.keys()):
        texts = type_text(kept[name]), type_text(now[name])
        if texts[0] != texts[1]:
            yield m.Field(name, *m.parse_field_type(texts[0]))


def _is_longer(change: PipelineChange) -> bool:
    return m.parse_duration(change.here) > m.parse_duration(change.there)


def _held(node: m.ResultNode, change: PipelineChange) -> PipelineChange:
    """Return a change, refused if a process holds records until their time has come that it would be lacking in."""
    is_held = isinstance(node, m.ProcessNode) and node.process.order == "event_time"
    is_of_records = change.field.startswith(("decode.", "derive."))
    if isinstance(node, m.RulesNode) and change.field == "emit.lateness":
        longer = "what has expired by now stays so; records that come from here on may be further behind"
        shorter = "records that are further behind expire from here on"
        return replace(change, means=longer if _is_longer(change) else shorter)
    if isinstance(node, m.RulesNode) and is_of_records:
        return change.refused("the recent records of keys were read without that")
    if isinstance(node, m.RulesNode) and change.field == "recent.within" and _is_longer(change):
        alerts = "alerts of records further back are not kept, and rules use `next`"
        return change.refused(alerts) if any(map(uses_next, node.rules.rules)) else change
    if is_held and is_of_records and (change.there is None or change.here is None):
        return change.refused("records that are held until their time has come were read without it")
    return change
