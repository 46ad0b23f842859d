"""Records of a story, the fields inferred from them, and the story's pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from windrow import model as m
from windrow.authoring.checks import require_valid
from windrow.authoring.pipeline_file import Document
from windrow.authoring.sections import StoryGraph, StoryPipeline, StoryRules
from windrow.authoring.short_form import SOURCE, short_graph
from windrow.declare.yaml_node import YamlMapping, YamlNode
from windrow.errors import PipelineError, Place
from windrow.testing.transcript import values as v
from windrow.testing.transcript.story import AtEnd, sink_of

PARTITION = "p"
RAW = "raw"
OP = "op"
OPS = ("c", "r", "u", "d", "t")
"""The operations of changes of rows."""
LOG_TIME = "_log_time"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class StoryRecord:
    """A record of a story: a cell for each field, or its raw text.

    If `op` is given, it is a change of a row with these columns, in Debezium's envelope, at the time in microseconds.
    """

    partition: int
    cells: Mapping[str, v.Cell]
    raw: str | None
    place: Place
    op: str | None = None
    time: int = 0

    @property
    def value(self) -> bytes:
        """The bytes of the record."""
        if self.raw is not None:
            return self.raw.encode()
        row = v.json_object(self.cells)
        if self.op is None:
            return row.encode()
        before, after = (row if self.op in ops else "null" for ops in ("d", "cru"))
        source = f'{{"ts_ms": {self.time // 1000}}}'
        return f'{{"op": "{self.op}", "before": {before}, "after": {after}, "source": {source}}}'.encode()

    @property
    def has_all_fields(self) -> bool:
        """Whether the record must have each field of its source: a deletion and a truncation may lack some."""
        return self.raw is None and self.op not in {"d", "t"}


@dataclass(frozen=True)
class Sources:
    """The event times of a story's sources, by name. In a pipeline in short form, the only source has an empty name.

    `changes` are the names of those whose records are changes of rows.
    """

    times: Mapping[str, m.EventTime]
    changes: frozenset[str] = frozenset()

    @staticmethod
    def of(sections: StoryPipeline | StoryRules | StoryGraph) -> Sources:
        """Return the sources of a story's pipeline."""
        if not isinstance(sections, StoryGraph):
            return Sources({"": sections.time})
        changes = frozenset(source.name for source in sections.sources if source.source.format == "debezium")
        return Sources({source.name: source.time for source in sections.sources}, changes)

    def partition(self, text: str, node: YamlNode) -> int:
        """Parse a partition's number in the graph. With several sources it is written as ``SOURCE/NUMBER``."""
        if len(self.times) == 1:
            return partition_number(text, node)
        source, _, number = text.rpartition("/")
        names = list(self.times)
        if source not in names:
            msg = f"{node.called}: {text!r} is not a partition ({names[0]}/0, {names[0]}/1 ...)"
            raise node.error(msg)
        return names.index(source) * m.MAX_PARTITIONS + partition_number(number, node) % m.MAX_PARTITIONS

    def number(self, partition: int) -> int:
        """Return the number of the source that a partition belongs to."""
        return m.source_number(partition, len(self.times))

    def has_changes(self, partition: int) -> bool:
        """Return True if the records of a partition's source are changes of rows."""
        return list(self.times)[self.number(partition)] in self.changes

    def time(self, partition: int) -> m.EventTime:
        """Return the event time settings of a partition's source."""
        return list(self.times.values())[self.number(partition)]


def read_records(node: YamlNode, sources: Sources) -> tuple[StoryRecord, ...]:
    """Read a non-empty list of records; raise a PipelineError that lists all problems."""
    written = v.each(node.items(), lambda item: _record(item, sources))
    if not written:
        msg = f"{node.called} must have a record"
        raise node.error(msg)
    return written


def _record(node: YamlNode, sources: Sources) -> StoryRecord:
    fields = YamlMapping(node)
    partition = fields.optional(PARTITION, lambda entry: sources.partition(entry.text(), entry), 0)
    time = sources.time(partition.value or 0)
    raw = fields.optional(RAW, _raw, None)
    has_op = raw.value is None and sources.has_changes(partition.value or 0)
    op = fields.optional(OP, lambda entry: entry.choice(OPS), "c").value if has_op else None
    own = {PARTITION, RAW} | ({OP} if has_op else set())
    readers = dict.fromkeys((time.field, time.sent, mark_field(time)), v.read_time_cell) | {LOG_TIME: v.read_log_time}
    cells = {name: fields.attempt(readers.get(name, v.read_field), entry) for name, entry in fields if name not in own}
    if RAW in fields and cells:
        fields.problem(node.error(f"{node.called} is raw, and a raw record has no other keys than {PARTITION!r}"))
    fields.check()
    if not cells and raw.value is None:
        msg = f"{node.called} has no field"
        raise node.error(msg)
    found = {name: cell.value for name, cell in cells.items()}
    if op is not None and time.field not in found:
        msg = f"{node.called} lacks {time.field!r}, the time of the change"
        raise node.error(msg)
    changed = 0 if op is None else int(found[time.field].json)
    return StoryRecord(partition.value, found, raw.value, node.place, op, changed)


def partition_number(text: str, node: YamlNode) -> int:
    """Parse the number of a partition."""
    if not _NUMBER.fullmatch(text):
        msg = f"{node.called}: {text!r} is not the number of a partition (0, 1, 2 ...)"
        raise node.error(msg)
    return int(text)


def _raw(node: YamlNode) -> str:
    if not node.is_scalar or "\n" in node.node.value:
        msg = f"{node.called} must be a text of one line"
        raise node.error(msg)
    text: str = node.node.value
    return text


