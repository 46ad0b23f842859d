"""The reference of the pipeline file has every key that the reader knows, and no other; its defaults are the reader's.

The keys of connectors and of formats are on their own pages.
"""

from __future__ import annotations

import copy
import re
import runpy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.pages import ROOT
from tests.graphs import as_graph, graph_of
from tests.short_forms import Pipeline, RulesPipeline

import windrow
from windrow.authoring.aggregate_text import NAMES, parse_aggregate
from windrow.authoring.checks import validate
from windrow.authoring.pipeline_file import read_document
from windrow.cli.schema import schema_text
from windrow.connectors.registry import OWN, SINKS, SOURCES
from windrow.declare.yaml_node import YamlMapping, YamlNode
from windrow.errors import PipelineError
from windrow.model import ALERT_NAMES, Formula, parse_type

TEXT = (ROOT / "docs" / "reference" / "pipeline.md").read_text(encoding="utf-8")
FORMATS = ROOT / "docs" / "guides" / "formats.md"
TRIGGERS = ROOT / "docs" / "concepts" / "triggers.md"
CONNECTORS = sorted((ROOT / "docs" / "connectors").glob("*.md"))
KEYS = re.compile(r"^<!-- keys of [\w.]+ -->\n(.*?)^<!-- end of keys -->\n", re.MULTILINE | re.DOTALL)
RULES, STREAMS = (TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in ("Rules", "Several streams"))
LEAST = {
    "name": "a",
    "source": {"log": {"path": "a"}},
    "decode": {"k": "string", "t": "timestamp", "w": "timestamp"},
    "time": {"field": "t", "delay": "1m"},
    "key": ["k"],
    "window": {"tumbling": {"size": "1 day"}},
    "aggregate": {"n": "count()"},
    "sink": {"sqlite": {"path": "a", "table": "a"}},
}
OTHERS: list[dict[str, Any]] = [
    {},
    {"source": {"kafka": {"servers": "a:1", "topic": "a"}}},
    *(
        {"source": {"kafka": {"servers": "a:1", "topic": "a", "format": one}}}
        for one in (
            {"avro": {"schema": "{}"}},
            {"avro": {"registry": {"url": "http://a:1"}}},
            {"protobuf": {"descriptor": "base64:", "message": "a"}},
            {"protobuf": {"registry": {"url": "http://a:1"}}},
            {"json_schema": {"registry": {"url": "http://a:1"}}},
            {"csv": {"columns": ["k", "t", "w"]}},
        )
    ),
    {"source": {"files": {"path": "a/*.jsonl"}}},
    {"source": {"files": {"path": "a/*.csv", "format": {"csv": {"columns": ["k", "t", "w"]}}}}},
    {"source": {"file": {"path": "a.csv", "key": "k", "log": "a"}}},
    {"source": {"postgres_cdc": {"url": "postgresql://a/a", "table": "a", "log": "a"}}},
    {"source": {"postgres_cdc": {"url": "postgresql://a/a", "table": "a", "servers": "a:1", "topic": "a"}}},
    {"sink": {"postgres": {"url": "postgresql://a/a", "table": "a"}}},
    {"sink": {"duckdb": {"path": "a", "table": "a"}}},
    {"sink": {"delta": {"path": "a", "table": "a"}}},
    {"sink": {"parquet": {"path": "a", "table": "a"}}},
    {"sink": {"jsonl": {"path": "a", "table": "a"}}},
    {"mode": "realtime", "sink": {"kafka": {"servers": "a:1", "topic": "a"}}},
    *(
        {"sink": {"kafka": {"servers": "a:1", "topic": "a", "encoding": {kind: {"registry": {"url": "http://a:1"}}}}}}
        for kind in ("avro", "protobuf", "json_schema")
    ),
    {"time": {"field": "t", "punctuated": "w"}},
    {"time": {"field": "t", "delay": {"by_partition": {"default": "1m"}}}},
    {"time": {"field": "t", "delay": {"adaptive": {"target": 1, "min": "1m", "max": "1m"}}}},
    {"window": {"hopping": {"size": "5m", "slide": "1m"}}},
    {"window": {"cumulate": {"size": "5m", "step": "1m"}}},
    {"window": {"session": "5m"}},
    {"window": {"session": {"gap": "1", "max": "5m"}}},
    {"window": {"global": {}}},
    {"emit": {"late": "each"}},
    {"emit": {"late": {"count": 1}}},
    {"emit": {"early": {"every": "1s"}}},
    {"emit": {"early": {"event_time": "1s"}}},
    {"emit": {"early": {"count": 1}}},
    {"emit": {"early": {"any_of": [{"count": 1}, {"count": 1}]}}},
    {"emit": {"early": {"all_of": [{"count": 1}, {"count": 1}]}}},
    {"alerts": {name: {} for name in ALERT_NAMES} | {"latency": {"p99": "1s"}}},
    {"emit": {"early": {"repeat": {"trigger": {"count": 1}, "times": 1}}}},
]


