"""Load a pipeline from the argument of a command: a YAML or SQL file, ``file.py`` or ``file.py:variable``."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

from windrow import model as m
from windrow.authoring.checks import require_valid
from windrow.authoring.pipeline_file import (
    Document,
    is_sql,
    only_one,
    read_document,
    read_documents,
    read_file,
    read_roots,
)
from windrow.authoring.variables import NOTHING_GIVEN, Given, secret_variables
from windrow.errors import PipelineError, Place, described, each_error, is_interrupt, join_errors


@dataclass(frozen=True)
class OpenedPipeline:
    """A pipeline, and the document from which it was read (None for Python); `file` is the argument of the command."""

    file: str
    pipeline: m.Graph
    document: Document | None

    def in_mode(self, mode: m.RunMode) -> OpenedPipeline:
        """Return the pipeline with another run mode."""
        return replace(self, pipeline=replace(self.pipeline, mode=mode))

    @property
    def is_yaml(self) -> bool:
        """Whether the file is YAML with a single pipeline, so that its values can be edited by key."""
        return self.document is not None and self.document.is_alone and not is_sql(self.file)

    def runnable(self) -> m.Graph:
        """Return the graph; raise PipelineError if it has errors."""
        return require_valid(self.pipeline, self.document.place if self.document else None)


def open_pipeline(spec: str, given: Given = NOTHING_GIVEN) -> OpenedPipeline:
    """Read the only pipeline of a file without validating it.

    Raise PipelineError if it cannot be read, or if there are several and `given` does not choose one.
    """
    opened = open_pipelines(spec, given)
    if documents := [pipeline.document for pipeline in opened if pipeline.document is not None]:
        only_one(documents)
    return opened[0]


def open_pipelines(spec: str, given: Given = NOTHING_GIVEN) -> list[OpenedPipeline]:
    """Read all pipelines of a file, or only the one that `given` selects, without validating them.

    Raise PipelineError if they cannot be read.
    """
    python = split_spec(spec)
    if python:
        pipeline = load_python(*python)
        if given.variables:
            msg = f"--var applies only to pipelines in YAML and SQL: {spec} is Python, which can read os.environ"
            raise PipelineError(msg)
        if given.only not in {None, pipeline.name}:
            msg = f"{spec} is the pipeline {pipeline.name!r}, not {given.only!r}"
            raise PipelineError(msg)
        return [OpenedPipeline(spec, pipeline, None)]
    documents = read_documents(read_file(spec), spec, given)
    return [OpenedPipeline(spec, document.pipeline, document) for document in documents]


def variables_of_secrets(spec: str) -> set[str]:
    """Return the variables used in settings that may hold secrets; raise PipelineError if the file cannot be read."""
    return set() if split_spec(spec) else secret_variables(read_roots(read_file(spec), spec))


def parse_sql(text: str) -> m.Graph:
    """Read and validate a pipeline in SQL; raise PipelineError, with line and column, if it is invalid."""
    document = read_document(text, "<string>.sql")
    return require_valid(document.pipeline, document.place)


DEFAULT_VARIABLE = "pipeline"
_PYTHON_FILE = re.compile(r"(?P<file>.*\.py)(?::(?P<variable>\w+))?", re.DOTALL)


def split_spec(spec: str) -> tuple[str, str] | None:
    """Split ``file.py:variable`` into the file and the variable, by default `pipeline`; return None for other files."""
    match = _PYTHON_FILE.fullmatch(spec)
    return (match["file"], match["variable"] or DEFAULT_VARIABLE) if match else None


def load_python(file: str, variable: str = DEFAULT_VARIABLE) -> m.Graph:
    """Run a Python file (not as ``__main__``) and return the pipeline in `variable`.

    Raise PipelineError if the file fails, or if the variable is missing or not a pipeline.
    """
    read_file(file)
    folder = str(Path(file).resolve().parent)
    sys.path.insert(0, folder)
    try:
        names = runpy.run_path(file, run_name="windrow_pipeline")
    except PipelineError as exc:
        place = _last_line(exc, file)
        raise join_errors([PipelineError(error.message, place) for error in each_error(exc)]) from exc
    except SyntaxError as exc:
        msg = f"is not valid Python: {exc.msg}"
        raise PipelineError(msg, Place(exc.filename or file, exc.lineno or 1)) from exc
    except BaseException as exc:
        if is_interrupt(exc):
            raise
        # the file is user code: any exception is reported with its line
        msg = f"the file raised {described(exc)}"
        raise PipelineError(msg, _last_line(exc, file)) from exc
    finally:
        sys.path.remove(folder)
    # the graph of each `windrow.Pipeline`, a class that this room cannot import
    graphs = {
        name: graph
        for name, value in names.items()
        if isinstance(graph := inspect.getattr_static(value, "graph", None), m.Graph)
    }
    if variable in graphs:
        return graphs[variable]
    hint = (
        f"it has {', '.join(graphs)}: give {file}:{next(iter(graphs))}" if graphs else "end the stages with .to(sink)"
    )
    msg = f"{file!r} has no pipeline called {variable!r}; {hint}"
    if variable in names:
        msg = f"{variable!r} in {file!r} is {_kind_of(names[variable])}, not a pipeline; {hint}"
    raise PipelineError(msg)


def _kind_of(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


def _last_line(exc: BaseException, file: str) -> Place:
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == file]
    return Place(file, (lines[-1] if lines else None) or 1)
