"""Story files: their steps, read in two passes, since the records say the types that the expected rows are read by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from windrow.api.pipeline_file import looks_like_a_pipeline, read_file
from windrow.api.sections import STORY
from windrow.api.yaml_node import YamlMapping, YamlNode, compose, read_one_of
from windrow.errors import PipelineError, TranscriptError
from windrow.model import EventTime, Pipeline
from windrow.testing.transcript.records import Written, read_mark_mapping, read_marks, read_records, story_pipeline
from windrow.testing.transcript.rows import read_change, read_dead, read_late, read_rows, read_table_row
from windrow.testing.transcript.story import (
    AtEnd,
    End,
    Expect,
    ExpectDead,
    ExpectLate,
    Final,
    MarkWatermark,
    RecordStep,
    Step,
    Story,
    TellTime,
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
    pipeline = fields.required("pipeline", lambda entry: (entry, STORY.read(YamlNode(entry.node, entry.file))))
    outline = fields.required("steps", read_outline)
    final = fields.required("final", lambda entry: entry)
    fields.check()

    node, sections = pipeline.value
    fed = read_feeds(outline.value, sections.time)
    records = [record for step in fed.values() for record in step.records]
    meant = story_pipeline(node, sections, records, outline.value.at_end)
    return Story(
        name=name.value,
        file=root.file,
        pipeline=meant,
        steps=read_steps(outline.value, fed, meant),
        final=Final(read_rows(final.value, meant, read_table_row), final.value.place),
    )


AT_END: tuple[AtEnd, ...] = ("fire", "hold")
FEEDS = ("records", "watermark")
KINDS = (*FEEDS, "tick", "expect", "late", "dead", "end")


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
        if step.kind in {*FEEDS, "tick"}:
            msg = f"{step.node.called}: nothing comes after the end of the input"
            raise step.node.error(msg)
    return Outline(steps, steps[ends[0]].node.choice(AT_END))


def _outlined(node: YamlNode) -> Outlined:
    # a reader by kind that keeps the value for later
    return read_one_of(node, "kind of step", {kind: partial(Outlined, kind) for kind in KINDS})


def read_feeds(outline: Outline, time: EventTime) -> dict[int, Fed]:
    """Read what the steps feed, by the number of the step."""
    feeding = [(number, step) for number, step in enumerate(outline.steps) if step.kind in FEEDS]
    records = dict(
        each(
            ((number, step) for number, step in feeding if step.kind == "records"),
            lambda pair: (pair[0], read_records(pair[1].node, time)),
        )
    )
    partitions = {record.partition for written in records.values() for record in written}
    for _, step in feeding:
        if step.kind == "watermark" and step.node.is_mapping:
            partitions.update(read_mark_mapping(step.node))
    marks = dict(
        each(
            ((number, step) for number, step in feeding if step.kind == "watermark"),
            lambda pair: (pair[0], read_marks(pair[1].node, time, sorted(partitions))),
        )
    )
    return {number: Fed(step.kind, {**records, **marks}[number], step.node) for number, step in feeding}


def read_steps(outline: Outline, fed: dict[int, Fed], pipeline: Pipeline) -> tuple[Step, ...]:
    """Read all steps."""
    return each(
        enumerate(outline.steps),
        lambda pair: _fed(fed[pair[0]]) if pair[0] in fed else _check(pair[1], pipeline, outline.at_end),
    )


def _fed(fed: Fed) -> Step:
    records = tuple((record.partition, record.value) for record in fed.records)
    if fed.kind == "records":
        return RecordStep(records, fed.node.place)
    return MarkWatermark(records, fed.node.place)


def _check(step: Outlined, pipeline: Pipeline, at_end: AtEnd) -> Step:
    node = step.node
    match step.kind:
        case "expect":
            return Expect(read_rows(node, pipeline, read_change), node.place)
        case "late":
            return ExpectLate(read_rows(node, pipeline, read_late), node.place)
        case "tick":
            return TellTime(node.parsed(parse_story_time), node.place)
        case "dead":
            return ExpectDead(read_rows(node, pipeline, read_dead), node.place)
        case _:
            return End(at_end, node.place)
