"""`windrow check`."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner, Result
from tests.servers.registry import SchemaRegistry

from windrow.cli import main
from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres
from windrow.tools.doctor.examine import disk
from windrow.tools.generate import LogSpec, write_log

GOOD = """\
name: user-spend
source: {log: {path: data/spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m, future: 1h}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
emit: {lateness: 1h, late: each, mode: retract}
sink: {sqlite: {path: spend.db, table: user_spend_5m}}
"""
WARNED = GOOD.replace("lateness: 1h", "lateness: 0s")
WRONG = WARNED.replace("[user_id]", "[usr_id]")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    for name, text in {"good": GOOD, "warned": WARNED, "wrong": WRONG, "misspelt": f"{WRONG}nam: x\n"}.items():
        Path(f"{name}.yaml").write_text(text)
    return tmp_path


def check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments])


def test_a_good_pipeline_is_ok() -> None:
    result = check("good.yaml", "--strict")
    assert (result.exit_code, result.output) == (0, "good.yaml: ok\n")


def test_warnings_are_told_and_are_ok() -> None:
    result = check("warned.yaml")
    assert result.exit_code == 0
    finding, summary = result.output.splitlines()
    assert finding.startswith(
        "warned.yaml:8: warning: emit.lateness: is 0s: every late record goes to user_spend_5m_late"
    )
    assert summary == "warned.yaml: ok, 1 warning"
    assert check("warned.yaml", "--strict").exit_code == 1


def test_a_list_that_cannot_be_read_is_an_error() -> None:
    rules = GOOD.replace("window: {tumbling: 5m}", "recent: {last: 3, within: 1h}").replace(", late: each", "")
    rules = rules.replace("aggregate: {total: sum(amount), events: count()}", "rules: [{name: a, when: user_id in l}]")
    rules = rules.replace(", mode: retract", "")
    Path("list.csv").write_text("id,since\n")
    for lists, problem in [
        ("{file: none.csv}", "lists.l.file: the list 'l': none.csv cannot be read: No such file or directory"),
        ("{file: list.csv, key: ids}", "lists.l.key: the list 'l': list.csv has no column 'ids'; its columns are id"),
    ]:
        Path("rules.yaml").write_text(f"{rules}lists: {{l: {lists}}}\n")
        result = check("rules.yaml")
        assert result.exit_code == 2
        assert result.output.startswith(f"rules.yaml:10: error: {problem}")


def test_errors_are_2() -> None:
    for strict in ([], ["--strict"]):
        result = check("wrong.yaml", *strict)
        assert result.exit_code == 2
        first, second, summary = result.output.splitlines()
        assert first == "wrong.yaml:5: error: key.0: 'usr_id' is not a field of decode; did you mean 'user_id'?"
        assert second.startswith("wrong.yaml:8: warning: ")
        assert summary == "wrong.yaml: 1 error, 1 warning"


def test_a_file_that_cannot_be_read_is_an_error_of_its_own_and_the_others_are_checked() -> None:
    result = check("absent.yaml", "misspelt.yaml", "good.yaml")
    assert result.exit_code == 2
    assert result.output.splitlines() == [
        "absent.yaml: error: there is no file 'absent.yaml'",
        "absent.yaml: 1 error",
        "misspelt.yaml:10: error: 'nam' is not a key of the pipeline; did you mean 'name'?",
        "misspelt.yaml: 1 error",
        "good.yaml: ok",
    ]


def test_a_fluent_pipeline() -> None:
    Path("job.py").write_text("""
import windrow as wr
timed = wr.log("a").decode(u="string", t="timestamp").event_time("t", delay="1m", future="1h")
pipeline = timed.key_by("u").window(wr.tumbling("5m")).aggregate(n=wr.count()).to(wr.sqlite("a.db", table="t"))
""")
    result = check("job.py")
    assert result.exit_code == 0
    assert result.output.startswith("job.py: warning: emit.lateness: is 0s")


def test_json() -> None:
    result = check("--json", "wrong.yaml", "good.yaml", "absent.yaml")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert told["ok"] is False
    wrong, good, absent = told["pipelines"]
    assert wrong["findings"][0] == {
        "level": "error",
        "where": "key.0",
        "message": "'usr_id' is not a field of decode; did you mean 'user_id'?",
        "file": "wrong.yaml",
        "line": 5,
    }
    assert good == {"pipeline": "good.yaml", "ok": True, "findings": []}
    assert absent["findings"] == [{"level": "error", "where": "", "message": "there is no file 'absent.yaml'"}]
    assert json.loads(check("--json", "good.yaml").stdout)["ok"] is True


def test_a_story_is_told_apart_from_a_pipeline() -> None:
    story = Path(__file__).parents[1] / "transcripts" / "sessions.yaml"
    result = check(str(story))
    said = "error: this is a story, not a pipeline; run it with `windrow transcript`"
    assert (result.exit_code, result.output) == (2, f"{story}:1: {said}\n{story}: 1 error\n")


def test_an_empty_name_and_a_pipe_are_refused() -> None:
    result = check("")
    assert (result.exit_code, result.output) == (
        2,
        "'': error: the name of the pipeline file is empty; give a file\n'': 1 error\n",
    )
    for name in ("pipe.yaml", "pipe.py"):
        os.mkfifo(name)
        result = check(name)
        assert result.exit_code == 2
        assert f"'{name}' is a pipe or a device; save the pipeline in a file" in result.output


# --connect


@pytest.fixture
def data(here: Path) -> Path:
    """The log of the pipelines."""
    write_log(LogSpec(events=200, malformed_share=0), here / "data" / "spend")
    return here / "data" / "spend"


def connect(*arguments: str, file: str = "good.yaml") -> dict[str, tuple[str, str]]:
    """What is said of each, by what it is about; the exit code must agree."""
    result = check(file, "--connect", "--json", *arguments)
    said = json.loads(result.stdout)
    (checked,) = said["pipelines"]
    found = {one["what"]: (one["result"], one["found"]) for one in checked["connections"]}
    failed = any(result == "failed" for result, _ in found.values())
    assert (result.exit_code, said["ok"]) == (int(failed), not failed)
    return found


@pytest.mark.usefixtures("data")
def test_what_a_run_needs_is_tried_and_stays_as_it_is(here: Path) -> None:
    before = sorted(here.rglob("*"))
    found = connect("--host", "memory")
    assert {what: result for what, (result, _) in found.items()} == {"source": "ok", "sink": "ok"}
    assert found["source"][1].startswith(
        "data/spend: 4 partitions, 200 records; the newest has the event time 2026-01-0"
    )
    result = check("good.yaml", "--connect", "--host", "memory")
    assert (
        result.stdout.splitlines()[-1]
        == "  ok        sink: spend.db: user_spend_5m can be written, and no other run owns them"
    )
    assert sorted(here.rglob("*")) == before


def test_what_is_not_there_fails_with_what_to_do(here: Path) -> None:
    Path("good.yaml").write_text(GOOD.replace("spend.db", "nowhere/spend.db"))
    Path(".windrow").touch()
    found = connect("--master", "spark://127.0.0.1:1")
    assert found["source"] == (
        "failed",
        "there is no log folder data/spend; create one with `windrow generate`, or correct the path",
    )
    assert found["sink"][0] == "failed"
    assert "nowhere of nowhere/spend.db does not exist: create it" in found["sink"][1]
    assert found["checkpoint"] == (
        "failed",
        f".windrow/user-spend cannot be written: {here}/.windrow is not a folder that this user can write to",
    )
    # the tests that are not of a service have no Java
    assert (found["Java"][0], "install a Java" in found["Java"][1]) == ("failed", True)
    assert found["master"] == ("failed", "nothing accepts connections at spark://127.0.0.1:1")
    result = check("good.yaml", "--connect", "--master", "spark://127.0.0.1:1")
    assert "  FAILED    master: nothing accepts" in result.stdout
    assert "            do: start the cluster" in result.stdout


@pytest.mark.usefixtures("data")
def test_a_master_that_takes_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for master in (f"spark://127.0.0.1:1,{address}", f"k8s://https://{address}"):
            assert connect("--master", master)["master"] == ("ok", f"{master} accepts connections")
    assert connect("--master", "yarn")["master"][0] == "not known"


def test_a_log_of_other_records_is_warned_of(data: Path) -> None:
    shutil.rmtree(data)
    data.mkdir()
    (data / "partition-0.jsonl").touch()
    assert connect("--host", "memory")["source"] == ("warning", "data/spend: 1 partition without records")
    (data / "partition-0.jsonl").write_text('{"user": "a"}\n')
    assert connect("--host", "memory")["source"] == (
        "warning",
        "the newest record is a dead letter: partition 0, offset 0: missing: user_id",
    )


@pytest.mark.usefixtures("data")
def test_a_disk_that_is_nearly_full_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    full = replace(disk(Path()), free=5_000_000)
    monkeypatch.setattr("windrow.tools.doctor.connect.disk", lambda _: full)
    result, found = connect()["checkpoint"]
    assert (result, found.partition(", ")[2]) == ("warning", "5.0 MB are free; no run has left a checkpoint there")


def test_only_a_pipeline_without_errors_is_tried() -> None:
    result = check("wrong.yaml", "--connect", "--json")
    assert (result.exit_code, json.loads(result.stdout)["pipelines"][0]["connections"]) == (2, [])
    result = check("good.yaml", "--host", "memory")
    assert (result.exit_code, "--host is used only with --connect: add --connect" in result.stderr) == (2, True)


def test_a_registry_is_asked() -> None:
    with SchemaRegistry() as registry:
        source = f'{{kafka: {{servers: "127.0.0.1:1", topic: t, format: {{avro: {{registry: "{registry.url}"}}}}}}}}'
        Path("good.yaml").write_text(GOOD.replace("{log: {path: data/spend}}", source))
        found = connect("--host", "memory")
        assert found["registry"] == ("ok", f"{registry.url} answers")
        assert found["source"] == ("failed", "t at 127.0.0.1:1: no Kafka broker can be reached at 127.0.0.1:1")
        registry.login = "me:secret"
        result, why = connect("--host", "memory")["registry"]
        assert (result, "refuses these options" in why) == ("failed", True)


def test_a_registry_is_asked_for_the_schemas_of_a_sink(kafka: Kafka) -> None:
    name = f"sums-{uuid4().hex[:8]}"
    with SchemaRegistry(is_strict=True) as registry:
        encoding = f'{{avro: {{registry: {{url: "{registry.url}", options: {{max.retries: "0"}}}}}}}}'
        sink = f'{{kafka: {{servers: "{kafka.servers}", topic: {name}, encoding: {encoding}}}}}'
        Path("good.yaml").write_text(GOOD.replace("{sqlite: {path: spend.db, table: user_spend_5m}}", sink))
        result, said = connect("--host", "memory")["sink"]
        assert (result, "can be written" in said, registry.versions(f"{name}-value")) == ("ok", True, [])
        schema = {"type": "record", "name": "sums", "fields": [{"name": "user_id", "type": "long"}]}
        registry.register(f"{name}-value", {"schema": json.dumps(schema)})
        result, said = connect("--host", "memory")["sink"]
        assert (result, f"refuses a schema for the subject {name}-value" in said) == ("failed", True)
        registry.status = 500
        result, said = connect("--host", "memory")["sink"]
        assert (result, "the schema registry" in said, "cannot answer now" in said) == ("failed", True, True)


def test_a_topic_and_a_database(kafka: Kafka, topic: Callable[..., str], postgres: Postgres, database: str) -> None:
    name = topic(2)
    kafka.produce(name, 1, [b'{"user_id": "a", "event_time": 1767225600000, "amount": 1.5}'])
    given = GOOD.replace("{log: {path: data/spend}}", f'{{kafka: {{servers: "{kafka.servers}", topic: {name}}}}}')

    def write(sink: str) -> None:
        Path("good.yaml").write_text(given.replace("{sqlite: {path: spend.db, table: user_spend_5m}}", sink))

    write(f'{{postgres: {{url: "{database}", table: spend}}}}')
    found = connect()
    assert {result for result, _ in found.values()} == {"ok"}
    assert (
        "2 partitions, 1 record; the newest has the event time 2026-01-01 00:00:00 and was logged at"
        in found["source"][1]
    )
    assert found["checkpoint"][1].endswith("no run has left a checkpoint there")
    assert found["Java"][1].startswith(("17", "2"))
    with psycopg.connect(database, autocommit=True) as sql:
        assert sql.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchall() == [(0,)]
        sql.execute("CREATE ROLE checked LOGIN")
    try:
        write(f'{{postgres: {{url: "{postgres.url_of(database.rpartition("/")[2], "checked")}", table: spend}}}}')
        result, why = connect("--host", "memory")["sink"]
        assert (result, "user 'checked' may not create it: GRANT CREATE" in why) == ("failed", True)
    finally:
        with psycopg.connect(database, autocommit=True) as sql:
            sql.execute("DROP ROLE checked")
    # a run has left its rows there
    write(f'{{postgres: {{url: "{database}", table: spend}}}}')
    ran = CliRunner().invoke(main, ["run", "good.yaml", "--until-end", "--host", "memory"])
    assert ran.exit_code == 0, ran.output
    result, why = connect()["sink"]
    assert (result, "'spend' holds the rows of another run of pipeline 'user-spend'" in why) == ("failed", True)
