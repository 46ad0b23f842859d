"""`windrow schema`: print the JSON Schema of a pipeline file, for completion and validation in editors.

The schema is generated from the specs with which sections of a file are read. `windrow check` also applies the rules
that a schema cannot express.
"""

from __future__ import annotations

import json
from typing import Any

import click

from windrow.authoring import sections
from windrow.declare.spec import DURATION, NAMES, TEXT, Schema, Spec
from windrow.terminal.common import OK, json_option

_SHARED: dict[str, Spec[Any]] = {
    "text": TEXT,
    "names": NAMES,
    "duration": DURATION,
    "source": sections.SOURCE,
    "format": sections.FORMAT,
    "decode": sections.DECODE,
    "time": sections.TIME,
    "key": sections.KEY,
    "window": sections.WINDOW,
    "emit": sections.EMIT,
    "trigger": sections.TRIGGER,
    "sink": sections.SINK,
    "alerts": sections.ALERTS,
}
"""The parts of the schema that are used in several places, by the names of their definitions."""


def schema_of(document: Spec[Any]) -> Schema:
    """Return the JSON Schema (draft 7) of the YAML documents that a spec reads."""
    shared = {name: spec.schema() for name, spec in _SHARED.items()}
    names = {json.dumps(schema): name for name, schema in shared.items()}

    def with_references(part: Any, own: str = "") -> Any:  # noqa: ANN401 - any part of a schema
        if isinstance(part, list):
            return [with_references(item) for item in part]
        if not isinstance(part, dict):
            return part
        notes = {name: part[name] for name in ("description", "default") if name in part}
        name = names.get(json.dumps({key: value for key, value in part.items() if key not in notes}), own)
        if name != own:
            return {"$ref": f"#/definitions/{name}"} | notes
        return {key: with_references(value) for key, value in part.items()}

    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A pipeline of windrow",
        "type": "object",
        **with_references(document.schema()),
        "definitions": {
            "variable": {"type": "string", "pattern": r"\$\{[A-Za-z_]", "description": "the value of a variable"},
            **{name: with_references(schema, name) for name, schema in shared.items()},
        },
    }


def schema_text() -> str:
    """Return the JSON Schema of a pipeline file as text."""
    return f"{json.dumps(schema_of(sections.DOCUMENT), indent=2, ensure_ascii=False)}\n"


@click.command("schema")
@json_option
def command(*, as_json: bool) -> int:
    """Print the JSON Schema of a pipeline file, for editors.

    With the schema, an editor completes and explains keys, and marks invalid values. Save the output as a file, and
    refer to that file in the first line of a pipeline: `# yaml-language-server: $schema=pipeline.schema.json`.
    """
    del as_json  # the output is always JSON
    click.echo(schema_text(), nl=False)
    return OK
