"""`windrow capacity`: figures with their laws, by a stated load, a log or a history; and what it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.client.test_progress import REPORT
from tests.runtime.spend import Files, events

from windrow.cli import main
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.history import HistoryWriter, RunRecord

PIPELINE = """\
name: user-spend
source: {log: {path: spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount)}
emit: {lateness: 1h, late: each}
sink: {sqlite: {path: spend.db, table: spend}}
"""
GRAPH = """\
name: paid
sources:
  orders:
    source: {log: {path: orders}}
    decode: {id: string, user: string, t: timestamp}
    time: {field: t, delay: 1m}
    lateness: 5m
  payments:
    source: {log: {path: payments}}
    decode: {id: string, t: timestamp, paid: long}
    time: {field: t, delay: 1m}
    lateness: 5m
streams:
  large: {from: payments, where: paid > 100}
  paid: {from: orders, join: {with: large, by: id, after: 15m}}
sinks:
  to_paid: {from: paid, sink: {sqlite: {path: paid.db, table: paid}}}
"""
PRICES = """\
currency: EUR
core_hour: 0.04
memory_gb_hour: 0.005
storage_gb_month: 0.1
network_gb: 0
"""
STATED = ("--rate", "20000/s", "--keys", "1m", "--record-bytes", "120", "--disorder", "p99=30s,max=1h")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with pipelines in it."""
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(PIPELINE)
    Path("graph.yaml").write_text(GRAPH)
    Path("prices.yaml").write_text(PRICES)
    return tmp_path


def capacity(*options: str, pipeline: str = "pipeline.yaml") -> Result:
    return CliRunner().invoke(main, ["capacity", pipeline, *options])


def plan(*options: str, pipeline: str = "pipeline.yaml") -> dict[str, Any]:
    result = capacity(*options, "--json", pipeline=pipeline)
    assert result.exit_code == 0, result.output
    made: dict[str, Any] = json.loads(result.stdout)
    return made


def figures(*options: str, pipeline: str = "pipeline.yaml") -> dict[str, float]:
    return {one["name"]: one["value"] for one in plan(*options, pipeline=pipeline)["figures"]}


def test_each_figure_has_its_law_and_inputs() -> None:
    found = {one["name"]: one for one in plan(*STATED)["figures"]}
    cores = found["cores"]
    assert cores["law"] == "headroom x processor time / busy, rounded up"
    inputs = cores["inputs"]
    assert cores["value"] >= inputs["headroom"] * inputs["processor time"] / inputs["busy"]
    parts = found["processor time"]["inputs"]
    each = sum(value for name, value in parts.items() if name not in {"step", "every"})
    assert found["processor time"]["value"] == pytest.approx(each + parts["step"] / parts["every"])
    state = found["state"]["inputs"]
    rows = state["rows"] * state["bytes of a row"] + state["blobs"] * state["bytes of a blob"]
    assert found["state"]["value"] == pytest.approx(rows)
    log = found["log storage"]
    assert log["value"] == 20_000 * 120 * 7 * 86_400 * 3
    assert {one["within"] for one in found.values()} == {None, 0.25, 2.0}


def test_text_has_a_line_for_a_figure_and_one_for_its_inputs() -> None:
    result = capacity(*STATED)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[:2] == [
        "user-spend: capacity",
        "load: 20,000 records/s of 120 bytes, 1,000,000 keys, 99 % at most 30 s behind; a step every 1s, headroom 1.5",
    ]
    (at,) = (number for number, line in enumerate(lines) if line.startswith("  log storage "))
    assert " ".join(lines[at].split()) == "log storage 4.4 TB ±25% bytes a second x retention x copies"
    assert lines[at + 1].strip() == "bytes a second 2,400,000, retention 604,800, copies 3"


