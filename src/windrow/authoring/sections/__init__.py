"""The sections of a pipeline: their keys and kinds, with their syntax and their meaning.

They are declared here only: the reader of YAML, all printed forms, the lists in docs/reference/pipeline.md (`make
docs`) and the schema for editors (`windrow schema`) are derived from them. The functions of the fluent form have the
same names and defaults.
"""

from windrow.authoring.sections.alerts import ALERTS as ALERTS
from windrow.authoring.sections.connectors import (
    SINK as SINK,
    SOURCE as SOURCE,
)
from windrow.authoring.sections.forms import (
    DOCUMENT as DOCUMENT,
    mask_secrets as mask_secrets,
    section_of as section_of,
)
from windrow.authoring.sections.graph import (
    GRAPH as GRAPH,
    STORY_GRAPH as STORY_GRAPH,
    StoryGraph as StoryGraph,
)
from windrow.authoring.sections.pipeline import (
    PIPELINE as PIPELINE,
    PROCESS_PIPELINE as PROCESS_PIPELINE,
    STORY as STORY,
    StoryPipeline as StoryPipeline,
    state_words as state_words,
)
from windrow.authoring.sections.records import (
    DECODE as DECODE,
    DELAY as DELAY,
    DERIVE as DERIVE,
    KEY as KEY,
    TIME as TIME,
    KeyFields as KeyFields,
)
from windrow.authoring.sections.results import (
    AGGREGATE as AGGREGATE,
    EMIT as EMIT,
    LATE as LATE,
    TRIGGER as TRIGGER,
    WINDOW as WINDOW,
)
from windrow.authoring.sections.rules import (
    RULES_PIPELINE as RULES_PIPELINE,
    STORY_RULES as STORY_RULES,
    StoryRules as StoryRules,
    rules_python as rules_python,
)
from windrow.declare.formats import FORMAT as FORMAT
