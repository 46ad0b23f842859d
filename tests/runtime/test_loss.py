"""Records that are gone before they were read: the run stops and says which, or goes on and has it in the journal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.contracts.stores import Store
from tests.graphs import as_graph
from tests.runtime.answers import assert_epochs, micros
from tests.runtime.runs import Runner, Scene, read
from tests.runtime.spend import Files, Topic, Value, event, spend
from tests.short_forms import Pipeline

from windrow.connectors.log.retention import apply, plan_trim
from windrow.connectors.log.source import LogFolder
from windrow.connectors.open_sources import open_source
from windrow.engine import schema
from windrow.engine.changelog import StepOutput
from windrow.engine.watermarks.journal import WatermarkBounds
from windrow.errors import CheckpointError, SourceError
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.reports import Fault
from windrow.testing.servers.kafka import Kafka

pytestmark = pytest.mark.usefixtures("spark")

SECONDS = 30.0
FIRST = [(partition, event(minute, f"u{partition}")) for minute in range(40) for partition in range(3)]


def following(hour: int) -> list[Value]:
    """Records a while after the first: most on time, some late, some expired by what was read before."""
    return [
        (partition, event(60 * hour + minute - ago, f"u{partition}"))
        for minute, ago in enumerate([0, 0, 20, 0, 70, 0, 0, 200, 0, 0])
        for partition in range(3)
    ]


def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.servers})


def make_anew(kafka: Kafka, topic: str, partitions: int = 3) -> None:
    """Delete a topic and make another of that name."""
    client = admin(kafka)
    client.delete_topics([topic])[topic].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return kafka.create_topic(topic, partitions)
        except KafkaException:  # it is being deleted yet
            assert time.monotonic() < deadline, f"waited for the broker to delete {topic}"


def journal(store: Store, pipeline: Pipeline) -> list[dict[str, Any]]:
    rows = store.read(store.tables(pipeline).clocks)
    return sorted(rows, key=lambda row: (row["epoch"], row["partition"], row["offset"]))


def lost(store: Store, pipeline: Pipeline) -> list[tuple[int, int, str]]:
    """(partition, offset, what) of the journal's rows of losses."""
    rows = [row for row in journal(store, pipeline) if row["reason"].startswith("lost: ")]
    return [(row["partition"], row["offset"], row["reason"].removeprefix("lost: ")) for row in rows]


def assert_verdicts_repeat(store: Store, pipeline: Pipeline, since: dict[int, int]) -> None:
    """What is there and the journal say the same of records since the losses: which are late."""
    kept = pa.Table.from_pylist(
        [{name: row[name] for name in schema.CLOCKS.names} for row in journal(store, pipeline)], schema=schema.CLOCKS
    )
    host = MemoryHost(as_graph(pipeline), since, WatermarkBounds.of(kept))
    raw = pa.Table.from_batches(open_source(pipeline.source).read_all(), schema=schema.RAW)
    output = StepOutput.concat(one.rows for group in (host.step(raw), host.end()) for one in group)
    again = {(row["partition"], row["offset"], micros(row["window_start"])) for row in output.late.to_pylist()}
    told = store.read(store.tables(pipeline).late)
    known = {(row["partition"], row["offset"], micros(row["window_start"])) for row in told}
    assert known
    for partition, offset in since.items():
        of_partition = {row for row in known if row[0] == partition and row[1] >= offset}
        assert of_partition == {row for row in again if row[0] == partition and row[1] >= offset}


def test_a_topic_that_forgets_records_before_they_are_read(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner
) -> None:
    log = Topic(kafka, topic(3))
    log.append(FIRST)
    pipeline = spend(log.source, store.settings(), at_end="hold")
    runner.bounded(pipeline)
    log.append(following(1))
    kafka.delete_before(log.name, 1, 43)
    with pytest.raises(
        SourceError, match=rf"{log.name} lost records: partition 1: offsets 40 to 42 are gone; the"
    ) as caught:
        runner.bounded(pipeline)
    assert "file" not in str(caught.value), "a topic is none"
    assert lost(store, pipeline) == []
    told: list[Fault] = []
    runner.bounded(pipeline, on_data_loss="continue", on_trouble=told.append)
    assert [line for line in told if "continues without them: partition 1: offsets 40 to 42 are gone" in line] == told
    assert [fault.reason for fault in told] == ["lost"]
    assert lost(store, pipeline) == [(1, 43, "offsets 40 to 42 are gone")]
    assert runner.reports[-1].offsets == {0: 50, 1: 50, 2: 50}
    assert sum(report.records for report in runner.reports) == 27
    assert_verdicts_repeat(store, pipeline, {1: 43})
    runner.bounded(pipeline)  # it is told once
    assert len(lost(store, pipeline)) == 1
    assert_epochs(store)


