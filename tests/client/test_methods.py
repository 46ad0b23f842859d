"""Pipelines from Python: preview, run, read, compare and explain, of every kind, without the command line."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import polars  # noqa: ICN001 - its name
import pytest
from click.testing import CliRunner
from tests.client.purchases import spend, write_purchases
from tests.client.test_progress import REPORT
from tests.docs.pages import ROOT
from tests.graphs import as_graph, graph_of
from tests.short_forms import Pipeline

import windrow as wr
from windrow.authoring.printing import to_text
from windrow.cli import main
from windrow.client.result import Result
from windrow.client.run import warnings_of
from windrow.client.tables import Rows
from windrow.errors import TRUNCATION, InputError, PipelineError, SetupError, SinkError
from windrow.model import Context, Sink
from windrow.telemetry.reports import StepReport, Totals

TEN = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the log of the guide."""
    monkeypatch.chdir(tmp_path)
    write_purchases(tmp_path / "data" / "spend")
    return tmp_path


def seen(ctx: Context, record: dict[str, Any]) -> None:
    ctx.emit(last=record["amount"])


def of_each_kind() -> dict[str, wr.Pipeline]:
    timed = (
        wr.log("data/spend")
        .decode(user_id="string", event_time="timestamp", amount="decimal(12,2)")
        .event_time("event_time", delay="1m", future="1h")
    )
    sink = wr.sqlite("spend.db", table="spend")
    graph = wr.graph("spend")
    purchases = graph.source("purchases", timed)
    large = graph.stream("large", purchases.where("amount >= 2"))
    graph.sink("written", large, sink)
    keyed = timed.key_by("user_id")
    return {
        "windows": spend(),
        "process": keyed.process(seen, returns={"last": "decimal(12,2)"}).to(sink),
        "rules": keyed.rules(wr.rule("large", when="amount >= 3"), recent=wr.recent(last=5, within="1h")).to(sink),
        "graph": graph.build(),
    }


ROWS = {"windows": 3, "process": 2, "rules": 2, "graph": 3}


@pytest.mark.parametrize("kind", ROWS)
def test_a_pipeline_of_any_kind_is_checked_previewed_and_run(kind: str) -> None:
    pipeline = of_each_kind()[kind]
    assert not pipeline.check().errors
    assert str(pipeline.explain()) == to_text(pipeline.graph)
    assert pipeline._repr_html_().startswith("<svg ")
    shown = pipeline.preview(1)
    assert (len(shown), shown.total) == (1, ROWS[kind])
    assert not Path("spend.db").exists()
    result = pipeline.run("memory")
    assert len(result.to_pandas()) == len(result.to_arrow()) == ROWS[kind] == result.counts["spend"]
    assert shown.plain() == result.table(limit=1).plain()
    assert pipeline.replay("memory").diff(result).same


def test_a_file_gives_the_same_methods() -> None:
    text = (ROOT / "examples" / "user_spend.yaml").read_text()
    Path("p.yaml").write_text(text.replace("timestamp_millis", "timestamp"))
    wr.load("p.yaml").run("memory")
    assert len(wr.read_table("p.yaml")) == len(wr.load("p.yaml").preview())


def test_what_a_prompt_shows() -> None:
    pipeline = spend(delay="0s")
    assert repr(pipeline.check()).splitlines()[-1] == "ok, 1 warning"
    assert repr(pipeline.explain()) == pipeline.explain().rstrip("\n")
    assert "no tables" in repr(pipeline.result()) or "there is no database" in repr(pipeline.result())
    result = pipeline.run("memory")
    first, second, *_ = repr(result).splitlines()
    assert first.startswith("spend: read to the end after 2 steps")
    assert "1 late, 0 expired, 0 dead letters" in second
    assert "3 rows in spend, 0 expired, 0 dead letters, 5 changes" in repr(pipeline.result())
    assert repr(pipeline.preview(2)).splitlines()[-1] == "... and 1 more row of spend"


def test_what_a_notebook_shows_is_escaped() -> None:
    Path("data/spend/partition-0.jsonl").write_text(
        '{"user_id": "<b>A</b>", "event_time": "2026-01-01T10:00:00Z", "amount": "5.00"}\n'
    )
    pipeline = spend()
    result = pipeline.run("memory")
    for shown in (result, result.table(), pipeline.why({"user_id": "<b>A</b>"}), pipeline.check()):
        html = getattr(shown, "_repr_html_", lambda: "")()
        assert "<b>A" not in html
    assert "&lt;b&gt;A&lt;/b&gt;" in result._repr_html_()
    quoted = spend(database="<script>.db")
    assert "<script>" not in quoted._repr_html_()
    assert "&lt;script&gt;" in quoted._repr_html_()