@dataclass(frozen=True)
class Item:
    """A key on the page: what it takes, and its default if it has one."""

    path: str
    takes: str

    @property
    def default(self) -> str | None:
        found = re.search(r"default `([^`]*)`", self.takes)
        return found[1] if found else None


def items(text: str, names: str) -> list[Item]:
    """Return the keys in a text; `names` are the characters in their paths."""
    return [Item(*found) for found in re.findall(rf"^- `([{names}]+)` \((.*?)\):", text, re.MULTILINE | re.DOTALL)]


def listed_keys(page: Path) -> list[Item]:
    """Return the keys in the lists of the page of a connector or of the formats."""
    return items("".join(KEYS.findall(page.read_text(encoding="utf-8"))), "a-z0-9_.")


_WITH_REGISTRY = ("avro", "protobuf", "json_schema")


def of_formats() -> Iterator[Item]:
    """Yield the keys of the formats as those of the sources that have them."""
    for item in listed_keys(FORMATS):
        is_shared = item.path.startswith("registry")
        paths = [item.path] if not is_shared else [f"format.{name}.{item.path}" for name in _WITH_REGISTRY]
        for path in paths:
            yield Item(f"source.kafka.{path}", item.takes)
            if path.startswith("format.csv"):
                yield Item(f"source.files.{path}", item.takes)
            if re.match(r"format\.(avro|protobuf|json_schema)(\.registry|$)", path):
                yield Item(f"sink.kafka.{path.replace('format', 'encoding', 1)}", item.takes)


OF_RULES = items(RULES, "a-zA-Z_.")
OF_CONNECTORS = [item for page in CONNECTORS for item in listed_keys(page)]
ITEMS = [*items(TEXT.replace(RULES, "").replace(STREAMS, ""), "a-z0-9_.-"), *OF_CONNECTORS, *of_formats()]


