"""The sections of a pipeline: which keys and kinds each has, how they are written, and what they mean.

This is the only list of them. The YAML form is read by it, all printed forms are written by it, and so are the lists of
docs/reference/pipeline.md (`make docs`) and the schema for editors (`windrow schema`). The functions of the fluent form
have the same names and defaults.
"""

from windrow.authoring.sections.alerts import ALERTS
from windrow.authoring.sections.connectors import SINK, SOURCE
from windrow.authoring.sections.forms import DOCUMENT, mask_secrets, section_of
from windrow.authoring.sections.graph import GRAPH, STORY_GRAPH, StoryGraph
from windrow.authoring.sections.pipeline import PIPELINE, PROCESS_PIPELINE, STORY, StoryPipeline, state_words
from windrow.authoring.sections.records import DECODE, DELAY, DERIVE, KEY, TIME, KeyFields
from windrow.authoring.sections.results import AGGREGATE, EMIT, LATE, TRIGGER, WINDOW
from windrow.authoring.sections.rules import (
    RULES_PIPELINE,
    STORY_RULES,
    StoryRules,
    rules_python,
)
from windrow.declare.formats import FORMAT

__all__ = [
    "AGGREGATE",
    "ALERTS",
    "DECODE",
    "DELAY",
    "DERIVE",
    "DOCUMENT",
    "EMIT",
    "FORMAT",
    "GRAPH",
    "KEY",
    "LATE",
    "PIPELINE",
    "PROCESS_PIPELINE",
    "RULES_PIPELINE",
    "SINK",
    "SOURCE",
    "STORY",
    "STORY_GRAPH",
    "STORY_RULES",
    "TIME",
    "TRIGGER",
    "WINDOW",
    "KeyFields",
    "StoryGraph",
    "StoryPipeline",
    "StoryRules",
    "mask_secrets",
    "rules_python",
    "section_of",
    "state_words",
]