def test_rows_as_other_libraries_have_them() -> None:
    rows = spend().run("memory").table()
    frame = rows.to_pandas()
    assert frame["total"].tolist() == [Decimal("8.00"), Decimal("3.00"), Decimal("1.00")]
    assert frame["window_start"][0] == TEN
    assert str(rows.to_arrow().schema.field("window_start").type) == "timestamp[us, tz=UTC]"
    with duckdb.connect() as database:
        # by Arrow's interface
        assert database.execute("SELECT sum(events) FROM rows").fetchall() == [(5,)]


def test_rows_as_polars_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spend().run("memory").table()
    frame = rows.to_polars()
    assert frame.schema["window_start"] == polars.Datetime("us", "UTC")
    assert frame["total"].to_list() == [Decimal("8.00"), Decimal("3.00"), Decimal("1.00")]
    assert frame.filter(polars.col("window_start") == TEN)["user_id"].to_list() == ["A", "B"]
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(SetupError, match="pip install polars"):
        rows.to_polars()


def test_which_rows_are_read() -> None:
    pipeline = spend()
    pipeline.run("memory")
    a = wr.read_table(pipeline, where={"user_id": "A", "window_start": TEN})
    assert a.plain() == wr.read_table(pipeline, where={"total": Decimal(8)}).plain()
    assert len(a) == 1
    assert wr.read_table(pipeline, order="total").to_pandas()["events"].tolist() == [1, 1, 3]
    assert wr.read_table(pipeline, "changes", order=["seq:desc", "epoch"], limit=1).total == 5
    assert wr.read_table(pipeline, as_of="2026-01-01T10:02").to_pandas()["total"].tolist() == [6, 3]
    changes = wr.read_table(pipeline, "changes", key={"user_id": "A"}, window=TEN)
    assert changes.to_pandas()["op"].tolist() == ["insert", "update_before", "update_after"]
    assert [wr.read_table(pipeline, since=since).total for since in ("2026-01-01T10:05", TEN)] == [1, 3]
    assert wr.read_table(pipeline, "late", key={"user_id": "A"}, reason="expired").total == 0
    with pytest.raises(InputError, match=r"^reason: table 'spend' has no column 'reason'"):
        wr.read_table(pipeline, reason="expired")
    with pytest.raises(InputError, match=r"^where 'nobody=1': table 'spend' has no column"):
        wr.read_table(pipeline, where={"nobody": 1})
    with pytest.raises(InputError, match="the pipeline writes no table 'nothing'"):
        wr.read_table(pipeline, "nothing")
    with pytest.raises(InputError, match="'noon' is not a time"):
        wr.read_table(pipeline, as_of="noon")


def test_a_preview_reads_a_share_of_each_partition() -> None:
    line = Path("data/spend/partition-0.jsonl").read_text().splitlines(keepends=True)[1]
    Path("data/spend/partition-0.jsonl").write_text(line * 50)
    Path("data/spend/partition-1.jsonl").write_text(line.replace('"B"', '"C"') * 50)
    found = spend().preview(records=20)
    assert found.to_pandas()["events"].tolist() == [10, 10]
    assert "the first 10 records of each partition" in repr(found)
    assert not spend().preview(records=100).notes


def test_a_preview_of_a_file_follows_it_beside_its_log() -> None:
    Path("rates.csv").write_text("code,rate\nEUR,1.5\nUSD,1\n")
    graph = wr.graph("rates")
    decoded = wr.file("rates.csv", key="code", log="rates.log").decode(
        code="string", rate="double", _log_time="timestamp_millis", _deleted="boolean"
    )
    source = graph.source("rates", decoded.event_time("_log_time", delay="0s"))
    graph.sink(
        "written",
        graph.stream("current", source.table("code", deleted="_deleted")),
        wr.sqlite("rates.db", table="rates"),
    )
    assert graph.build().preview().to_pandas()["code"].tolist() == ["EUR", "USD"]
    assert not Path("rates.log").exists()


def test_a_run_says_what_was_wrong(caplog: pytest.LogCaptureFixture) -> None:
    with Path("data/spend/partition-0.jsonl").open("a") as file:
        file.write("{")
    result = spend().run("memory")
    (warning,) = result.warnings
    assert "has no newline" in warning
    assert f"warning: {warning}" in repr(result)
    assert not caplog.records
    with pytest.raises(SinkError, match="rows of another run"):
        spend().run("memory")
    assert spend().run("memory", fresh=True).ended == "end"