def test_more_load_or_headroom_or_lateness_takes_more() -> None:
    base = figures(*STATED)
    assert figures(*STATED, "--headroom", "3")["cores"] > base["cores"]
    assert figures(*STATED, "--rate", "2m/s")["cores"] > base["cores"]
    assert figures(*STATED, "--every", "10s")["processor time"] < base["processor time"]
    Path("later.yaml").write_text(PIPELINE.replace("lateness: 1h", "lateness: 1d"))
    assert figures(*STATED, pipeline="later.yaml")["state rows"] > 10 * base["state rows"]
    hot = figures(*STATED, "--hot-key", "30%")
    assert hot["hottest key"] > 1_000 * base["hottest key"]
    assert base["expired"] == 0


def test_prices_add_the_cost_a_month() -> None:
    found = figures(*STATED, "--prices", "prices.yaml")
    assert found["cost of cores"] == pytest.approx(found["cores"] * 0.04 * 730)
    assert found["cost of network"] == 0
    parts = ("cores", "memory", "storage", "network")
    assert found["cost"] == pytest.approx(sum(found[f"cost of {name}"] for name in parts))
    assert "EUR a month" in capacity(*STATED, "--prices", "prices.yaml").output


def test_a_price_that_is_missing_or_unknown_is_said_with_its_place() -> None:
    Path("prices.yaml").write_text("currency: EUR\ncore_hour: 0.04\n")
    result = capacity(*STATED, "--prices", "prices.yaml")
    assert result.exit_code == 2
    assert "prices.yaml:1: memory_gb_hour, storage_gb_month, network_gb: missing; write a price" in result.output
    Path("prices.yaml").write_text(PRICES + "gpu_hour: 1\n")
    assert "prices.yaml:6: unknown price 'gpu_hour'" in capacity(*STATED, "--prices", "prices.yaml").output
    Path("prices.yaml").write_text(PRICES.replace("0.04", "-1"))
    assert "prices.yaml:2: core_hour is below 0" in capacity(*STATED, "--prices", "prices.yaml").output
    assert "no file 'nowhere.yaml'" in capacity(*STATED, "--prices", "nowhere.yaml").output


def test_a_log_is_measured_and_a_small_sample_is_said() -> None:
    Files(Path("spend"), 2).append(events(3_000, partitions=2))
    found = plan("--log")
    read = found["load"]["sample"]["records"]
    assert read >= 3_000
    notes = "\n".join(found["notes"])
    assert f"measured: {read:,} of {read:,} records of the log" in notes
    assert f"too small: {read:,} records cannot show shares of late records below 0.33 %" in notes
    assert found["load"]["partitions"] == {"source": 2}
    assert "the log has 2 of the" not in notes
    many = "\n".join(plan("--log", "--rate", "5000000/s")["notes"])
    assert re.search(r"the log has 2 of the \d+ partitions that are needed to keep up", many)
    few = plan("--log", "--sample", "10", "--rate", "5/s")
    assert few["load"]["records_per_second"] == {"source": 5.0}
    assert 10 <= few["load"]["sample"]["records"] <= 12


