"""The changes of a pipeline in the table of docs/guides/savepoints.md: each resumes from a savepoint, or is refused."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.pages import ROOT
from tests.graphs import Runnable, as_graph

import windrow as wr
from windrow.authoring.pipeline_file import read_document
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.sink import Follows, Run
from windrow.engine.changelog import empty_by_sink
from windrow.engine.state.store import MemoryState
from windrow.errors import CheckpointError, InputError, SinkError
from windrow.runtime.compatibility import upgraded
from windrow.runtime.savepoint import Savepoint, fingerprint

PAGE = (ROOT / "docs" / "guides" / "savepoints.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z_.]+)` \| (.+?) \| (.+?) \| (yes|no) \|$", PAGE, re.MULTILINE)

RECORDS = """
source: {log: {path: data/a}}
decode: {user: string, at: timestamp, sent: timestamp, amount: "decimal(12,2)"}
derive: {half: amount / 2}
time: {field: at, delay: 1m, future: 1h}
"""
SHORT = f"""
name: spend
{RECORDS}
key: user
window: {{tumbling: 5m}}
aggregate: {{total: sum(amount)}}
emit: {{lateness: 1h, mode: retract}}
key_groups: 4
sink: {{sqlite: {{path: a.db, table: spend}}}}
"""
GRAPH = f"""
name: shop
sources:
  events: {{{", ".join(RECORDS.strip().splitlines())}, lateness: 1h}}
streams:
  once: {{from: events, deduplicate: {{by: [user, at], within: 5m}}}}
  large: {{from: once, where: amount > 5}}
  latest: {{from: events, table: {{key: user}}}}
  total: {{from: large, key: user, window: {{tumbling: 5m}}, aggregate: {{total: sum(amount)}}, emit: {{lateness: 1h}}}}
sinks:
  to_large: {{from: large, sink: {{sqlite: {{path: a.db, table: large}}}}}}
  to_latest: {{from: latest, sink: {{sqlite: {{path: a.db, table: latest}}}}}}
  to_total: {{from: total, sink: {{sqlite: {{path: a.db, table: total}}}}}}
"""
WORDS: dict[str, Any] = {
    "a source": {
        "source": {"log": {"path": "data/more"}},
        "decode": {"user": "string", "at": "timestamp"},
        "time": {"field": "at", "delay": "1m"},
    },
    "a stream with a window": {
        "from": "once",
        "key": "user",
        "window": {"tumbling": "1h"},
        "aggregate": {"n": "count()"},
        "emit": {"lateness": "1h"},
    },
    "a sink": {"from": "large", "sink": {"sqlite": {"path": "a.db", "table": "large"}}},
}
FREED = {"sources.more": "more", "streams.more": "more"}
"""What needs a sink to be no error."""


def changed(path: str, value: str) -> dict[str, Any]:
    """The document with a setting as a row of the table has it."""
    names = path.split(".")
    document: dict[str, Any] = yaml.safe_load(GRAPH if names[0] in {"sources", "streams", "sinks"} else SHORT)
    within = document
    for name in names[:-1]:
        within = within.setdefault(name, {})
    if path.startswith("sources.other."):
        document["sources"]["other"] |= {
            "decode": {"user": "string", "at": "timestamp"},
            "time": {"field": "at", "delay": "1m"},
        }
        document["streams"]["others"] = {"from": "other", "where": "user = 'A'"}
        document["sinks"]["to_others"] = {"from": "others", "sink": {"sqlite": {"path": "a.db", "table": "others"}}}
    if value == "`-`":
        within.pop(names[-1], None)
        return document
    made = copy.deepcopy(WORDS[value]) if value in WORDS else yaml.safe_load(value.strip("`"))
    if path == "sinks.more":
        made["sink"]["sqlite"]["table"] = "more"
    within[names[-1]] = made
    if path in FREED:
        sink = {"from": FREED[path], "sink": {"sqlite": {"path": "a.db", "table": "more"}}}
        document["sinks"]["to_more"] = sink
    return document


def read(path: str, value: str) -> Runnable:
    """The pipeline with a setting as a row of the table has it."""
    stream, called, setting = path.rpartition("process.")
    if called:
        return calling(setting, value.strip("`"), in_graph=bool(stream))
    return read_document(yaml.safe_dump(changed(path, value), sort_keys=False), "file.yaml").pipeline


def calling(setting: str, value: str, *, in_graph: bool) -> Runnable:
    """A pipeline that calls a function, with a setting of that."""
    options: dict[str, Any] = {"state": {"last": wr.value_state("long")}, "returns": {"calls": "long"}}
    name, _, column = setting.partition(".")
    if value != "-":
        options[name] = options[name] | {column: value} if column else value
    records = wr.log("data/a").decode(user="string", at="timestamp").event_time("at", delay="1m")
    calls = records.key_by("user").process(print, **options)
    if not in_graph:
        return calls.to(wr.sqlite("a.db", table="calls"), key_groups=4).graph
    graph = wr.graph("shop", key_groups=4)
    source = graph.source("events", records)
    graph.sink(
        "to_calls",
        graph.stream("calls", source.key_by("user").process(print, **options)),
        wr.sqlite("a.db", table="calls"),
    )
    return graph.build().graph


@pytest.mark.parametrize("row", ROWS, ids=[f"{path}: {after}" for path, _, after, _ in ROWS])
def test_a_change_resumes_as_the_table_says(
    row: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before, after, resumes = row
    monkeypatch.chdir(tmp_path)
    there, here = read(path, before), read(path, after)
    assert there != here
    run = Run(there.name, "run-1")
    groups = there.key_groups
    Savepoint(run, 0, {0: 5}, (0,), groups, fingerprint(as_graph(there))).write(
        tmp_path / "savepoint", ((group, MemoryState()) for group in range(groups))
    )
    sinks = open_sinks(as_graph(there))
    sinks.open(run)
    sinks.commit(0, empty_by_sink(as_graph(there)))
    sinks.close()

    def resume() -> None:
        upgraded(tmp_path / "savepoint", as_graph(here))
        opened = open_sinks(as_graph(here))
        opened.preflight(Run(here.name, "run-2"), Follows(run, 0))

    if resumes == "yes":
        if path.startswith(("aggregate.", "sources.events.decode.")):
            # the columns are the user's to add and to drop
            with pytest.raises(SinkError, match="ALTER TABLE"):
                resume()
            return
        resume()
    else:
        with pytest.raises((CheckpointError, SinkError, InputError)) as refused:
            resume()
        assert "process." not in path or f"\n  {path}: " in str(refused.value)


def test_the_table_has_rows_for_each_section() -> None:
    sections = {path.split(".")[0] for path, *_ in ROWS}
    assert sections >= {*yaml.safe_load(SHORT), *yaml.safe_load(GRAPH)} - {"key"}
    assert len(ROWS) > 45
