"""YAML text to nodes, which know their lines."""

from __future__ import annotations

import yaml

from windrow.api.yaml.spot import Spot
from windrow.errors import PipelineError, Place


def compose(text: str, file: str) -> Spot:
    """Read one YAML document; raise PipelineError, with the line, if it is none or is empty."""
    # libyaml's loader is quicker, but ends the process on deeply nested input; a pipeline is small
    try:
        node = yaml.compose(text.removeprefix("\ufeff"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as exc:
        raise PipelineError(_said(exc), Place(file, _line(exc))) from exc
    except yaml.reader.ReaderError as exc:
        msg = f"the file is not YAML: the character {chr(exc.character)!r} cannot stand in it"
        raise PipelineError(msg, Place(file, text.count("\n", 0, exc.position) + 1)) from exc
    except RecursionError as exc:
        msg = "the file is nested too deeply"
        raise PipelineError(msg, Place(file, 1)) from exc
    if node is None or Spot(node, file).is_null:
        msg = "the file is empty"
        raise PipelineError(msg, Place(file, 1))
    return Spot(node, file)


def _said(exc: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (exc.context, exc.problem) if part]
    return f"the file is not YAML: {', '.join(parts)}"


def _line(exc: yaml.MarkedYAMLError) -> int:
    # a quote that is never closed is a problem of the line that it opens in, not of the file's end
    is_open = exc.context is not None and exc.context.startswith("while scanning a quoted scalar")
    mark = (exc.context_mark if is_open else None) or exc.problem_mark or exc.context_mark
    return mark.line + 1 if mark else 1
