"""A pipeline as the fluent Python source that makes it."""

from __future__ import annotations

from windrow.api.python_code import refuse_code
from windrow.api.sections import (
    AGGREGATE,
    DECODE,
    DERIVE,
    EMIT,
    KEY,
    SINK,
    SOURCE,
    TIME,
    WINDOW,
    KeyFields,
    mask_secrets,
)
from windrow.api.sections.pipeline import KEY_GROUPS, NAME, SALT
from windrow.api.spec import arguments
from windrow.errors import PipelineError
from windrow.model import AnyPipeline, Graph, Runnable


def to_python(pipeline: AnyPipeline) -> str:
    """Return a Python expression (``wr`` is windrow) that makes the pipeline; secrets are ***.

    Raise PipelineError if there is Python code in it: of that, only the name is known.
    """
    shown = refuse_code(mask_secrets(pipeline), "a print-out")
    steps = [
        SOURCE.python(shown.source),
        DECODE.python(shown.decode),
        DERIVE.python(shown.derive) if shown.derive else "",
        TIME.python(shown.time),
        KEY.python(KeyFields(shown.key)),
        f".window({WINDOW.python(shown.window)})",
        AGGREGATE.python(shown.aggregates),
        EMIT.python(shown.emit),
        f".to({SINK.python(shown.sink)}, {arguments((NAME, KEY_GROUPS, SALT), vars(shown))})",
    ]
    return "(\n" + "".join(f"    {step}\n" for step in steps if step) + ")\n"


def to_python_file(pipeline: Runnable) -> str:
    """Return a Python file with the pipeline in it, as `pipeline`; secrets are ***. Raise PipelineError for a graph."""
    if isinstance(pipeline, Graph):
        msg = "a graph of named streams has no Python form; print it as YAML"
        raise PipelineError(msg)
    return f"import windrow as wr\n\npipeline = {to_python(pipeline)}"
