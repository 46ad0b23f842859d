"""The steps of a story, in two passes: the records say the types that the expected rows are read by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from windrow.api.yaml.node import YamlNode, read_one_of
from windrow.model import EventTime, Pipeline
from windrow.testing.transcript.each import each
from windrow.testing.transcript.records import Written, read_mark_mapping, read_marks, read_records
from windrow.testing.transcript.rows import read_change, read_dead, read_late, read_rows
from windrow.testing.transcript.story import (
    AtEnd,
    End,
    Expect,
    ExpectDead,
    ExpectLate,
    MarkWatermark,
    Records,
    Step,
    TellTime,
)
from windrow.testing.transcript.times import parse_time

AT_END: tuple[AtEnd, ...] = ("fire", "hold")
FEEDS = ("records", "watermark")
KINDS = (*FEEDS, "tick", "expect", "late", "dead", "end")


@dataclass(frozen=True)
class Outlined:
    """A step by its one key; `spot` is what is under it."""

    kind: str
    spot: YamlNode


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
    spot: YamlNode


def read_outline(spot: YamlNode) -> Outline:
    """Read the kinds of the steps, and where the input ends."""
    steps = each(spot.items(), _outlined)
    ends = [number for number, step in enumerate(steps) if step.kind == "end"]
    if len(ends) != 1:
        msg = f"{spot.called} must have one `end: fire` or `end: hold`, and has {len(ends)}"
        raise spot.error(msg)
    for step in steps[ends[0] :]:
        if step.kind in {*FEEDS, "tick"}:
            msg = f"{step.spot.called}: nothing comes after the end of the input"
            raise step.spot.error(msg)
    return Outline(steps, steps[ends[0]].spot.choice(AT_END))


def _outlined(spot: YamlNode) -> Outlined:
    # a reader by kind that keeps the value for later
    return read_one_of(spot, "kind of step", {kind: partial(Outlined, kind) for kind in KINDS})


def read_feeds(outline: Outline, time: EventTime) -> dict[int, Fed]:
    """Read what the steps feed, by the number of the step."""
    feeding = [(number, step) for number, step in enumerate(outline.steps) if step.kind in FEEDS]
    records = dict(
        each(
            ((number, step) for number, step in feeding if step.kind == "records"),
            lambda pair: (pair[0], read_records(pair[1].spot, time)),
        )
    )
    partitions = {record.partition for written in records.values() for record in written}
    for _, step in feeding:
        if step.kind == "watermark" and step.spot.is_mapping:
            partitions.update(read_mark_mapping(step.spot))
    marks = dict(
        each(
            ((number, step) for number, step in feeding if step.kind == "watermark"),
            lambda pair: (pair[0], read_marks(pair[1].spot, time, sorted(partitions))),
        )
    )
    return {number: Fed(step.kind, {**records, **marks}[number], step.spot) for number, step in feeding}


def read_steps(outline: Outline, fed: dict[int, Fed], pipeline: Pipeline) -> tuple[Step, ...]:
    """Read all steps."""
    return each(
        enumerate(outline.steps),
        lambda pair: _fed(fed[pair[0]]) if pair[0] in fed else _check(pair[1], pipeline, outline.at_end),
    )


def _fed(fed: Fed) -> Step:
    records = tuple((record.partition, record.value) for record in fed.records)
    if fed.kind == "records":
        return Records(records, fed.spot.place)
    return MarkWatermark(records, fed.spot.place)


def _check(step: Outlined, pipeline: Pipeline, at_end: AtEnd) -> Step:
    spot = step.spot
    match step.kind:
        case "expect":
            return Expect(read_rows(spot, pipeline, read_change), spot.place)
        case "late":
            return ExpectLate(read_rows(spot, pipeline, read_late), spot.place)
        case "tick":
            return TellTime(spot.parsed(parse_time), spot.place)
        case "dead":
            return ExpectDead(read_rows(spot, pipeline, read_dead), spot.place)
        case _:
            return End(at_end, spot.place)
