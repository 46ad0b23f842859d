"""Reads story files in two passes, because the types of expected rows are inferred from the records."""

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
from windrow.testing.transcript import records as r
from windrow.testing.transcript import story as s
from windrow.testing.transcript.records import Sources, StoryRecord
from windrow.testing.transcript.rows import read_change, read_dead, read_late, read_missed, read_rows, read_table_row
from windrow.testing.transcript.story import Story, Tabled
from windrow.testing.transcript.times import parse_story_time
from windrow.testing.transcript.values import each

KEYS = ("name", "pipeline", "steps", "final")


def read_story(path: str | Path) -> Story:
    """Read a story file; raise TranscriptError with file:line if it is not a story."""
    try:
        text = read_file(path)
    except PipelineError as exc:
        raise TranscriptError(exc.message, exc.place) from exc
    return parse_story(text, str(path))


def parse_story(text: str, file: str) -> Story:
    """Parse the text of a story; raise TranscriptError with file:line if it is not a story."""
    try:
        return _story(compose(text, file))
    except PipelineError as exc:
        # with several problems, the message has their places
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
    if isinstance(sections, StoryGraph):
        tables = _tables(final.value, sections)
        graph = r.story_graph(node, sections, records, outline.value.at_end, tables)
    else:
        graph = r.story_pipeline(node, sections, records, outline.value.at_end)
    streams = {name: stream for name, stream in s.tabled(graph).items() if name in tables}
    return Story(
        name=name.value,
        file=root.file,
        pipeline=graph,
        steps=read_steps(outline.value, fed, streams),
        final={
            name: s.Final(read_rows(table, streams[name], read_table_row), table.place)
            for name, table in tables.items()
        },
        streams=streams,
    )


def _sections(node: YamlNode) -> StoryPipeline | StoryRules | StoryGraph:
    if node.keys & {"sources", "streams"}:
        return STORY_GRAPH.read(node)
    return STORY_RULES.read(node) if "rules" in node.keys else STORY.read(node)


def _tables(final: YamlNode, sections: StoryGraph) -> dict[str, YamlNode]:
    """Map each stream to the table in `final`; raise PipelineError for a stream that has no windows."""
    names = [node.name for node in sections.streams if isinstance(node, m.WindowNode)]
    fields = YamlMapping(final, names)
    fields.check()
    found = dict(fields)
    if not found:
        msg = f"{final.called} must have the table of a stream ({', '.join(names)})"
        raise final.error(msg)
    return found


AT_END: tuple[s.AtEnd, ...] = ("fire", "hold")
FEEDS = ("records", "watermark")
KINDS = (*FEEDS, "tick", "crash", "expect", "late", "dead", "end")


@dataclass(frozen=True)
class Outlined:
    """A step that has not been read yet: its only key, and the `node` of its value."""

    kind: str
    node: YamlNode


@dataclass(frozen=True)
class Outline:
    """The steps in order, and the value of the `end` step."""

    steps: tuple[Outlined, ...]
    at_end: s.AtEnd


@dataclass(frozen=True)
class FeedStep:
    """A step that adds records to the log."""

    kind: str
    records: tuple[StoryRecord, ...]
    node: YamlNode


def read_outline(node: YamlNode) -> Outline:
    """Read the kind of each step, and what happens at the end of the input."""
    # readers by kind that keep the value for later
    readers = {kind: partial(Outlined, kind) for kind in KINDS}
    steps = each(node.items(), lambda item: read_one_of(item, "kind of step", readers))
    ends = [number for number, step in enumerate(steps) if step.kind == "end"]
    if len(ends) != 1:
        msg = f"{node.called} must have one `end: fire` or `end: hold`, and has {len(ends)}"
        raise node.error(msg)
    for step in steps[ends[0] :]:
        if step.kind in {*FEEDS, "tick", "crash"}:
            msg = f"{step.node.called}: only expectations may follow the end of the input"
            raise step.node.error(msg)
    before = ""
    for step in steps:
        if step.kind == "crash" and before not in {*FEEDS, "tick"}:
            msg = f"{step.node.called} must follow the step to repeat: records, a watermark or a tick"
            raise step.node.error(msg)
        before = before if step.kind in {"expect", "late", "dead"} else step.kind
    return Outline(steps, steps[ends[0]].node.choice(AT_END))


def read_feeds(outline: Outline, sources: Sources) -> dict[int, FeedStep]:
    """Read the steps that add records, by the number of the step."""
    feeding = [(number, step) for number, step in enumerate(outline.steps) if step.kind in FEEDS]
    records = dict(
        each(
            ((number, step) for number, step in feeding if step.kind == "records"),
            lambda pair: (pair[0], r.read_records(pair[1].node, sources)),
        )
    )
    partitions = {record.partition for written in records.values() for record in written}
    for _, step in feeding:
        if step.kind == "watermark" and step.node.is_mapping:
            partitions.update(r.read_mark_mapping(step.node, sources))
    marks = dict(
        each(
            ((number, step) for number, step in feeding if step.kind == "watermark"),
            lambda pair: (pair[0], r.read_marks(pair[1].node, sources, sorted(partitions))),
        )
    )
    return {number: FeedStep(step.kind, {**records, **marks}[number], step.node) for number, step in feeding}


def read_steps(outline: Outline, fed: dict[int, FeedStep], streams: Mapping[str, Tabled]) -> tuple[s.Step, ...]:
    """Read all steps. An expectation about several streams becomes one step for each stream."""

    def read(pair: tuple[int, Outlined]) -> tuple[s.Step, ...]:
        number, step = pair
        if number not in fed:
            return _checks(step, streams, outline.at_end)
        records = tuple((record.partition, record.value) for record in fed[number].records)
        kind = s.RecordStep if step.kind == "records" else s.MarkWatermark
        return (kind(records, step.node.place),)

    return tuple(chain.from_iterable(each(enumerate(outline.steps), read)))


def _checks(step: Outlined, streams: Mapping[str, Tabled], at_end: s.AtEnd) -> tuple[s.Step, ...]:
    match step.kind:
        case "tick":
            return (s.TellTime(step.node.parsed(parse_story_time), step.node.place),)
        case "crash":
            is_committed = step.node.choice(("before_commit", "after_commit")) == "after_commit"
            return (s.KillRun(Crash(is_committed), step.node.place),)
        case "end":
            return (s.End(at_end, step.node.place),)
        case kind:
            return each(_by_stream(step.node, streams), lambda pair: _check(kind, pair[1], streams[pair[0]], pair[0]))


def _by_stream(node: YamlNode, streams: Mapping[str, Tabled]) -> list[tuple[str, YamlNode]]:
    """Return (stream, rows) pairs; an empty list applies to all streams."""
    if "" in streams or (not node.is_mapping and not node.items()):
        return [(name, node) for name in streams]
    fields = YamlMapping(node, tuple(streams))
    fields.check()
    return list(fields)


def _check(kind: str, node: YamlNode, pipeline: Tabled, stream: str) -> s.Step:
    match kind:
        case "expect":
            return s.Expect(read_rows(node, pipeline, read_change), node.place, stream)
        case "late":
            read = read_missed if stream or isinstance(pipeline.node, m.RulesNode) else read_late
            return s.ExpectLate(read_rows(node, pipeline, read), node.place, stream)
        case _:
            return s.ExpectDead(read_rows(node, pipeline, read_dead), node.place, stream)
