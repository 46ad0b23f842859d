"""The pipeline of a story: what the story says of it, and the fields of its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windrow.api.checks import require_valid
from windrow.api.yaml import Document, Sections
from windrow.api.yaml.node import YamlNode
from windrow.model import LogSource, Pipeline, SqliteSink
from windrow.testing.transcript.fields import infer_fields
from windrow.testing.transcript.records import Written
from windrow.testing.transcript.story import AtEnd

KEY_GROUPS = 2
"""Few, as a story has few keys and each group costs something in each step."""


def story_pipeline(spot: YamlNode, sections: Sections, records: Sequence[Written], at_end: AtEnd) -> Pipeline:
    """Return the pipeline; raise PipelineError if it means nothing. Its source and sink are names only."""
    pipeline = Pipeline(
        name="story",
        source=LogSource("story"),
        decode=infer_fields(records, sections.time, spot.place),
        time=sections.time,
        key=sections.key,
        window=sections.window,
        aggregates=sections.aggregates,
        emit=replace(sections.emit, at_end=at_end),
        sink=SqliteSink("story.db", "story"),
        key_groups=KEY_GROUPS,
        derive=sections.derive,
        salt=sections.salt,
    )
    return require_valid(pipeline, Document(pipeline, spot.file, spot.node).place)