def test_late_records_do_not_stretch_a_short_log() -> None:
    Path("spend").mkdir()
    start = 1_767_225_600_000
    # 10 a second for 100 s, and of every fifty one is up to an hour and a half late
    times = [start + number * 100 - (number * 5_400 if number % 50 == 0 else 0) for number in range(1_000)]
    lines = [json.dumps({"user_id": f"u{time % 7}", "event_time": time, "amount": 1}) for time in times]
    Path("spend/partition-0.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (rate,) = plan("--log")["load"]["records_per_second"].values()
    assert 9 < rate < 11


def test_cores_that_key_groups_leave_idle_are_said() -> None:
    stated, said = ("--rate", "200000/s", "--keys", "10k", "--record-bytes", "120"), "key_groups: with 1, only 1 of"
    assert not any(said in note for note in plan(*stated)["notes"])
    Path("pipeline.yaml").write_text(f"{PIPELINE}key_groups: 1\n")
    assert any(said in note for note in plan(*stated)["notes"])
    much = ("--rate", "8m/s", "--keys", "10k", "--record-bytes", "100", "--every", "60s")
    for groups, is_said in ((8, True), (512, False)):
        Path("pipeline.yaml").write_text(f"{PIPELINE}key_groups: {groups}\n")
        assert any("work on state at the same time" in note for note in plan(*much)["notes"]) == is_said


def test_a_log_with_few_partitions_is_read_by_few_tasks() -> None:
    stated = ("--rate", "400000/s", "--keys", "10k", "--record-bytes", "120")
    assert not any("read at the same time" in note for note in plan(*stated)["notes"])
    assert any(
        "the log has 1 partition, so only" in note or "the log has 1 of the" in note
        for note in plan(*stated, "--partitions", "1")["notes"]
    )
    few, enough = figures(*stated, "--partitions", "1"), figures(*stated)
    assert few["step time"] > enough["step time"]


def test_each_source_needs_partitions_for_its_own_records() -> None:
    """One with many partitions does not help another one, whose only partition is read by one task."""
    stated = ("--rate", "orders=2m/s", "--rate", "payments=10/s", "--keys", "10k", "--share", "paid=1%")
    few = plan(*stated, "--partitions", "orders=1", "--partitions", "payments=64", pipeline="graph.yaml")
    assert any("the log of orders has 1 of the 5 partitions" in note for note in few["notes"])
    assert not any("payments has" in note for note in few["notes"])
    assert few["figures"] != plan(*stated, pipeline="graph.yaml")["figures"]
    enough = figures(*stated, pipeline="graph.yaml")
    assert enough["log partitions, payments"] == 1
    assert enough["log partitions, orders"] >= 5
    (took,) = (one for one in few["figures"] if one["name"] == "step time")
    assert (took["inputs"]["tasks that read"], took["value"] > 2 * enough["step time"]) == (1, True)


def test_a_source_without_records_is_said() -> None:
    Files(Path("spend"), 1).append(events(300, partitions=1))
    Files(Path("none"), 1)
    source = PIPELINE.splitlines()[2:4]
    text = GRAPH
    for name, path in (("orders", "spend"), ("payments", "none")):
        text = re.sub(
            rf"path: {name}}}}}\n    decode: .*\n    time: .*",
            f"path: {path}}}}}\n    {source[0]}\n    {source[1]}",
            text,
        )
    text = text.replace("by: id", "by: user_id").replace("paid > 100", "amount > 100")
    Path("graph.yaml").write_text(text)
    found = plan("--log", pipeline="graph.yaml")
    assert found["load"]["records_per_second"]["payments"] == 0
    assert any(
        "payments has no records, because none were read; override with --rate payments=RATE" in one
        for one in found["notes"]
    )
    found = plan("--log", "--rate", "payments=5/s", pipeline="graph.yaml")
    assert not any("has no records" in one for one in found["notes"])


def test_of_few_records_there_is_no_time_of_a_million() -> None:
    stated = ("--keys", "10", "--record-bytes", "100")
    assert "processor time a million records" not in figures("--rate", "10/s", *stated)
    assert figures("--rate", "100/s", *stated)["processor time a million records"] > 0


def test_the_history_of_a_run_is_read() -> None:
    lateness: dict[int | str, Histogram] = {0: Histogram((90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10))}
    steps = [
        replace(
            REPORT, epoch=number, committed=number, low_watermark=number * 10_000_000, read={0: 100}, lateness=lateness
        )
        for number in range(11)
    ]
    with HistoryWriter(Path("run/progress.sqlite"), RunRecord.here("user-spend", "stream"), pytest.fail) as history:
        for step in steps:
            history.on_step(step)
    options = ("--checkpoint", "run", "--keys", "50", "--record-bytes", "80")
    found = plan(*options)["load"]
    assert found["records_per_second"] == {"source": 10.0}
    assert 0.5 < found["behind_seconds"]["p99"] <= 1
    result = capacity("--checkpoint", "run")
    assert result.exit_code == 2
    assert "does not contain keys and record sizes: give --keys and --record-bytes" in result.output


def test_what_is_not_known_is_said() -> None:
    notes = plan("--rate", "100/s", "--keys", "10")["notes"]
    assert notes == [
        "assumed: records of 100 bytes; override with --record-bytes",
        "assumed: records in order of event time, so none are late; override with --disorder",
    ]
    rates = ("--rate", "orders=100/s", "--rate", "payments=90/s", "--keys", "1m")
    found = plan(*rates, pipeline="graph.yaml")
    assert any(
        "large is assumed to pass all records (override with --share paid=SHARE)" in one for one in found["notes"]
    )
    assert any("records are assumed to match by chance" in one for one in found["notes"])
    by_name = {one["name"]: one for one in found["figures"]}
    assert by_name["state rows"]["within"] == 2
    paid = figures(*rates, "--partners", "paid=0.9", "--share", "paid=50%", pipeline="graph.yaml")
    assert paid["changes"] == pytest.approx(45)


def test_a_load_beyond_the_key_groups_or_the_sink_falls_behind() -> None:
    assert not any("falls behind" in one for one in plan(*STATED)["notes"])
    huge = plan("--rate", "10m/s", "--keys", "1g", "--record-bytes", "100")
    assert any("key groups use 8 of" in one for one in huge["notes"])
    assert any(one.startswith("note: the sinks need") for one in huge["notes"])
    (took,) = (one for one in huge["figures"] if one["name"] == "step time")
    parts = took["inputs"]
    assert took["value"] == pytest.approx(parts["key groups"] / (parts["state partitions"] * parts["busy"]))
    assert took["value"] > 10


PROCESS = """\
import windrow as wr


def count(ctx, record):
    ctx.state.seen.set(ctx.state.seen.get(0) + 1)
    ctx.emit(seen=ctx.state.seen.get(0))


pipeline = (
    wr.log("spend")
    .decode(user_id="string", event_time="timestamp_millis")
    .event_time("event_time", delay="1m")
    .key_by("user_id")
    .process(count, state={"seen": wr.value_state("long")}, returns={"seen": "long"}, ttl="1d")
    .to(wr.sqlite("spend.db", table="seen"))
)
"""


def test_the_state_of_a_process_function_cannot_be_planned() -> None:
    Path("process.py").write_text(PROCESS)
    notes = plan("--rate", "100/s", "--keys", "10", pipeline="process.py")["notes"]
    assert any(one.startswith("cannot be planned: ") and "process function" in one for one in notes), notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "the load is unknown"),
        (("--rate", "20000/s"), "the number of keys is missing: give --keys"),
        (("--rate", "fast", "--keys", "1m"), "'fast' is not a number; write one such as 20000"),
        (("--rate", "5/x", "--keys", "1m"), "'5/x' is not a rate"),
        (("--rate", "0/s", "--keys", "1"), "0 records per second cannot be planned for"),
        (("--rate", "5/s", "--keys", "1", "--every", "0s"), "--every: the time between steps must be above 0"),
        (("--rate", "5/s", "--keys", "0"), "less than one key"),
        (("--rate", "other=5/s", "--keys", "1"), "unknown source 'other' (NAME=VALUE); available: source"),
        (("--rate", "5/s", "--keys", "1", "--disorder", "30s"), "'30s' is not a quantile; write, for example, p99=30s"),
        (("--rate", "5/s", "--keys", "1", "--disorder", "p99=30s,p50=1m"), "is not farther behind than"),
        (("--rate", "5/s", "--keys", "1", "--hot-key", "300%"), "'300%' is not a share"),
        (("--rate", "5/s", "--keys", "1", "--share", "nothing=3%"), "unknown stream 'nothing'"),
        (
            ("--rate", "5/s", "--keys", "1", "--partitions", "0"),
            "'0' is not a number of partitions; write one such as 12",
        ),
        (("--rate", "5/s", "--keys", "1", "--partitions", "other=3"), "--partitions: unknown source 'other'"),
        (("--log", "--checkpoint", "there"), "leave one of them out"),
    ],
)
def test_what_is_wrong_is_said(options: tuple[str, ...], message: str) -> None:
    result = capacity(*options)
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")


def test_rates_of_several_sources_have_names() -> None:
    result = capacity("--rate", "5/s", "--keys", "1", pipeline="graph.yaml")
    assert "the rate of orders, payments is missing: give --rate orders=RATE" in result.output