def test_options_that_a_host_does_not_use_are_refused() -> None:
    with pytest.raises(InputError, match="host memory does not use checkpoint and master"):
        spend().run("memory", checkpoint="there", master="local[1]")
    with pytest.raises(InputError, match="backfill works on the stream host only"):
        spend().run("batch", backfill=True)
    for begin in (spend().run, spend().start):
        with pytest.raises(InputError, match="reads to the end of the input: leave out until_end=False, or run on the"):
            begin("memory", until_end=False)
    with pytest.raises(PipelineError, match="'soon' is not a duration"):
        spend().run("stream", every="soon")
    with pytest.raises(PipelineError, match="key_groups"):
        wr.Pipeline(as_graph(replace(graph_of(spend(), Pipeline), key_groups=0))).run("memory")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda given: spend().run(given), "host must be 'stream', 'realtime', 'batch' or 'memory', not 'mem'"),
        (lambda given: spend().start(given), "host must be 'stream', 'realtime', 'batch' or 'memory', not 'mem'"),
        (lambda given: spend().replay(given), "host must be 'batch' or 'memory', not 'mem'; did you mean 'memory'"),
        (
            lambda _: spend().run("", fresh=True),  # type: ignore[arg-type]
            "host must be 'stream', 'realtime', 'batch' or 'memory', not ''",
        ),
        (lambda given: spend().run(on_data_loss=given), "on_data_loss must be 'stop' or 'continue', not 'mem'"),
        (lambda _: wr.read_table(spend(), "chnges"), "the pipeline writes no table 'chnges'.*mean 'spend_changes'"),
    ],
)
def test_a_name_out_of_a_set_is_told_the_set_and_one_that_is_near(call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call("mem")


@pytest.mark.parametrize(
    ("sink", "where"),
    [
        (wr.sqlite("a.db", table="t"), "the column `reason` of the table t_dead"),
        (wr.kafka_sink("t", servers="h:9092"), "the field `reason` in the topic t.dead"),
        (wr.parquet("out", table="t"), r"the column `reason` of the files out/t/\*/\*dead.parquet"),
    ],
)
def test_where_the_reasons_of_dead_letters_are(sink: Sink, where: str) -> None:
    totals = Totals()
    totals.add(replace(REPORT, records=0, dead=7))
    (warning,) = warnings_of(as_graph(replace(graph_of(spend(), Pipeline), sink=sink)), "asked", totals, 0.01)
    assert re.fullmatch(rf"all records \(7\) are dead letters; {where} says why", warning)


def test_truncations_without_an_order_are_warned_of_however_few() -> None:
    totals, reasons = Totals(), {"missing: id": 2, TRUNCATION: 1}
    totals.add(replace(REPORT, records=10_000, dead=3, dead_reasons=reasons))
    (warning,) = warnings_of(as_graph(graph_of(spend(), Pipeline)), "asked", totals, 0.01)
    assert warning.startswith(
        "1 truncation of a table could not be applied, so removed rows stay: in a source of several"
    )


def test_a_column_that_is_near_is_named() -> None:
    spend().run("memory")
    with pytest.raises(InputError, match=r"no column 'userid'.*did you mean 'user_id'"):
        wr.read_table(spend(), order="userid")


def test_an_option_that_start_does_not_have_is_named() -> None:
    with pytest.raises(TypeError, match=r"start\(\) got an unexpected .* 'frsh'; did you mean 'fresh'"):
        spend().start("memory", frsh=True)  # type: ignore[call-arg]


def test_a_client_of_spark_connect_takes_results_and_is_told_where_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    for host in ("stream", "batch"):
        with pytest.raises(SetupError, match=r"client of Spark Connect .* run on the memory host"):
            spend().run(host, fresh=True)
    client: Any = SimpleNamespace(createDataFrame=lambda table: SimpleNamespace(rows=table.num_rows))
    frame: Any = spend().run("memory", fresh=True).to_spark(spark=client)
    assert frame.rows == 3


def test_an_interrupt_ends_a_run_after_its_step(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGINT)
    steps: list[StepReport] = []

    def on_step(report: StepReport) -> None:
        steps.append(report)
        signal.raise_signal(signal.SIGINT)

    result = spend().run("memory", max_records=2, on_step=on_step)
    assert (result.ended, len(steps)) == ("asked", 1)
    assert "stopping after this step" in caplog.text
    assert signal.getsignal(signal.SIGINT) == before


def test_a_second_interrupt_leaves_logging_as_it_was() -> None:
    def on_step(report: StepReport) -> None:
        del report
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        spend().run("memory", on_step=on_step)
    assert logging.root.manager.disable == logging.NOTSET


def test_a_run_in_a_thread() -> None:
    found: list[Result] = []
    thread = threading.Thread(target=lambda: found.append(spend().run("memory")))
    thread.start()
    thread.join(60)
    assert [result.ended for result in found] == ["end"]


def test_a_difference_is_found_and_shown() -> None:
    here = spend().run("memory")
    there = spend(database="other.db", delay="10m").run("memory")
    same = here.diff(there)
    assert same.same
    assert not here.diff(there, panes=True).same  # nothing was late under the other delay
    Path("data/spend/partition-0.jsonl").write_text(
        Path("data/spend/partition-0.jsonl").read_text().replace("3.00", "4.00")
    )
    changed = wr.diff(here, spend(database="third.db").run("memory"))
    assert not changed.same
    assert "total 3.00 and 4.00" in repr(changed)
    assert "total 3.00 and 4.00" in changed._repr_html_()
    assert changed.plain()["different"] == 1
    assert (
        wr.diff(here, "third.yaml" if Path("third.yaml").exists() else spend(database="third.db"), limit=0).same
        is False
    )
    with pytest.raises(InputError, match=r"begin .* is after end"):
        wr.diff(here, there, begin="2026-01-02", end="2026-01-01")


def test_the_command_prints_the_same() -> None:
    spend().run("memory")
    Path("pipeline.py").write_text(
        "import windrow as wr\nfrom tests.client.purchases import spend\npipeline = spend()\n"
    )
    runner = CliRunner()
    shown = runner.invoke(main, ["show", "pipeline.py"]).stdout
    assert shown.rstrip("\n") == repr(wr.read_table("pipeline.py"))
    spend().replay("memory")
    assert runner.invoke(main, ["diff", "pipeline.py"]).stdout.rstrip("\n") == repr(spend().diff())
    assert json.loads(runner.invoke(main, ["diff", "pipeline.py", "--json"]).stdout) == spend().diff().plain()
    where = {"user_id": "A", "window_start": "2026-01-01T10:00"}
    options = [word for name, value in where.items() for word in ("--where", f"{name}={value}")]
    assert runner.invoke(main, ["show", "pipeline.py", "--why", *options]).stdout.rstrip("\n") == repr(
        spend().why(where)
    )
    previewed = json.loads(runner.invoke(main, ["preview", "pipeline.py", "--json"]).stdout)
    rows = spend().preview(20)
    assert previewed["tables"]["spend"] == [dict(zip(rows.schema.names, row, strict=True)) for row in rows.plain()]
    assert previewed["late"] == 1
    checked = runner.invoke(main, ["check", "pipeline.py"]).stdout
    assert checked.rstrip("\n") == f"pipeline.py: {spend().check()!r}"


def test_the_names_of_conditions_have_no_hyphens() -> None:
    spend().run("memory")
    with pytest.raises(InputError) as caught:
        spend().why({"user_id": "B"})
    assert "--" not in str(caught.value)
    with pytest.raises(InputError, match="only a row of spend can be explained"):
        spend().why({"reason": "x"}, table="late")


def test_a_sink_that_is_no_table() -> None:
    pipeline = wr.Pipeline(as_graph(replace(graph_of(spend(), Pipeline), sink=wr.parquet("lake", table="spend"))))
    assert pipeline.preview().total == 3
    result = pipeline.run("memory")
    assert re.search("Parquet files of changes", repr(result))
    assert "Parquet files of changes" in result._repr_html_()
    with pytest.raises(InputError, match="Parquet files of changes"):
        result.to_pandas()


def test_rows_of_none() -> None:
    rows = spend().preview(table="late")
    assert isinstance(rows, Rows)
    assert (len(rows), repr(rows)) == (0, "spend_late has no rows")
    assert rows.to_arrow().num_rows == 0


def test_a_run_whose_records_expire_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").mkdir()
    times = [1_700_000_000_000 + day * 86_400_000 for day in (9, 1, 2, 3)]
    lines = [f'{{"user": "a", "at": {at}}}\n' for at in times]
    (tmp_path / "log" / "partition-0.jsonl").write_text("".join(lines))
    pipeline = (
        wr.log("log").decode(user="string", at="timestamp_millis").event_time("at", delay="1m").key_by("user")
        .window(wr.tumbling("5m")).aggregate(n=wr.count()).emit(lateness="1h").to(wr.sqlite("p.db", table="p"))
    )  # fmt: skip
    (warning,) = pipeline.run("memory", fresh=True, progress=False).warnings
    assert warning.startswith("3 of 4 records (75.000%) have expired and are in no result")
    assert "`windrow tune PIPELINE --log`" in warning
    assert pipeline.run("memory", fresh=True, progress=False, warn_above=0.75).warnings == ()
