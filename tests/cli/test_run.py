"""`windrow run`: what it prints, and what it refuses with one message before Spark starts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn
from urllib.request import urlopen

import psycopg
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from tests.contracts.stores import SqliteStore
from tests.graphs import Runnable, as_graph, graph_of, sink_spec_of
from tests.runtime.answers import assert_same
from tests.runtime.spend import Files, events
from tests.servers.secure_postgres import SECRET, TlsProxy
from tests.short_forms import Pipeline

from windrow.authoring.load import open_pipeline
from windrow.cli import main
from windrow.connectors.kafka.source import preflight
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.sink import Run
from windrow.engine.changelog import StepOutput
from windrow.runtime.launch import launch
from windrow.runtime.run import Ended, OnStart, RunSettings
from windrow.runtime.spark import session as spark
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.telemetry.reports import OnStep, StepReport
from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres
from windrow.testing.servers.process import free_port

PIPELINE = """\
name: user-spend
source: {source}
decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
time: {{field: event_time, delay: 10m, future: 1h}}
key: [user_id]
window: {{tumbling: 5m}}
aggregate: {{total: sum(amount), events: count()}}
emit: {{lateness: 1h, late: each, mode: retract}}
sink: {sink}
"""
LOG = "{log: {path: spend}}"
SQLITE = "{sqlite: {path: spend.db, table: spend}}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a log in it; Spark must not start."""

    def no_spark(*_: object, **__: object) -> NoReturn:
        pytest.fail("Spark was started")

    monkeypatch.chdir(tmp_path)
    # the hosts hold the function by a name of their own
    for host in ("stream", "batch"):
        monkeypatch.setattr(f"windrow.runtime.{host}.run.spark_session", no_spark)
    Files(tmp_path / "spend", 2).append(events(200, partitions=2))
    return tmp_path


def write(source: str = LOG, sink: str = SQLITE, replace: tuple[str, str] = ("", "")) -> Pipeline:
    """Write the pipeline file, and read it."""
    text = PIPELINE.format(source=source, sink=sink)
    assert replace[0] in text
    Path("pipeline.yaml").write_text(text.replace(*replace) if replace[0] else text)
    return graph_of(open_pipeline("pipeline.yaml").runnable(), Pipeline)


def run(*options: str) -> Result:
    return CliRunner().invoke(main, ["run", "pipeline.yaml", *options])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(code: int, *options: str, writes: Callable[[str], bool] = lambda _: False) -> str:
    """Run; it must end with that code, one message, and nothing written but what `writes` allows."""
    before = contents(Path())
    result = run(*options)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("windrow: ")
    assert result.stderr.count("\nwindrow: ") == 0
    after = {name: body for name, body in contents(Path()).items() if not writes(name)}
    assert after == {name: body for name, body in before.items() if not writes(name)}
    return result.stderr.removeprefix("windrow: ").rstrip("\n")


BAD_YAML = [
    ("key: [user_id]", "key: [user_id", r"pipeline.yaml:6: "),
    ("delay: 10m", "dealy: 10m", "pipeline.yaml:4: 'dealy' is not a key of time; did you mean 'delay'?"),
    ("delay: 10m", "delay: ten minutes", "pipeline.yaml:4: "),
    ("sum(amount)", "sum(amuont)", "pipeline.yaml:7: "),
    ("window: {tumbling: 5m}\n", "", "pipeline.yaml"),
    ("tumbling: 5m", "tumbling: -5m", "pipeline.yaml:6: "),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD_YAML, ids=[new for _, new, _ in BAD_YAML])
def test_a_malformed_pipeline_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    text = PIPELINE.format(source=LOG, sink=SQLITE)
    assert old in text
    Path("pipeline.yaml").write_text(text.replace(old, new))
    assert message in refused(2, "--until-end")


