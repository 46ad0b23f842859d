"""The YAML form of a pipeline."""

from windrow.api.yaml.document import Document, load_pipeline, parse_pipeline, read_document, read_file
from windrow.api.yaml.node import compose
from windrow.api.yaml.sections import Sections, read_sections

__all__ = [
    "Document",
    "Sections",
    "compose",
    "load_pipeline",
    "parse_pipeline",
    "read_document",
    "read_file",
    "read_sections",
]