def test_a_topic_that_is_made_anew_between_two_runs(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner
) -> None:
    """Its offsets alone would not tell: it has more records than were read."""
    log = Topic(kafka, topic(3))
    log.append(FIRST)
    pipeline = spend(log.source, store.settings(), at_end="hold")
    runner.bounded(pipeline)
    make_anew(kafka, log.name)
    more = [*following(1), *((0, event(70 + minute / 10, "u0")) for minute in range(50))]
    log.append(more)
    with pytest.raises(SourceError, match=r"partition 0: the topic was made anew, read up to offset 40 before"):
        runner.bounded(pipeline)
    runner.bounded(pipeline, on_data_loss="continue")
    anew = "the topic was made anew, read up to offset 40 before"
    assert lost(store, pipeline) == [(partition, 0, anew) for partition in range(3)]
    assert sum(report.records for report in runner.reports) == len(more)
    assert_verdicts_repeat(store, pipeline, dict.fromkeys(range(3), 0))
    log.append(following(2))
    runner.bounded(pipeline)
    assert sum(report.records for report in runner.reports) == len(following(2))
    assert_epochs(store)


@pytest.mark.long
def test_a_topic_that_is_made_anew_while_it_is_read(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner
) -> None:
    log = Topic(kafka, topic(3))
    log.append(FIRST)
    pipeline = spend(log.source, store.settings(), at_end="hold")
    more = [(0, event(60 + minute, "u0")) for minute in range(100)]

    def scene() -> Scene:
        yield read(len(FIRST))
        make_anew(kafka, log.name)
        log.append(more)
        yield lambda report: report.offsets[0] == len(more)

    runner.live(pipeline, scene(), on_data_loss="continue")
    assert [row[:2] for row in lost(store, pipeline)] == [(0, 0), (1, 0), (2, 0)]
    assert sum(report.records for report in runner.reports) == len(FIRST) + len(more)
    assert_epochs(store)


def test_a_file_that_is_replaced_while_it_is_read(files: Files, store: Store, runner: Runner, tmp_path: Path) -> None:
    files.append(FIRST)
    pipeline = spend(files.source, store.settings(), at_end="hold")
    told: list[str] = []

    def scene() -> Scene:
        yield read(len(FIRST))
        (tmp_path / "spend" / "partition-1.jsonl").write_bytes(b"".join(event(m, "u1") + b"\n" for m in (90, 91)))
        yield lambda report: report.offsets[1] == 2

    runner.live(pipeline, scene(), on_data_loss="continue", on_trouble=told.append)
    [(partition, offset, what)] = lost(store, pipeline)
    assert (partition, offset) == (1, 0)
    assert "partition-1.jsonl is another file now, read up to offset 40" in what
    assert any("continues without them" in line for line in told)
    assert sum(report.records for report in runner.reports) == len(FIRST) + 2
    assert_epochs(store)


def test_the_last_step_is_in_the_tables_and_cannot_be_read_again(
    files: Files, store: Store, runner: Runner, tmp_path: Path
) -> None:
    """To go on would leave the tables with records that the state does not have."""
    files.append(FIRST[:60])
    pipeline = spend(files.source, store.settings(), at_end="hold")
    runner.bounded(pipeline)
    files.append(FIRST[60:])
    runner.bounded(pipeline)
    spark = runner.checkpoint / "spark"
    for name in ("commits/1", "commits/.1.crc"):  # as if the run had been killed before Spark noted it
        (spark / name).unlink()
    (tmp_path / "spend" / "partition-1.jsonl").write_bytes(b"{}\n")
    with pytest.raises(CheckpointError, match=r"Epoch 1 is in the tables, but the checkpoint .* does not have it"):
        runner.bounded(pipeline, on_data_loss="continue")


def test_an_embedded_log_that_is_trimmed_before_it_is_read(
    files: Files, store: Store, runner: Runner, tmp_path: Path
) -> None:
    """As the topic above: the same offsets, the same error, the same row in the journal."""
    files.append(FIRST)
    pipeline = spend(files.source, store.settings(), at_end="hold")
    runner.bounded(pipeline)
    files.append(following(1))
    log = LogFolder(tmp_path / "spend")
    [change] = plan_trim(log, offsets={1: 43})
    apply(log, change)
    with pytest.raises(SourceError, match=r"lost records: partition 1: offsets 40 to 42 are gone; the"):
        runner.bounded(pipeline)
    runner.bounded(pipeline, on_data_loss="continue")
    assert lost(store, pipeline) == [(1, 43, "offsets 40 to 42 are gone")]
    assert sum(report.records for report in runner.reports) == 27
    assert_verdicts_repeat(store, pipeline, {1: 43})
    assert_epochs(store)