def test_no_pipeline_at_all() -> None:
    assert "pipeline.yaml" in refused(2)
    Path("pipeline.yaml").mkdir()
    assert "pipeline.yaml" in refused(2)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "there is no log folder nowhere; create one with `windrow generate`, or correct the path"),
        ("pipeline.yaml", "pipeline.yaml is not a folder; a log is a folder with partition-0.jsonl, "),
        (".", ". is not a log: it has no partition-0.jsonl, "),
    ],
)
@pytest.mark.parametrize("host", ["stream", "memory"])
def test_a_log_that_is_none(path: str, message: str, host: str) -> None:
    write(source=f"{{log: {{path: {path}}}}}")
    assert refused(2, "--until-end", "--host", host).startswith(message)


def test_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windrow.connectors.kafka.source.preflight", partial(preflight, timeout=1.0))
    write(source="{kafka: {servers: '127.0.0.1:1', topic: spend}}")
    message = refused(1)
    assert message.startswith("no Kafka broker can be reached at 127.0.0.1:1: ")
    assert message.endswith("is it running, and are the options right?")


def test_no_topic(kafka: Kafka, topic: Callable[..., str]) -> None:
    there = topic(1)
    write(source=f"{{kafka: {{servers: '{kafka.servers}', topic: {there}x}}}}")
    assert refused(1).startswith(f"there is no topic {there}x at {kafka.servers}; did you mean {there}")


def postgres_sink(url: str) -> str:
    return f"{{postgres: {{url: '{url}', table: spend}}}}"


def test_no_database_server() -> None:
    write(sink=postgres_sink("postgresql://someone:secret@127.0.0.1:1/spend"))
    message = refused(1)
    assert message.startswith("cannot connect to PostgreSQL at 127.0.0.1:1/spend: ")
    assert message.endswith("check that it runs, and the url of the sink")
    assert "secret" not in message


def test_no_such_database_and_no_such_user(postgres: Postgres) -> None:
    write(sink=postgres_sink(postgres.url_of("nope")))
    assert refused(1).endswith('database "nope" does not exist: create the database, or correct the url')
    write(sink=postgres_sink(postgres.url_of("postgres", "nobody_here")))
    assert refused(1).endswith('role "nobody_here" does not exist: create the user, or correct the url')


@pytest.fixture
def role(database: str) -> Iterator[str]:
    """A role that may connect to the database, and no more."""
    name = f"role_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN".encode())
        yield name
        admin.execute(f"DROP OWNED BY {name}".encode())
        admin.execute(f"DROP ROLE {name}".encode())


def test_a_user_without_the_privilege_to_create(role: str, database: str) -> None:
    write(sink=postgres_sink(database.replace("postgres@", f"{role}@")))
    assert refused(1).endswith(
        f"table 'spend' does not exist, and user '{role}' may not create it: GRANT CREATE ON SCHEMA \"public\" TO "
        f'"{role}", or have the statements of `windrow explain --ddl` executed'
    )
    with psycopg.connect(database) as admin:
        assert admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall() == []


def test_a_user_without_the_privilege_to_insert(role: str, database: str) -> None:
    owner = open_sinks(as_graph(write(sink=postgres_sink(database))))
    owner.open(Run("user-spend", "another"))
    owner.close()
    with psycopg.connect(database) as admin:
        admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}".encode())
    write(sink=postgres_sink(database.replace("postgres@", f"{role}@")))
    assert refused(1).startswith(f"user '{role}' has no INSERT privilege on table 'spend': GRANT INSERT ON ")


def test_a_file_in_a_folder_that_is_not_there() -> None:
    write(sink="{sqlite: {path: results/spend.db, table: spend}}")
    message = refused(2)
    assert "results of results/spend.db does not exist: create it, or correct the sink's path" in message


def test_a_file_that_is_no_database() -> None:
    Path("spend.db").write_text("user,total\nA,1\n" * 100)
    write()
    assert refused(2).startswith("spend.db is not an SQLite database: give the sink another path")
    write(sink="{sqlite: {path: spend, table: spend}}")
    assert refused(2).startswith("spend is a folder: give the sink the path of a file in it")