def known_keys(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Read documents of every kind, and note which keys the reader takes where."""
    known: set[str] = set()
    given: set[str] = set()
    begin = YamlMapping.__init__

    def spy(self: YamlMapping, node: YamlNode, keys: Sequence[str] | None = None) -> None:
        begin(self, node, keys)
        prefix = f"{node.name}." if node.name else ""
        known.update(f"{prefix}{key}" for key in keys or ())
        given.update(f"{prefix}{key}" for key, _ in self)

    monkeypatch.setattr(YamlMapping, "__init__", spy)
    for other in OTHERS:
        read(LEAST | other)
    # what a trigger is made of is a trigger
    known = {key for key in known if not re.search(r"early\.(.*\.[0-9]|repeat\.trigger\.)", key)}
    kinds = {key for key in known if re.fullmatch(r"(source|window|sink|emit\.early|time\.delay)\.[a-z_]+", key)}
    assert kinds <= given, "the documents above do not have every kind"
    return known


def read(document: dict[str, Any]) -> Pipeline:
    return graph_of(read_document(yaml.safe_dump(document), "least.yaml").pipeline, Pipeline)


def test_the_keys_of_rules_are_on_the_page() -> None:
    document = LEAST | {
        "unique": {"by": "k"},
        "recent": {"last": 1, "within": "1h"},
        "lists": {"a": {"file": "a", "key": "a"}, "b": {"kafka": {"topic": "b", "key": "b"}}},
        "rules": [{"name": "a", "when": "true", "severity": "low", "say": "a", "with": {"b": "1"}}],
        "emit": {"lateness": "1m", "revise": "true"},
    }
    del document["window"], document["aggregate"]
    graph_of(read_document(yaml.safe_dump(document), "least.yaml").pipeline, RulesPipeline)
    paths = {
        path.replace("NAME.kafka", "b.kafka").replace("NAME", "a").replace(".N", ".0")
        for path in (item.path for item in OF_RULES)
    }
    for path in paths:
        *way, last = path.split(".")
        at: Any = document
        for name in way:
            at = at[int(name)] if name.isdecimal() else at[name]
        assert last in at, path
    assert len(paths) == 21


def with_key(path: str, value: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """A document that can have a key, without it and with it."""
    section = path.split(".")
    for other in OTHERS:
        without = copy.deepcopy(LEAST | other)
        with_it = copy.deepcopy(without)
        at: Any = with_it
        for name in section[:-1]:
            at = at.setdefault(name, {}) if name == "emit" else at.get(name)
            if not isinstance(at, dict):
                break
        else:
            at[section[-1]] = value
            return without, with_it
    raise LookupError(path)


def test_the_keys_are_what_the_sections_say() -> None:
    docs = runpy.run_path(str(ROOT / "scripts" / "docs.py"))
    assert docs["with_keys"](TEXT) == TEXT, "run `make docs`"
    pages = {page: page.read_text(encoding="utf-8") for page in (*CONNECTORS, FORMATS)}
    assert docs["with_connector_keys"](pages) == pages, "run `make docs`"


def test_every_connector_has_a_page_that_the_readme_and_the_pipeline_link() -> None:
    readme = ROOT / "docs" / "connectors" / "README.md"
    pages = {page for page in CONNECTORS if page != readme}
    kinds = {
        match: page.name
        for page in pages
        for match in re.findall(
            r"^<!-- keys of ((?:source|sink)\.\w+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert set(kinds) == {
        f"{role}.{kind}" for role, found in (("source", SOURCES), ("sink", SINKS)) for kind in OWN if kind in found
    }
    for kind, page in kinds.items():
        assert re.search(rf"^- `{kind}` .*?\(\.\./connectors/{page}[)#]", TEXT, re.MULTILINE), f"link {page} in {kind}"
    listed = re.findall(r"^\| \[[^]]*\]\(([\w.]+)\)", readme.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in pages)


def test_the_schema_beside_the_page_is_what_the_sections_say() -> None:
    beside = ROOT / "docs" / "reference" / "pipeline.schema.json"
    assert beside.read_text(encoding="utf-8") == schema_text(), "run `make docs`"


def test_every_key_is_on_the_page_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    known = known_keys(monkeypatch)
    assert {item.path for item in ITEMS} == known
    assert set(re.findall(r"^## ([a-z_]+)$", TEXT, re.MULTILINE)) == {key for key in known if "." not in key}


@pytest.mark.parametrize("item", [item for item in ITEMS if item.default], ids=lambda item: item.path)
def test_a_default_is_what_leaving_the_key_out_means(item: Item) -> None:
    without, with_it = with_key(item.path, yaml.safe_load(item.default) if item.default == "[]" else str(item.default))
    without.pop(item.path, None)
    assert read(without) == read(with_it)


@pytest.mark.parametrize("item", [item for item in ITEMS if "required" in item.takes], ids=lambda item: item.path)
def test_a_required_key_cannot_be_left_out(item: Item) -> None:
    _, document = with_key(item.path, "x")
    at: Any = document
    *way, last = item.path.split(".")
    for name in way:
        at = at[name]
    del at[last]
    with pytest.raises(PipelineError, match=r"lacks|give one"):
        read(document)


def test_every_type_is_on_the_page() -> None:
    with pytest.raises(PipelineError) as caught:
        parse_type("no type")
    listed = caught.value.message.partition("expected one of ")[2].split(", ")
    types = [name if "(" not in name else "decimal(p,s)" for name in listed]
    assert re.findall(r"^\| `([a-z_]+(?:\(p,s\))?)` \|", TEXT, re.MULTILINE) == sorted(
        types, key=["string", "boolean", "long", "double", "decimal(p,s)", *types].index
    )


def test_every_function_is_on_the_page() -> None:
    rows = re.findall(r"^\| (`[a-z_]+\(.*?\)`) \|", TEXT, re.MULTILINE) + re.findall(
        r"^\| (`[a-z_]+\(.*?\)`(?:, `[a-z_]+\(.*?\)`)+) \|", TEXT, re.MULTILINE
    )
    calls = re.findall(r"`([a-z_]+\([^`]*\))`", " ".join(rows))
    assert {call.partition("(")[0] for call in calls} == set(NAMES) | {"decimal"}
    for call in calls:
        if not call.startswith("decimal"):
            assert not isinstance(parse_aggregate(call).function, Formula), call


def test_every_trigger_is_on_the_page_of_triggers() -> None:
    kinds = set(re.findall(r"^\| `\{([a-z_]+): ", TRIGGERS.read_text(encoding="utf-8"), re.MULTILINE))
    assert kinds == {item.path.split(".")[2] for item in ITEMS if item.path.startswith("emit.early.")}


def test_names_of_python_exist() -> None:
    for name in re.findall(r"`wr\.([a-z_A-Z]+)", TEXT):
        assert name in windrow.__all__, name


def test_what_the_page_shows_of_expressions_means_something() -> None:
    buys, mean, domain = "sum(price * quantity) where kind = 'buy'", "total / events", "split_part(url, '/', 3)"
    for text in (buys, mean, f'[user, {{domain: "{domain}"}}]'):
        assert f"`{text}`" in TEXT
    texts = dict.fromkeys(("user", "kind", "url"), "string")
    document = LEAST | {
        "decode": texts | {"t": "timestamp", "price": "long", "quantity": "long"},
        "key": ["user", {"domain": domain}],
        "aggregate": {"buys": buys, "total": "sum(price)", "events": "count()", "mean": mean},
    }
    assert not [finding for finding in validate(as_graph(read(document))) if finding.level == "error"]
