"""Story files: their steps, read in two passes, since the records say the types that the expected rows are read by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from windrow import model as m
from windrow.authoring.pipeline_file import looks_like_a_pipeline, read_file
from windrow.authoring.sections import STORY, STORY_GRAPH, STORY_RULES, StoryGraph, StoryPipeline, StoryRules
from windrow.declare.yaml_node import YamlMapping, YamlNode, compose, read_one_of
from windrow.engine.tick import Crash
from windrow.errors import PipelineError, TranscriptError
from windrow.testing.transcript.records import (
    Sources,
    Written,
    read_mark_mapping,
    read_marks,
    read_records,
    story_graph,
    story_pipeline,
    story_rules,
)
from windrow.testing.transcript.rows import read_change, read_dead, read_late, read_missed, read_rows, read_table_row
from windrow.testing.transcript.story import (
    AtEnd,
    End,
    Expect,
    ExpectDead,
    ExpectLate,
    Final,
    KillRun,
    MarkWatermark,
    RecordStep,
    Step,
    Story,
    Tabled,
    TellTime,
    tabled,
)
from windrow.testing.transcript.times import parse_story_time
from windrow.testing.transcript.values import each

KEYS = ("name", "pipeline", "steps", "final")


def read_story(path: str | Path) -> Story:
    """Read one file; raise TranscriptError, with file:line, if it is not a story."""
    try:
        text = read_file(path)
    except PipelineError as exc:
        raise TranscriptError(exc.message, exc.place) from exc
    return parse_story(text, str(path))


def parse_story(text: str, file: str) -> Story:
    """Read the text of a story; raise TranscriptError, with file:line, if it is none."""
    try:
        return _story(compose(text, file))
    except PipelineError as exc:
        # several problems have their places in the message
        error = TranscriptError(str(exc))
        error.place = exc.place
        raise error from exc


def _story(root: YamlNode) -> Story:
    if looks_like_a_pipeline(root):
        msg = "this is a pipeline, not a story; check it with `windrow check`, run it with `windrow run`"
        raise root.error(msg)
    fields = YamlMapping(YamlNode(root.node, root.file, "story"), KEYS)
    name = fields.required("name", YamlNode.text)
    pipeline = fields.required("pipeline", lambda entry: (entry, _sections(YamlNode(entry.node, entry.file))))
    outline = fields.required("steps", read_outline)
    final = fields.required("final", lambda entry: entry)
    fields.check()

    node, sections = pipeline.value
    fed = read_feeds(outline.value, Sources.of(sections))
    records = [record for step in fed.values() for record in step.records]
    tables: dict[str, YamlNode] = {"": final.value}
    meant: m.Graph
    match sections:
        case StoryPipeline():
            meant = story_pipeline(node, sections, records, outline.value.at_end)
        case StoryRules():
            meant = story_rules(node, sections, records, outline.value.at_end)
        case StoryGraph():
            tables = _tables(final.value, sections)
            meant = story_graph(node, sections, records, outline.value.at_end, tables)
    streams = {name: one for name, one in tabled(meant).items() if name in tables}
    return Story(
        name=name.value,
        file=root.file,
        pipeline=meant,
        steps=read_steps(outline.value, fed, streams),
        final={
            name: Final(read_rows(table, streams[name], read_table_row), table.place) for name, table in tables.items()
        },
        streams=streams,
    )


def _sections(node: YamlNode) -> StoryPipeline | StoryRules | StoryGraph:
    if node.keys & {"sources", "streams"}:
        return STORY_GRAPH.read(node)
    return STORY_RULES.read(node) if "rules" in node.keys else STORY.read(node)


def _tables(final: YamlNode, sections: StoryGraph) -> dict[str, YamlNode]:
    """Return the tables of a story by stream; raise PipelineError for a stream that has no windows."""
    names = [node.name for node in sections.streams if isinstance(node, m.WindowNode)]
    fields = YamlMapping(final, names)
    fields.check()
    found = dict(fields)
    if not found:
        msg = f"{final.called} must have the table of a stream ({', '.join(names)})"
        raise final.error(msg)
    return found


AT_END: tuple[AtEnd, ...] = ("fire", "hold")
FEEDS = ("records", "watermark")
KINDS = (*FEEDS, "tick", "crash", "expect", "late", "dead", "end")


@dataclass(frozen=True)
class Outlined:
    """A step by its one key; `node` is what is under it."""

    kind: str
    node: YamlNode


@dataclass(frozen=True)
class Outline:
    """The steps in order, and what the one `end` among them says."""

    steps: tuple[Outlined, ...]
    at_end: AtEnd


@dataclass(frozen=True)
class Fed:
    """A step that feeds records."""

    kind: str
    records: tuple[Written, ...]
    node: YamlNode


def read_outline(node: YamlNode) -> Outline:
    """Read the kinds of the steps, and where the input ends."""
    steps = each(node.items(), _outlined)
    ends = [number for number, step in enumerate(steps) if step.kind == "end"]
    if len(ends) != 1:
        msg = f"{node.called} must have one `end: fire` or `end: hold`, and has {len(ends)}"
        raise node.error(msg)
    for step in steps[ends[0] :]:
        if step.kind in {*FEEDS, "tick", "crash"}:
            msg = f"{step.node.called}: nothing comes after the end of the input"
            raise step.node.error(msg)
    before = ""
    for step in steps:
        if step.kind == "crash" and before not in {*FEEDS, "tick"}:
            msg = f"{step.node.called} must follow the step that is run again: records, a watermark or a tick"
            raise step.node.error(msg)
        before = before if step.kind in {"expect", "late", "dead"} else step.kind
    return Outline(steps, steps[ends[0]].node.choice(AT_END))


def _outlined(node: YamlNode) -> Outlined:
    # a reader by kind that keeps the value for later
    return read_one_of(node, "kind of step", {kind: partial(Outlined, kind) for kind in KINDS})


def read_feeds(outline: Outline, sources: Sources) -> dict[int, Fed]:
    """Read what the steps feed, by the number of the step."""
    feeding = [(number, step) for number, step in enumerate(outline.steps) if step.kind in FEEDS]
    records = dict(
        each(
            ((number, step) for number, step in feeding if step.kind == "records"),
            lambda pair: (pair[0], read_records(pair[1].node, sources)),
        )
    )
    partitions = {record.partition for written in records.values() for record in written}
    for _, step in feeding:
        if step.kind == "watermark" and step.node.is_mapping:
            partitions.update(read_mark_mapping(step.node, sources))
    marks = dict(
        each(
            ((number, step) for number, step in feeding if step.kind == "watermark"),
            lambda pair: (pair[0], read_marks(pair[1].node, sources, sorted(partitions))),
        )
    )
    return {number: Fed(step.kind, {**records, **marks}[number], step.node) for number, step in feeding}


def read_steps(outline: Outline, fed: dict[int, Fed], streams: Mapping[str, Tabled]) -> tuple[Step, ...]:
    """Read all steps; what is expected of several streams is a step for each."""
    steps = each(
        enumerate(outline.steps),
        lambda pair: (_fed(fed[pair[0]]),) if pair[0] in fed else _checks(pair[1], streams, outline.at_end),
    )
    return tuple(chain.from_iterable(steps))


def _fed(fed: Fed) -> Step:
    records = tuple((record.partition, record.value) for record in fed.records)
    if fed.kind == "records":
        return RecordStep(records, fed.node.place)
    return MarkWatermark(records, fed.node.place)


def _checks(step: Outlined, streams: Mapping[str, Tabled], at_end: AtEnd) -> tuple[Step, ...]:
    match step.kind:
        case "tick":
            return (TellTime(step.node.parsed(parse_story_time), step.node.place),)
        case "crash":
            is_committed = step.node.choice(("before_commit", "after_commit")) == "after_commit"
            return (KillRun(Crash(is_committed), step.node.place),)
        case "end":
            return (End(at_end, step.node.place),)
        case kind:
            return each(_by_stream(step.node, streams), lambda pair: _check(kind, pair[1], streams[pair[0]], pair[0]))


def _by_stream(node: YamlNode, streams: Mapping[str, Tabled]) -> list[tuple[str, YamlNode]]:
    """Return the rows of each stream; an empty list stands for all streams."""
    if "" in streams or (not node.is_mapping and not node.items()):
        return [(name, node) for name in streams]
    fields = YamlMapping(node, tuple(streams))
    fields.check()
    return list(fields)


def _check(kind: str, node: YamlNode, pipeline: Tabled, stream: str) -> Step:
    match kind:
        case "expect":
            return Expect(read_rows(node, pipeline, read_change), node.place, stream)
        case "late":
            read = read_missed if stream or isinstance(pipeline.node, m.RulesNode) else read_late
            return ExpectLate(read_rows(node, pipeline, read), node.place, stream)
        case _:
            return ExpectDead(read_rows(node, pipeline, read_dead), node.place, stream)
