"""A pipeline as JSON."""

from __future__ import annotations

import json

from windrow.api.printing.to_dict import to_dict
from windrow.model import AnyPipeline


def to_json(pipeline: AnyPipeline) -> str:
    """Return the pipeline as indented JSON in the shape of its YAML; secrets are ***."""
    return json.dumps(to_dict(pipeline), indent=2, ensure_ascii=False) + "\n"