def test_another_pipelines_checkpoint() -> None:
    kept = write(replace=("tumbling: 5m", "tumbling: 10m"))
    Checkpoint.new(Path("kept"), as_graph(kept), [0, 1]).write()
    write()
    message = refused(2, "--checkpoint", "kept")
    assert message.startswith(
        "the checkpoint kept belongs to a different pipeline; it differs in\n"
        '  window.tumbling: "10m" there, "5m" here\n'
    )
    assert message.endswith("; after many changes, a run can still resume from a savepoint (run --from-savepoint)")


def test_a_checkpoint_that_is_none() -> None:
    write()
    assert refused(2, "--checkpoint", "spend") == (
        "spend is not a checkpoint of windrow: there is no windrow.json in it; choose another folder"
    )
    assert refused(2, "--checkpoint", "spend", "--fresh").startswith("spend is not a checkpoint of windrow")
    assert "pipeline.yaml" in refused(2, "--checkpoint", "pipeline.yaml")


def test_tables_of_another_run() -> None:
    pipeline = write()
    sink = open_sinks(as_graph(pipeline))
    sink.open(Run("user-spend", "another"))
    sink.commit(0, {"": StepOutput.empty(sink_spec_of(pipeline).rows)})
    sink.close()
    assert refused(1, writes=lambda name: name.startswith("spend.db")).startswith(
        "table 'spend' holds the rows of another run of pipeline 'user-spend': to rewrite it, add --fresh, which "
    )


def test_a_second_run_in_memory_says_how_to_begin_anew(folder: Path) -> None:
    pipeline = write()
    assert run("--host", "memory", "--until-end").exit_code == 0
    told = refused(1, "--host", "memory", "--until-end", writes=lambda name: name.startswith("spend.db"))
    assert "to rewrite it, add --fresh, which removes its rows; to resume, use the --checkpoint" in told
    assert "a run with --host memory or batch has none" in told
    assert run("--host", "memory", "--until-end", "--fresh").exit_code == 0
    assert_same(SqliteStore(folder), pipeline)


def test_a_savepoint_and_a_fresh_start_exclude_each_other() -> None:
    write()
    assert "leave out one of the two" in refused(2, "--fresh", "--from-savepoint", "kept")


@pytest.mark.parametrize("host", ["stream", "memory"])
def test_a_fresh_start_that_cannot_be_removes_nothing(host: str, folder: Path) -> None:
    write()
    assert run("--host", "memory", "--until-end").exit_code == 0
    rows = SqliteStore(folder).query("SELECT * FROM spend")
    write(source="{log: {path: nowhere}}")
    assert refused(2, "--until-end", "--fresh", "--host", host).startswith("there is no log folder nowhere")
    assert SqliteStore(folder).query("SELECT * FROM spend") == rows != []


def test_the_memory_host_is_for_bounded_runs() -> None:
    write()
    assert refused(2, "--host", "memory").startswith("the memory host reads to the end of the input: add --until-end")


@pytest.mark.parametrize(
    ("command", "host", "options"),
    [
        *(("run", "memory", [option]) for option in ("--checkpoint=x", "--every=1s", "--step-time=10s")),
        *(("run", "memory", [option]) for option in ("--on-data-loss=stop", "--master=local[2]")),
        ("run", "memory", ["--checkpoint=x", "--master=local[2]"]),
        *(("run", "batch", [option]) for option in ("--every=1s", "--step-time=10s", "--on-data-loss=continue")),
        ("replay", "memory", ["--master=local[2]"]),
    ],
)
def test_an_option_that_the_host_does_not_use_is_refused(command: str, host: str, options: list[str]) -> None:
    write()
    result = CliRunner().invoke(main, [command, "pipeline.yaml", "--host", host, *options])
    given = " and ".join(option.partition("=")[0] for option in options)
    it = "it" if len(options) == 1 else "them"
    assert (result.exit_code, result.stderr) == (2, f"windrow: --host {host} does not use {given}: leave {it} out\n")


