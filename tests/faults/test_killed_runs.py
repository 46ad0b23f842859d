"""A run that is killed at any time, again and again, leaves in each sink what one that was not leaves, each once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from tests.faults.conftest import Injected
from tests.faults.windrow_process import WindrowProcess
from tests.graphs import as_graph
from tests.runtime.spend import Files, events, spend

from windrow.authoring.printing import to_yaml
from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.parquet.connector import ParquetSink
from windrow.model import KafkaSink, KafkaSource, Sink
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.testing.servers.kafka import Kafka

KILLS = 6
STEP = 150

Row = dict[str, Any]


def kafka_changes(sink: KafkaSink) -> list[Row]:
    """The changes that a reader of committed records sees, by partition, in order."""
    source = KafkaTopic(KafkaSource(sink.servers, sink.topic))
    return [json.loads(one) for batch in source.read_all() for one in batch.column("value").to_pylist()]


def delta_changes(sink: DeltaSink) -> list[Row]:
    found = DeltaTable(Path(sink.path) / f"{sink.table}_changes").to_pyarrow_table()
    rows: list[Row] = found.sort_by([("epoch", "ascending"), ("seq", "ascending")]).to_pylist()
    return rows


def parquet_changes(sink: ParquetSink) -> list[Row]:
    found: Any = duckdb.execute(f"FROM read_parquet('{sink.path}/{sink.table}/*/changes.parquet') ORDER BY epoch, seq")
    rows: list[Row] = found.to_arrow_table().to_pylist()
    return rows


READERS: dict[type[Sink], Callable[[Any], list[Row]]] = {
    KafkaSink: kafka_changes, DeltaSink: delta_changes, ParquetSink: parquet_changes,
}  # fmt: skip


def results(sink: Sink) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The rows that the changes of a sink make; each revision of a row is there once, behind the one before it."""
    rows: dict[tuple[Any, ...], tuple[int, tuple[Any, ...]]] = {}
    for change in READERS[type(sink)](sink):
        if change["op"] == "update_before":
            continue
        key = change["window_start"], change["user_id"]
        before = rows[key][0] if key in rows else -1
        assert change["revision"] == before + 1, change
        rows[key] = change["revision"], tuple(change[name] for name in ("total", "events", "least", "most", "mean"))
    return {key: values for key, (_, values) in rows.items()}


@pytest.mark.long
@pytest.mark.service
@pytest.mark.parametrize("kind", ["kafka", "delta", "parquet"])
def test_a_run_that_is_killed_again_and_again(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, chance: Random, injected: Injected
) -> None:
    if kind == "kafka":
        broker: Kafka = request.getfixturevalue("kafka")
        sink: Sink = KafkaSink(broker.servers, f"spend-{tmp_path.name}")
        whole: Sink = KafkaSink(broker.servers, f"whole-{tmp_path.name}")
    else:
        model = DeltaSink if kind == "delta" else ParquetSink
        sink, whole = model(str(tmp_path / "lake"), "spend"), model(str(tmp_path / "whole"), "spend")
    log = Files(tmp_path / "log", 3)
    log.append(events(30 * STEP))
    pipeline = replace(spend(log.source, sink), name=f"spend-{tmp_path.name}")
    (tmp_path / "pipeline.yaml").write_text(to_yaml(as_graph(pipeline)), encoding="utf-8")
    command = ["run", "pipeline.yaml", "--checkpoint", "checkpoint", "--max-records", STEP, "--until-end"]
    steps = tmp_path / "checkpoint" / "spark" / "offsets"
    for _ in range(KILLS):
        with WindrowProcess([*map(str, command)], tmp_path) as process:
            known = len(list(steps.glob("[0-9]*")))
            process.wait_until(lambda known=known: len(list(steps.glob("[0-9]*"))) > known)  # type: ignore[misc]
            process.linger(chance.uniform(0, 2))
            assert not process.ended, process.errors
        injected("run killed")
    with WindrowProcess([*map(str, command)], tmp_path) as process:
        assert process.wait() == 0, process.errors
    options = RunSettings(tmp_path / "memory", "memory", until_end=True)
    launch(
        as_graph(replace(pipeline, name=f"whole-{tmp_path.name}", sink=whole)), options, lambda _: None, lambda _: None
    )
    found = results(sink)
    assert len(found) > 500
    assert found == results(whole)
