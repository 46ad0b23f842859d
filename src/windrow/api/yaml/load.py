"""From a YAML file, or its text, to a pipeline that can run."""

from __future__ import annotations

from pathlib import Path

from windrow.api.checks.validate import require_valid
from windrow.api.yaml.document import read_document, read_file
from windrow.model import Pipeline


def load_pipeline(path: str | Path) -> Pipeline:
    """Read and validate a pipeline file.

    Paths in it are relative to the current directory. Raise PipelineError, with file:line, for all that is wrong.
    """
    return parse_pipeline(read_file(path), str(path))


def parse_pipeline(text: str, file: str = "<string>") -> Pipeline:
    """Read and validate the text of a pipeline file; raise PipelineError, with file:line, for all that is wrong."""
    document = read_document(text, file)
    return require_valid(document.pipeline, document.place)
