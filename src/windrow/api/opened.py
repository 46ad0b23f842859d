"""A pipeline by the name that a command is given: a YAML file, ``file.py`` or ``file.py:variable``."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.api.checks import Finding
from windrow.api.checks.validate import require_valid, validate
from windrow.api.python_file import load_python, split_spec
from windrow.api.yaml import Document, read_document, read_file
from windrow.errors import Place
from windrow.model import AnyPipeline


@dataclass(frozen=True)
class Opened:
    """A pipeline, and what was found in it, with places; `file` is how it was named."""

    file: str
    pipeline: AnyPipeline
    document: Document | None

    def place(self, finding: Finding) -> Place | None:
        """Return the line of a finding; None for a pipeline that is written in Python."""
        return self.document.place(finding.where) if self.document else None

    def findings(self) -> list[tuple[Place | None, Finding]]:
        """Return what the rules find, in the order of the file."""
        found = [(self.place(finding), finding) for finding in validate(self.pipeline)]
        return sorted(found, key=lambda pair: pair[0].line if pair[0] else 0)

    def valid(self) -> AnyPipeline:
        """Return the pipeline; raise PipelineError if it has errors."""
        return require_valid(self.pipeline, self.document.place if self.document else None)


def open_pipeline(spec: str) -> Opened:
    """Read a pipeline without validating it; raise PipelineError if it cannot be read."""
    python = split_spec(spec)
    if python:
        return Opened(spec, load_python(*python), None)
    document = read_document(read_file(spec), spec)
    return Opened(spec, document.pipeline, document)
