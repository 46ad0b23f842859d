"""A story's file to a story; whatever is unknown or malformed is an error with its file and line."""

from __future__ import annotations

from pathlib import Path

from windrow.api.yaml import compose, read_file, read_sections
from windrow.api.yaml.node import YamlMapping, YamlNode
from windrow.errors import PipelineError, TranscriptError
from windrow.testing.transcript.pipeline import story_pipeline
from windrow.testing.transcript.rows import read_rows, read_table_row
from windrow.testing.transcript.steps import read_feeds, read_outline, read_steps
from windrow.testing.transcript.story import Final, Story

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
    fields = YamlMapping(YamlNode(root.node, root.file, "story"), KEYS)
    name = fields.required("name", YamlNode.text)
    pipeline = fields.required("pipeline", lambda entry: (entry, read_sections(entry.node, entry.file)))
    outline = fields.required("steps", read_outline)
    final = fields.required("final", lambda entry: entry)
    fields.check()

    spot, sections = pipeline.value
    fed = read_feeds(outline.value, sections.time)
    records = [record for step in fed.values() for record in step.records]
    meant = story_pipeline(spot, sections, records, outline.value.at_end)
    return Story(
        name=name.value,
        file=root.file,
        pipeline=meant,
        steps=read_steps(outline.value, fed, meant),
        final=Final(read_rows(final.value, meant, read_table_row), final.value.place),
    )
