"""The JSON Schema of pipeline files: what windrow reads is valid by it, and most of what has a wrong form is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from hypothesis import given
from jsonschema import Draft7Validator
from tests.authoring.values import VALID
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.authoring.pipeline_file import looks_like_a_pipeline, looks_like_a_story
from windrow.authoring.printing import to_dict
from windrow.authoring.sections import DOCUMENT, STORY, STORY_GRAPH, STORY_RULES, StoryGraph, StoryPipeline, StoryRules
from windrow.cli import main
from windrow.cli.schema import schema_of
from windrow.declare.spec import Shapes
from windrow.declare.yaml_node import YamlNode

ROOT = Path(__file__).parents[2]
BAD = ROOT / "tests" / "authoring" / "bad"
PIPELINE = Draft7Validator(schema_of(DOCUMENT))
STORY_SHAPES: Shapes[StoryGraph | StoryRules | StoryPipeline] = Shapes(
    (
        (("sources", "streams"), StoryGraph, STORY_GRAPH),
        (("rules",), StoryRules, STORY_RULES),
        ((), StoryPipeline, STORY),
    )
)
STORY_PIPELINE = Draft7Validator(schema_of(STORY_SHAPES))
BEYOND = {
    # what an expression, a type or a day says
    *("aggregate_calls", "decimal_scale", "decimal_too_wide", "window_origin_is_no_day"),
    # what keys mean together
    *("followed_into_both", "followed_into_nothing"),
    *("meaning", "window_origin_not_in_every_month", "window_origin_of_a_duration", "window_zone_of_a_duration"),
    # what an editor says without a schema, and a character that no text may have
    *("duplicate_aggregate", "duplicate_key", "name_is_a_zero_byte"),
}
"""The wrong files that are valid by the schema."""


class CoreLoader(yaml.CSafeLoader):
    """Reads YAML as an editor does, by the core schema of YAML 1.2: `off` and `2026-04-15` are texts."""


CoreLoader.yaml_implicit_resolvers = {}

for tag, pattern in {
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
    "null": r"~|null|Null|NULL|",
}.items():
    CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^({pattern})$"), None)


def read(text: str) -> tuple[YamlNode, Any]:
    """A file's root, and its document as JSON has it: the names of a mapping are texts."""
    loader = CoreLoader(text)
    root = loader.get_single_node() or yaml.ScalarNode("tag:yaml.org,2002:null", "")
    return YamlNode(root, ""), json.loads(json.dumps(loader.construct_document(root)))


def documents() -> Iterator[tuple[str, Draft7Validator, Any]]:
    folders = (ROOT / name for name in ("docs", "examples", "tests/transcripts"))
    for path in sorted(path for folder in folders for path in folder.rglob("*.yaml")):
        root, document = read(path.read_text(encoding="utf-8"))
        if looks_like_a_story(root):
            yield str(path.relative_to(ROOT)), STORY_PIPELINE, document["pipeline"]
        elif looks_like_a_pipeline(root):
            yield str(path.relative_to(ROOT)), PIPELINE, document


def problems(validator: Draft7Validator, document: Any) -> list[str]:  # noqa: ANN401 - any YAML
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


def test_the_schema_is_one() -> None:
    printed = CliRunner().invoke(main, ["schema"])
    assert printed.exit_code == 0
    schema = json.loads(printed.output)
    Draft7Validator.check_schema(schema)
    assert schema == PIPELINE.schema


def test_every_pipeline_and_story_is_valid() -> None:
    found = list(documents())
    assert len(found) > 150
    wrong = {name: told for name, validator, document in found if (told := problems(validator, document))}
    assert wrong == {}


@examples(8)
@given(VALID)
def test_what_is_printed_is_valid(pipeline: Pipeline) -> None:
    assert problems(PIPELINE, json.loads(json.dumps(to_dict(as_graph(pipeline))))) == []


def test_wrong_forms_are_not_valid() -> None:
    valid: set[str] = set()
    refused: set[str] = set()
    for path in BAD.glob("*.yaml"):
        try:
            _, document = read(path.read_text(encoding="utf-8"))
        except (ValueError, yaml.YAMLError):
            continue  # not UTF-8, not YAML, or no tree
        (refused if problems(PIPELINE, document) else valid).add(path.stem)
    assert valid == BEYOND
    assert len(refused) > 40


def test_keys_say_what_they_mean_and_what_they_can_be() -> None:
    definitions = PIPELINE.schema["definitions"]
    emit, log = definitions["emit"]["properties"], definitions["source"]["properties"]["log"]
    assert emit["mode"]["anyOf"] == [
        {"enum": ["retract", "accumulate", "discard"]},
        {"$ref": "#/definitions/variable"},
    ]
    assert emit["lateness"]["default"] == "0s"
    assert emit["lateness"]["description"].endswith("Later records are expired and go to the late output.")
    assert log["required"] == ["path"]
    assert log["description"].startswith("an embedded log on disk")


def test_a_variable_stands_for_any_value() -> None:
    definitions = {"definitions": PIPELINE.schema["definitions"]}
    for key, wrong in {"duration": "soon", "emit": {"mode": "any"}, "window": {"tumbling": 5}}.items():
        validator = Draft7Validator(definitions | {"$ref": f"#/definitions/{key}"})
        assert not validator.is_valid(wrong)
    assert Draft7Validator(definitions | {"$ref": "#/definitions/duration"}).is_valid("${DELAY:-10m}")
    assert Draft7Validator(definitions | {"$ref": "#/definitions/emit"}).is_valid({"mode": "${MODE}"})


def test_what_is_proposed_for_an_empty_file_has_the_keys_of_each_kind() -> None:
    schema = PIPELINE.schema
    proposed = {*schema["properties"], *schema["else"]["else"]["properties"]}
    assert proposed >= {"name", "source", "window", "sources", "streams", "sinks", "rules"}