def read_marks(node: YamlNode, sources: Sources, partitions: Sequence[int]) -> tuple[StoryRecord, ...]:
    """Read a watermark for all `partitions` that have marks, or a mapping from partitions to watermarks."""
    if node.is_scalar:
        cell = v.read_time_cell(node)
        marked = [partition for partition in partitions if mark_field(sources.time(partition)) is not None]
        marks = dict.fromkeys(marked or partitions, cell)
    else:
        marks = read_mark_mapping(node, sources)
    if not marks:
        msg = f"{node.called} must have a partition"
        raise node.error(msg)
    return tuple(
        StoryRecord(partition, {_mark_field(node, sources.time(partition)): cell}, None, node.place)
        for partition, cell in marks.items()
    )


def _mark_field(node: YamlNode, time: m.EventTime) -> str:
    name = mark_field(time)
    if name is None:
        msg = f"{node.called} needs a source with marks: `time: {{field: {time.field}, punctuated: FIELD}}`"
        raise node.error(msg)
    return name


def read_mark_mapping(node: YamlNode, sources: Sources) -> dict[int, v.Cell]:
    """Read a mapping from partitions to watermarks, such as ``{0: "10:05"}``."""
    fields = YamlMapping(node)
    numbers = [fields.attempt(partial(sources.partition, name), entry) for name, entry in fields]
    cells = [fields.attempt(v.read_time_cell, entry) for _, entry in fields]
    fields.check()
    return {number.value: cell.value for number, cell in zip(numbers, cells, strict=True)}


def mark_field(time: m.EventTime) -> str | None:
    """Return the name of the punctuation's field, or None if the source has no punctuation."""
    return time.watermark.field if isinstance(time.watermark, m.Punctuated) else None


def infer_fields(records: Sequence[StoryRecord], time: m.EventTime, place: Place) -> m.Decode:
    """Infer the fields and their types from records; raise PipelineError if records disagree.

    The punctuation's field comes last; like the event time, it is a time. The log timestamp and raw records are
    ignored. A decimal has the largest scale in the story.
    """
    mark = mark_field(time)
    others = {LOG_TIME, mark}
    data = [record for record in records if record.raw is None and set(record.cells) - others]
    types: dict[str, m.DataType] = {}
    lines: dict[str, int] = {}
    for record in data:
        for name, cell in record.cells.items():
            if name in others:
                continue
            lines.setdefault(name, record.place.line)
            known = types.get(name, cell.type)
            common = v.common_type(known, cell.type)
            if common is None:
                msg = (
                    f"{name!r} is a {cell.type} here, and a {known} on line {lines[name]}; "
                    "a field has the same type throughout a story (5 is a long, 5.00 a decimal)"
                )
                raise PipelineError(msg, record.place)
            types[name] = common
    _require_complete(data, types, lines)
    if not types:
        msg = "the story needs a record that is not raw, from which its fields and their types are inferred"
        raise PipelineError(msg, place)
    if mark is not None:
        types[mark] = m.TimestampType("micros")
    return m.Decode(tuple(m.Field(name, type_) for name, type_ in types.items()))


def _require_complete(data: Sequence[StoryRecord], types: Mapping[str, m.DataType], lines: Mapping[str, int]) -> None:
    """Raise PipelineError if a record lacks a field, or if a list field has no elements in any record.

    `lines` maps each field to the line on which it first occurs.
    """
    for record in data:
        for name in types if record.has_all_fields else ():
            if name not in record.cells:
                msg = (
                    f"the record has no {name!r}, but the record on line {lines[name]} has one; "
                    "write a dead letter as `raw: TEXT`"
                )
                raise PipelineError(msg, record.place)
    empty = next((name for name, type_ in types.items() if v.lacks_elements(type_)), None)
    if empty is not None:
        msg = f"no list of {empty!r} has an element in any record, so its type is unknown; write a list with an element"
        raise PipelineError(msg, Place(data[0].place.file, lines[empty]))


KEY_GROUPS = 2
"""Low, because a story has few keys and each key group adds a cost to each step."""


def story_pipeline(
    node: YamlNode, sections: StoryPipeline | StoryRules, records: Sequence[StoryRecord], at_end: AtEnd
) -> m.Graph:
    """Return a short-form pipeline with placeholders for source and sink; raise PipelineError if it is invalid."""
    result: m.ResultNode
    if isinstance(sections, StoryRules):
        result = m.RulesNode("", SOURCE, sections.key, sections.rules, at_end)
    else:
        emit = replace(sections.emit, at_end=at_end)
        result = m.WindowNode("", SOURCE, sections.key, sections.window, sections.aggregates, emit, sections.salt)
    graph = short_graph(
        result,
        name="story",
        source=m.LogSource("story"),
        decode=infer_fields(records, sections.time, node.place),
        time=sections.time,
        sink=m.SqliteSink("story.db", "story"),
        derive=sections.derive,
        key_groups=KEY_GROUPS,
    )
    return require_valid(graph, Document(graph, node.file, node.node).place)


def story_graph(
    node: YamlNode, sections: StoryGraph, records: Sequence[StoryRecord], at_end: AtEnd, streams: Iterable[str]
) -> m.Graph:
    """Return the graph with a sink for each stream in `streams`; raise PipelineError if it is invalid."""
    sources = Sources.of(sections)
    filled = [
        replace(
            source,
            source=m.LogSource(source.name, "debezium" if source.name in sources.changes else "json"),
            decode=infer_fields(
                [record for record in records if sources.number(record.partition) == number], source.time, node.place
            ),
        )
        for number, source in enumerate(sections.sources)
    ]
    sinks = [m.SinkNode(sink_of(name), name, m.SqliteSink("story.db", name)) for name in streams]
    graph = sections.graph(filled, sinks, KEY_GROUPS).ending(at_end)
    return require_valid(graph, Document(graph, node.file, node.node).place)
