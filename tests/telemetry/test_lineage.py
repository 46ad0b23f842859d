"""Lineage: the events that a server of OpenLineage receives of a run, and that no run fails or waits for them."""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_progress import REPORT
from tests.contracts.stores import Store
from tests.graphs import as_graph
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, events, spend
from tests.runtime.test_chain import chain
from tests.servers.hostile import HostileServer
from tests.servers.receiver import Receiver

from windrow.connectors.registry import sink_connector, source_connector
from windrow.errors import RunError
from windrow.model import (
    FileSource,
    FilesSource,
    KafkaSink,
    KafkaSource,
    LogSource,
    PostgresCdcSource,
    PostgresSink,
    Sink,
    Source,
    SqliteSink,
)
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.telemetry.exporting import LEAVE
from windrow.telemetry.lineage import is_lineage_enabled, lineage
from windrow.telemetry.reports import StepReport

KAFKA = as_graph(spend(KafkaSource("broker:9092,other:9092", "purchases"), PostgresSink("postgresql://db/s", "spend")))


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of this machine is found."""
    monkeypatch.setenv("HOME", str(tmp_path))


def received(receiver: Receiver) -> list[dict[str, Any]]:
    """The events, each with what the specification requires."""
    assert {post.path for post in receiver.posts} <= {"/api/v1/lineage"}
    found = [json.loads(post.body) for post in receiver.posts]
    for event in found:
        assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
        assert event["producer"].startswith("urn:windrow:")
        assert event["schemaURL"].startswith("https://openlineage.io/spec/")
        assert uuid.UUID(event["run"]["runId"])
        assert "sourceCodeLocation" not in event["job"]["facets"]
        for dataset in event["inputs"] + event["outputs"]:
            assert dataset["namespace"]
            assert dataset["name"]
            assert all(field["name"] and field["type"] for field in dataset["facets"]["schema"]["fields"])
    assert len({event["run"]["runId"] for event in found}) == 1
    return found


def columns(dataset: dict[str, Any]) -> dict[str, str]:
    return {field["name"]: field["type"] for field in dataset["facets"]["schema"]["fields"]}


def test_a_run_says_what_it_reads_and_writes(
    files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.append(events(300))
    steps: list[StepReport] = []
    with Receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
        options = RunSettings(runner.checkpoint, "memory", until_end=True, max_records=100, on_warning=pytest.fail)
        launch(as_graph(spend(files.source, store.settings())), options, steps.append, lambda _: None)
    start, last = received(receiver)
    assert (start["eventType"], last["eventType"]) == ("START", "COMPLETE")
    assert (last["job"]["namespace"], last["job"]["name"]) == ("shop", "user-spend")
    assert last["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert last["run"]["facets"]["processing_engine"]["name"] == "windrow"
    assert isinstance(files.source, LogSource)
    (source,) = last["inputs"]
    assert (source["namespace"], source["name"]) == ("file", files.source.path)
    assert columns(source) == {
        "user_id": "string",
        "event_time": "timestamp[us, tz=UTC]",
        "amount": "decimal128(12, 2)",
    }
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == sum(step.records for step in steps)
    tables = {dataset["name"]: dataset for dataset in last["outputs"]}
    assert list(tables) == ["spend", "spend_changes", "spend_late", "spend_dead", "spend_clocks"]
    for name, dataset in tables.items():
        assert dataset["namespace"] == f"sqlite://{store.settings().place}"
        (made,) = store.query(f"SELECT group_concat(name) FROM pragma_table_info('{name}')")
        assert made[0].split(",") == list(columns(dataset))
    origins = tables["spend_changes"]["facets"]["columnLineage"]["fields"]
    assert origins == tables["spend"]["facets"]["columnLineage"]["fields"]
    assert origins["total"]["inputFields"] == [
        {
            "namespace": "file",
            "name": files.source.path,
            "field": "amount",
            "transformations": [{"type": "DIRECT", "subtype": "AGGREGATION"}],
        }
    ]
    assert "columnLineage" not in tables["spend_late"]["facets"]
    written = {
        name: dataset["outputFacets"]["outputStatistics"]["rowCount"]
        for name, dataset in tables.items()
        if "outputStatistics" in dataset["outputFacets"]
    }
    assert written == {
        "spend": sum(step.inserts + step.revisions for step in steps),
        "spend_late": store.query("SELECT count(*) FROM spend_late")[0][0],
        "spend_dead": store.query("SELECT count(*) FROM spend_dead")[0][0],
    }


def test_all_sources_and_sinks_of_a_graph_are_there(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = chain(files, tmp_path)
    with Receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        with lineage(graph, is_bounded=False, on_warning=pytest.fail) as observer:
            observer.on_step(REPORT)
            observer.on_end(True)  # noqa: FBT003 - a callback
    start, last = received(receiver)
    assert last["eventType"] == "COMPLETE"
    assert start["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    names = {dataset["name"] for dataset in last["outputs"]}
    assert {"minutes", "hours", "large", "copies_dead", "hours_changes"} <= names
    assert "minutes_changes" not in names  # the sink is without
    assert all("outputStatistics" not in dataset["outputFacets"] for dataset in last["outputs"])


def test_a_run_that_goes_on_says_so_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        with lineage(KAFKA, is_bounded=True, on_warning=pytest.fail, every=0.01) as observer:
            observer.on_step(replace(REPORT, read={0: 4, 1: 3}))
            until = time.monotonic() + 20
            while len(receiver.posts) < 4 and time.monotonic() < until:
                observer.on_step(replace(REPORT, read={}))
            observer.on_end(True)  # noqa: FBT003 - a callback
    start, *running, last = received(receiver)
    assert start["eventType"] == "START"
    assert {event["eventType"] for event in running} == {"RUNNING"}
    assert last["eventType"] == "ABORT"  # a bounded run that was asked to stop
    assert last["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 7


@pytest.mark.parametrize(
    ("raised", "state"), [(RunError("the database is gone"), "FAIL"), (KeyboardInterrupt(), "ABORT")]
)
def test_how_a_run_ends_that_does_not_return(
    raised: BaseException, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        with pytest.raises(type(raised)), lineage(KAFKA, is_bounded=False, on_warning=pytest.fail):
            raise raised
    *_, last = received(receiver)
    assert last["eventType"] == state
    assert not [name for name in os.environ if name.startswith("OPENLINEAGE__")]
    facets = last["run"]["facets"]
    assert facets.get("errorMessage", {}).get("message") == ("the database is gone" if state == "FAIL" else None)


@pytest.mark.parametrize(
    ("variables", "file", "is_asked"),
    [
        ({}, None, False),
        ({"OPENLINEAGE_NAMESPACE": "shop"}, None, False),
        ({"OPENLINEAGE_URL": "http://o"}, None, True),
        ({"OPENLINEAGE_URL": "http://o", "OPENLINEAGE_DISABLED": "true"}, None, False),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "file"}, None, True),
        ({"OPENLINEAGE__TRANSPORT": '{"type": "noop"}'}, None, True),
        ({"OPENLINEAGE_CONFIG": "my.yml"}, None, True),
        ({}, "openlineage.yml", True),
        ({}, ".openlineage/openlineage.yml", True),
    ],
)
def test_the_standard_configuration_alone_switches_events_on(
    variables: dict[str, str],
    file: str | None,
    is_asked: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if file is not None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert is_lineage_enabled(variables) == is_asked


def test_events_go_where_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "openlineage.yml").write_text("transport: {type: file, log_file_path: events.jsonl, append: true}")
    with lineage(KAFKA, is_bounded=True, on_warning=pytest.fail) as observer:
        observer.on_end(False)  # noqa: FBT003 - a callback
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["eventType"] for line in lines] == ["START", "COMPLETE"]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OPENLINEAGE__TRANSPORT__TYPE": "pigeon"}, "the configuration of OpenLineage"),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, "Python's log"),
        ({"OPENLINEAGE_CONFIG": "none.yml"}, "Couldn't find any OpenLineage transport configuration"),
    ],
)
def test_a_transport_that_is_none_is_one_warning(
    variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    warnings: list[str] = []
    with lineage(KAFKA, is_bounded=True, on_warning=warnings.append) as observer:
        observer.on_step(REPORT)
    (warning,) = warnings
    assert said in warning


@pytest.mark.parametrize("manner", ["hangs", "drips", "refuses"])
def test_a_server_that_does_not_answer_is_one_warning_and_seconds(
    manner: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Receiver(hangs=True) as receiver, HostileServer("dripping") as slow:
        url = {"hangs": receiver.url, "drips": slow.url, "refuses": "http://127.0.0.1:1"}[manner]
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        warnings: list[str] = []
        since = time.monotonic()
        with lineage(KAFKA, is_bounded=True, on_warning=warnings.append) as observer:
            observer.on_step(REPORT)
        assert time.monotonic() - since < LEAVE + 2
    (warning,) = warnings
    assert warning.startswith("lineage events of this run may be lost: ")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("source", "dataset"),
    [
        (KafkaSource("a:9093,b:9093", "purchases"), ("kafka://a:9093", "purchases")),
        (KafkaSource("SASL_SSL://a", "purchases"), ("kafka://a:9092", "purchases")),
        (LogSource("/data/spend"), ("file", "/data/spend")),
        (FilesSource(("/data/spend/**/*.jsonl", "/other/*")), ("file", "/data/spend")),
        (FileSource("/data/rates.csv", ("currency",), "/data/rates"), ("file", "/data/rates.csv")),
        (
            PostgresCdcSource("postgresql://me:secret@db.example/shop", "orders", LogSource("/data/orders")),
            ("postgres://db.example:5432", "shop.public.orders"),
        ),
    ],
)
def test_sources_have_the_names_that_openlineage_gives_them(source: Source, dataset: tuple[str, str]) -> None:
    assert source_connector(source).dataset(source) == dataset


@pytest.mark.parametrize(
    ("sink", "dataset"),
    [
        (PostgresSink("postgresql://ann:secret@db/shop", "x"), ("postgres://db:5432", "shop.public.spend")),
        (
            PostgresSink("postgresql://ann@a:5433,b/shop?password=secret&options=-csearch_path%3Dsales", "x"),
            ("postgres://a:5433", "shop.sales.spend"),
        ),
        (PostgresSink("postgresql://ann:${PASS}@db/shop", "x"), ("postgres://db:5432", "shop.public.spend")),
        (PostgresSink("postgresql://db/shop", "x", schema="sales"), ("postgres://db:5432", "shop.sales.spend")),
        (SqliteSink("/data/shop.db", "x"), ("sqlite:///data/shop.db", "spend")),
        (KafkaSink("a:9092", "x"), ("kafka://a:9092", "spend")),
    ],
)
def test_tables_have_the_names_that_openlineage_gives_them(
    sink: Sink, dataset: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGOPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PASS", "secret")
    assert sink_connector(sink).dataset(sink, "spend") == dataset