@pytest.mark.parametrize(
    "options", [["--max-records", "0"], ["--every", "soon"], ["--host", "flink"], ["--until-the-end"]]
)
def test_a_wrong_option_is_2(options: list[str]) -> None:
    write()
    result = run(*options)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")


def test_an_error_as_json() -> None:
    write(source="{log: {path: nowhere}}")
    result = run("--json")
    assert (result.exit_code, result.stdout) == (2, "")
    error = json.loads(result.stderr)["error"]
    assert (error["kind"], error["exit_code"]) == ("InputError", 2)
    assert error["message"].startswith("there is no log folder nowhere")


def test_a_run_in_memory_says_what_it_did(folder: Path) -> None:
    pipeline = write()
    result = run("--host", "memory", "--until-end", "--max-records", "100")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("user-spend: read to the end after ")
    assert " events in " in result.stdout
    assert_same(SqliteStore(folder), pipeline)


@pytest.mark.parametrize(
    ("millis", "low"),
    [(-62_135_596_800_000, "0000-12-31 23:50:00"), (253_402_300_499_999, "9999-12-31 23:44:59")],
)
def test_a_run_in_memory_at_either_end_of_the_calendar(folder: Path, millis: int, low: str) -> None:
    (folder / "old").mkdir()
    record = {"user_id": "u1", "event_time": millis, "amount": "1.00"}
    (folder / "old" / "partition-0.jsonl").write_text(json.dumps(record) + "\n")
    write("{log: {path: old}}", replace=(", future: 1h", ""))
    result = run("--host", "memory", "--until-end")
    assert result.exit_code == 0, result.output
    assert f"low watermark {low}\n" in result.stdout


def test_a_run_says_its_metrics_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    port, scraped = free_port(), list[str]()

    def scraping(pipeline: Runnable, options: RunSettings, on_step: OnStep, on_start: OnStart) -> Ended:
        def scrape(report: StepReport) -> None:
            on_step(report)
            with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                scraped.append(response.read().decode())

        return launch(as_graph(pipeline), options, scrape, on_start)

    monkeypatch.setattr("windrow.runtime.launch.launch", scraping)
    assert run("--host", "memory", "--until-end", "--listen", f":{port}").exit_code == 0
    assert ['windrow_steps_total{pipeline="user-spend"} 1.0' in page for page in scraped] == [True, False]
    assert 'windrow_records_total{partition="1",pipeline="user-spend"}' in scraped[0]
    assert "windrow_event_lateness_seconds_bucket" in scraped[0]


