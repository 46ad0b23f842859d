"""`windrow explain`: prints a pipeline."""

from __future__ import annotations

import click

from windrow.api.load import open_pipeline
from windrow.api.printing import to_json, to_mermaid, to_python_file, to_text, to_yaml
from windrow.cli.common import OK, json_option, pipeline_argument

_FORMATS = {"text": to_text, "yaml": to_yaml, "json": to_json, "mermaid": to_mermaid, "python": to_python_file}


@click.command("explain")
@pipeline_argument
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(_FORMATS)),
    default="text",
    show_default=True,
    help="Output format.",
)
@json_option
def command(pipeline: str, format_: str, *, as_json: bool) -> int:
    """Print a pipeline as text, YAML, JSON, Python or a Mermaid chart.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. Passwords are printed as ***.
    """
    valid = open_pipeline(pipeline).runnable()
    click.echo(_FORMATS["json" if as_json else format_](valid), nl=False)
    return OK
