"""What the commands share: exit codes, options, and how things are printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

OK = 0
DIFFERENT = 1
"""It ran, and found a difference or a failure."""
WRONG = 2
"""The input is wrong, and nothing ran."""

F = TypeVar("F", bound=Callable[..., Any])


def pipeline_argument(function: F) -> F:
    """Add the argument PIPELINE, which the function takes as `pipeline`; read it with `open_pipeline(...)`."""
    return click.argument("pipeline", metavar="PIPELINE")(function)


def default_checkpoint(name: str) -> Path:
    """Return where a pipeline's run keeps its checkpoint if nothing else is said."""
    return Path(".windrow") / name


def json_option(function: F) -> F:
    """Add ``--json``, which the function takes as `as_json`; errors are then JSON too, on stderr."""
    help_ = "Print one JSON object (errors as one on stderr)."
    return click.option("--json", "as_json", is_flag=True, help=help_)(function)


def print_json(value: object) -> None:
    """Print a value as indented JSON on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