def test_a_run_in_memory_as_json(folder: Path) -> None:
    write()
    result = run("--host", "memory", "--until-end", "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    told = json.loads(result.stdout)
    lines = sum(file.read_bytes().count(b"\n") for file in (folder / "spend").iterdir())
    assert (told["pipeline"], told["ended"], told["events"], told["steps"]) == ("user-spend", "end", lines, 2)
    assert sum(told["offsets"].values()) == lines
    assert told["events"] == told["dead"] + sum(
        row[0]
        for row in SqliteStore(folder).query("SELECT events FROM spend UNION ALL SELECT count(*) FROM spend_late")
    )


@pytest.mark.parametrize("reference", ["${SPEND_PASSWORD}", "${file:password}"])
def test_postgresql_over_tls_with_a_password(
    reference: str, tls: TlsProxy, secure_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give(password: str) -> None:
        monkeypatch.setenv("SPEND_PASSWORD", password)
        Path("password").write_text(f"{password}\n")

    write(sink=f"{{postgres: {{url: '{tls.url_of(secure_database, reference)}', table: spend}}}}")
    give("another s3cr3t")
    for host in ("memory", "stream"):
        message = refused(1, "--until-end", "--host", host)
        assert message.startswith(f"cannot connect to PostgreSQL at {tls.address}/{secure_database}: ")
        assert "password authentication failed for user" in message
        assert "\n" not in message
        assert "s3cr3t" not in message
    give(SECRET)
    result = run("--until-end", "--host", "memory")
    assert result.exit_code == 0, result.output
    shown = [CliRunner().invoke(main, ["explain", "pipeline.yaml", *options]) for options in ([], ["--json"])]
    assert all(one.exit_code == 0 for one in shown)
    assert not any("s3cr3t" in one.output for one in (result, *shown))
    assert [name for name, body in contents(Path()).items() if b"s3cr3t" in body] == ["password"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--until-end"], "starting Spark (log: .windrow/user-spend/spark.log); --host memory needs none\n"),
        (["--until-end", "--host", "batch"], "starting Spark (log: .windrow/user-spend/spark.log); --host memory"),
        ([], "starting Spark (log: .windrow/user-spend/spark.log)\n"),
        (["--until-end", "--json"], ""),
    ],
)
def test_it_says_that_spark_starts(options: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> NoReturn:
        msg = "no"
        raise OSError(msg)

    write()
    for host in ("stream", "batch"):
        monkeypatch.setattr(f"windrow.runtime.{host}.run.spark_session", spark.spark_session)
    monkeypatch.setattr(spark, "java", lambda: Path("/jre/bin/java"))
    monkeypatch.setattr(spark, "running_session", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", broken)
    result = run(*options)
    assert result.exit_code == 1, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith(said), result.stderr
    assert result.stderr.count("starting Spark") == bool(said)
    assert "Spark did not start" in result.stderr


def test_a_last_line_without_a_newline_is_named(folder: Path) -> None:
    file = folder / "spend" / "partition-1.jsonl"
    file.write_bytes(file.read_bytes().removesuffix(b"\n"))
    (folder / "spend" / "partition-2.jsonl").write_bytes(b"")
    (folder / "p.yaml").write_text(PIPELINE.format(source=LOG, sink=SQLITE))
    path = Path("spend") / file.name
    warning = f"the last line of {path} has no newline, so it was not read; add one if the line is complete"
    args = ["run", "p.yaml", "--until-end", "--host", "memory", "--fresh"]
    told = CliRunner().invoke(main, args)
    assert (told.exit_code, told.stderr.splitlines()[-1]) == (0, f"user-spend: warning: {warning}")
    assert "203 events" in told.stdout
    assert json.loads(CliRunner().invoke(main, [*args, "--json"]).stdout)["warnings"] == [warning]
    file.write_bytes(file.read_bytes() + b"\n")
    told = CliRunner().invoke(main, args)
    assert "warning" not in told.output
    assert "204 events" in told.stdout


def test_a_run_whose_records_are_all_dead_letters_warns(folder: Path) -> None:
    bad, good = '{"user_id": "u"}\n', '{"user_id": "u", "event_time": 1767225600000, "amount": 1}\n'
    for file in (folder / "spend").iterdir():
        file.write_text(bad * 2)
    (folder / "p.yaml").write_text(PIPELINE.format(source=LOG, sink=SQLITE))
    args = ["run", "p.yaml", "--until-end", "--host", "memory", "--fresh"]
    warning = "all records (4) are dead letters; the column `reason` of the table spend_dead says why"
    told = CliRunner().invoke(main, args)
    assert (told.exit_code, told.stderr.splitlines()[-1]) == (0, f"user-spend: warning: {warning}")
    assert json.loads(CliRunner().invoke(main, [*args, "--json"]).stdout)["warnings"] == [warning]
    (folder / "spend" / "partition-0.jsonl").write_text(good)
    warning = "2 of 3 records (66.667%) are dead letters, and in no result: `windrow show p.yaml spend_dead` says why"
    assert json.loads(CliRunner().invoke(main, [*args, "--json"]).stdout)["warnings"] == [warning]
    assert "warning" not in CliRunner().invoke(main, [*args, "--warn-above", "70%"]).output
    for file in (folder / "spend").iterdir():
        file.write_text("")
    assert "warning" not in CliRunner().invoke(main, args).output
