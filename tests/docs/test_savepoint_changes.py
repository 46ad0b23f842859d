"""Changes of a pipeline resume from a savepoint, or are refused, as docs/guides/savepoints.md lists them."""

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
CHANGES = """
name | spend | other | no
source.log.path | data/a | moved/a | yes
source.log.path | data/a | data/b | yes
decode.shop | - | string? | yes
decode.shop | string? | - | yes
decode.amount | decimal(12,2) | decimal(14,2) | yes
decode.amount | decimal(12,2) | decimal(10,2) | no
decode.amount | decimal(12,2) | {type: "decimal(12,2)", alias: [amt]} | yes
decode.amount | {type: "decimal(12,2)", alias: [amt]} | decimal(12,2) | yes
decode.shop | {type: "string?", alias: [store]} | string? | no
decode.amount | decimal(12,2) | {type: "decimal(12,2)", path: cents} | no
derive.twice | - | amount * 2 | yes
derive.twice | amount * 2 | amount * 3 | no
time.delay | 1m | 5m | yes
time.future | 1h | 2h | yes
time.idle | - | 1m | yes
time.field | at | sent | no
key | user | [user, at] | no
window | {tumbling: 5m} | {tumbling: 10m} | no
aggregate.n | - | count() | yes
aggregate.n | count() | - | yes
aggregate.n | count() | max(amount) | no
emit.lateness | 1h | 2h | yes
emit.lateness | 1h | 10m | yes
emit.mode | retract | discard | no
emit.at_end | fire | hold | yes
process.ttl | - | 1h | no
process.ttl | 1h | 2h | no
process.order | log | event_time | no
process.returns.twice | - | long | no
key_groups | 4 | 8 | yes
alerts.lag | - | 1m | yes
sink.sqlite.table | spend | other | no
sink.sqlite.changelog | true | false | yes
sink.sqlite.changelog | false | true | no
sources.events.source.log.path | data/a | data/b | yes
sources.events.time.delay | 1m | 5m | yes
sources.events.time.idle | - | 1m | yes
sources.events.time.field | at | sent | no
sources.events.decode.shop | - | string? | yes
sources.events.decode.shop | - | string | no
sources.events.derive.twice | - | amount * 2 | no
sources.events.lateness | 1h | 2h | no
sources.more | - | a source | no
sources.other.source.log.path | data/c | moved/c | yes
sources.other.source.log.path | data/c | data/b | no
streams.once.deduplicate.within | 5m | 6m | no
streams.large.where | amount > 5 | amount > 6 | no
streams.latest.table.key | user | amount | no
streams.total.window | {tumbling: 5m} | {tumbling: 10m} | no
streams.total.aggregate.n | - | count() | no
streams.total.emit.lateness | 1h | 10m | no
streams.calls.process.ttl | 1h | 2h | no
streams.calls.process.order | event_time | log | no
streams.more | - | a stream with a window | no
sinks.to_large.from | large | once | no
sinks.to_total.sink.sqlite.table | total | other | no
sinks.to_total.sink.sqlite.changelog | false | true | no
sinks.to_large | a sink | - | yes
sinks.more | - | a sink | no
"""
"""A setting, its values before and after (`-`: absent), and whether a run with this change resumes from a savepoint."""
ROWS = [tuple(line.split(" | ")) for line in CHANGES.strip().splitlines()]

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
    """The document with a setting as a row has it."""
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
    if value == "-":
        within.pop(names[-1], None)
        return document
    made = copy.deepcopy(WORDS[value]) if value in WORDS else yaml.safe_load(value)
    if path == "sinks.more":
        made["sink"]["sqlite"]["table"] = "more"
    within[names[-1]] = made
    if path in FREED:
        sink = {"from": FREED[path], "sink": {"sqlite": {"path": "a.db", "table": "more"}}}
        document["sinks"]["to_more"] = sink
    return document


def read(path: str, value: str) -> Runnable:
    """The pipeline with a setting as a row has it."""
    stream, called, setting = path.rpartition("process.")
    if called:
        return calling(setting, value, in_graph=bool(stream))
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
def test_a_change_resumes_or_is_refused(row: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_there_are_changes_of_each_section_and_the_page_names_each() -> None:
    sections = {path.split(".")[0] for path, *_ in ROWS}
    assert sections >= {*yaml.safe_load(SHORT), *yaml.safe_load(GRAPH)} - {"key"}
    named = sections - {"sources", "streams", "sinks", "process"}
    assert {name for name in named if not re.search(rf"`{name}\b", PAGE)} == set()
