"""`windrow explain`: print a pipeline."""

from __future__ import annotations

import json

import click

from windrow.authoring.printing import to_json, to_mermaid, to_python_file, to_text, to_yaml
from windrow.connectors.open_sinks import create_statements
from windrow.errors import InputError
from windrow.terminal.common import OK, json_option
from windrow.terminal.pipelines import open_pipelines, pipeline_argument

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
@click.option(
    "--ddl", is_flag=True, help="Print the SQL that creates tables in PostgreSQL, and the schemas of topics, instead."
)
@json_option
def command(pipeline: str, format_: str, *, ddl: bool, as_json: bool) -> int:
    """Print a pipeline as text, YAML, JSON, Python or a Mermaid chart.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. Passwords are printed as ***. By
    default, all pipelines of a file are printed.

    With --ddl, print the statements that a run would execute to create the tables of its sinks, and those that grant
    its role what it needs, for an administrator to execute. The schemas that it would register for topics are comments
    of SQL. Neither the database nor the registry is connected to.
    """
    if ddl:
        if as_json:
            msg = "--ddl prints SQL: leave out --json"
            raise InputError(msg)
        lines = [line for opened in open_pipelines(pipeline) for line in create_statements(opened.runnable())]
        click.echo("\n".join(lines))
        return OK
    form = "json" if as_json else format_
    texts = [_FORMATS[form](opened.runnable()) for opened in open_pipelines(pipeline)]
    if form == "json" and len(texts) > 1:
        texts = [json.dumps([json.loads(text) for text in texts], indent=2, ensure_ascii=False) + "\n"]
    elif len(texts) > 1 and form in {"python", "mermaid"}:
        msg = f"{pipeline} has {len(texts)} pipelines, but {form} prints only a single one: choose one with --only"
        raise InputError(msg)
    click.echo(("---\n" if form == "yaml" else "\n").join(texts), nl=False)
    return OK
