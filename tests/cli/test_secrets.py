"""No command prints or writes a secret of a pipeline, however it is given and wherever it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from windrow.authoring.load import open_pipeline
from windrow.authoring.variables import Given
from windrow.cli import main
from windrow.model.references import resolve_arguments
from windrow.runtime.run import CommandLines
from windrow.tools.generate import LogSpec, write_log

CANARY = "c4nary"
ODD = "c4nary@c4nary/c4nary:c4nary%c4nary?c4nary#c4nary&c4nary"
"""A password with all that has a meaning in a URL, and is not percent-encoded."""
OF_SERVERS = """\
name: spend
source:
  kafka:
    servers: 127.0.0.1:1
    topic: spend
    options:
      security.protocol: SASL_PLAINTEXT
      sasl.mechanism: PLAIN
      sasl.username: windrow
      sasl.password: {secret}
      sasl.jaas.config: 'x required username="u" password={secret};'
      ssl.key.pem: {secret}
      ssl.key.password: {secret}
    format:
      avro:
        registry: {{url: {registry}, options: {{basic.auth.user.info: {login}}}}}
decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
time: {{field: event_time, delay: 1m}}
key: [user_id]
window: {{tumbling: 5m}}
aggregate: {{total: sum(amount)}}
emit: {{lateness: 1h}}
sink: {{postgres: {{url: {url}, table: spend}}}}
"""
OF_ALERTS = """\
name: spend
source: {{log: {{path: log}}}}
decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
time: {{field: event_time, delay: 1m}}
key: [user_id]
window: {{tumbling: 5m}}
aggregate: {{total: sum(amount)}}
emit: {{lateness: 1h}}
sink: {{sqlite: {{path: spend.db, table: spend}}}}
alerts: {{dead-letters: 0.000001, webhook: {webhook}, command: {command}}}
"""
EXPLAIN = [["explain", "--format", format_] for format_ in ("text", "yaml", "json", "python", "mermaid")]
LOOKING = [
    *EXPLAIN,
    ["check"],
    ["check", "--connect"],
    ["status"],
    ["doctor"],
    ["show"],
    ["capacity", "--rate", "10", "--keys", "10"],
    ["state"],
    ["savepoint", "--to", "savepoint"],
    ["preview"],
    ["tune", "--log"],
    ["replay"],
    ["diff"],
    ["redrive", "--list"],
    ["run", "--until-end", "--host", "memory"],
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def windrow(command: list[str], *arguments: str) -> str:
    """Run a command on the pipeline; return all that it printed, with the stack of an error."""
    name, *options = command
    result = CliRunner().invoke(main, ["--debug", name, "pipeline.yaml", *options, *arguments])
    return result.output


def leaking(*texts: str) -> list[str]:
    """Return what has the canary in it: of the texts, and of the files that a command has written."""
    ours = {"pipeline.yaml", "pipeline.sql", "secret", "windrow.yaml"}
    files = [path for path in Path().rglob("*") if path.is_file() and path.name not in ours]
    found = [str(path) for path in files if CANARY.encode() in path.read_bytes()]
    return found + [text for text in texts if CANARY in text.lower()]


WAYS = {
    "environment": "${CANARY}",
    "file": "${file:secret}",
    "variable": "${CANARY}",
    "profile": "${CANARY}",
    "default": f"${{NOT_GIVEN:-{CANARY}}}",
    "plain": ODD,
}
"""How a secret is given."""


def given_by(way: str, monkeypatch: pytest.MonkeyPatch, secret: str = ODD) -> list[str]:
    """Give the secret; return the options for a command."""
    monkeypatch.delenv("CANARY", raising=False)
    match way:
        case "environment":
            monkeypatch.setenv("CANARY", secret)
        case "file":
            Path("secret").write_text(f"{secret}\n")
        case "variable":
            return ["--var", f"CANARY={secret}"]
        case "profile":
            Path("windrow.yaml").write_text(f"profiles: {{prod: {{CANARY: {json.dumps(secret)}}}}}\n")
            return ["--profile", "prod"]
        case _:
            pass
    return []


def of_servers(text: str, url: str, registry: str) -> str:
    return OF_SERVERS.format(
        secret=json.dumps(text), login=json.dumps(f"u:{text}"), url=json.dumps(url), registry=json.dumps(registry)
    )


def of_alerts(webhook: str, *command: str) -> str:
    return OF_ALERTS.format(webhook=json.dumps(webhook), command=json.dumps(command))


@pytest.mark.parametrize("way", WAYS)
def test_no_print_out_has_a_secret(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, options = WAYS[way], given_by(way, monkeypatch)
    urls = (
        f"postgresql://u:{text}@127.0.0.1:1/db",
        f"postgresql://u@corp:{text}@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1/db?user=u&password={text}",
        f"postgresql://127.0.0.1:1/db?sslpassword={text}&sslmode=prefer",
    )
    for url in urls:
        Path("pipeline.yaml").write_text(of_servers(text, url, f"http://u:{text}@127.0.0.1:1"))
        said = [windrow(command, *options) for command in (*EXPLAIN, ["check"])]
        assert leaking(*said) == []
        assert all("127.0.0.1:1" in one for one in said[:-1])
    for hook in (f"http://u:{text}@127.0.0.1:1/x", f"http://127.0.0.1:1/{text}", f"http://127.0.0.1:1?{text}"):
        arguments = ["curl", "-H", f"Authorization: Bearer {text}", f"--password={text}", f"http://u:{text}@h/{text}"]
        Path("pipeline.yaml").write_text(of_alerts(hook, *arguments))
        said = [windrow(command, *options) for command in (*EXPLAIN, ["check"])]
        assert leaking(*said) == []
        assert "Authorization" in said[1]


OF_A_TABLE = """\
name: spend
sources:
  orders:
    source:
      postgres_cdc:
        {{url: {url}, table: t, servers: "127.0.0.1:1", topic: t, options: {{sasl.password: {secret}}}}}
    decode: {{user_id: string, event_time: timestamp_millis}}
    time: {{field: event_time, delay: 1m}}
streams:
  totals: {{from: orders, key: user_id, window: {{tumbling: 5m}}, aggregate: {{n: count()}}}}
sinks:
  changes:
    from: totals
    sink:
      kafka:
        servers: "127.0.0.1:1"
        topic: u
        options: {{ssl.key.password: {secret}}}
        encoding: {{avro: {{registry: {{url: {registry}, options: {{basic.auth.user.info: {secret}}}}}}}}}
"""
IN_SQL = """\
SET 'name' = 'spend';
SET 'alerts.webhook' = 'http://127.0.0.1:1/{secret}';
CREATE TABLE spend (
  user_id STRING, event_time TIMESTAMP_LTZ(3), amount DECIMAL(12, 2),
  WATERMARK FOR event_time AS event_time - INTERVAL '10' MINUTES
) WITH ('connector' = 'kafka', 'servers' = '127.0.0.1:1', 'topic' = 'spend', 'options.sasl.password' = '{secret}');
CREATE TABLE totals WITH ('connector' = 'postgres', 'url' = 'postgresql://u:{secret}@127.0.0.1:1/db', 'table' = 't');
INSERT INTO totals SELECT window_start, window_end, user_id, sum(amount) AS total
FROM TUMBLE(TABLE spend, DESCRIPTOR(event_time), INTERVAL '5' MINUTES) GROUP BY window_start, window_end, user_id;
"""


@pytest.mark.parametrize("way", WAYS)
def test_no_print_out_of_a_graph_has_a_secret(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, options = WAYS[way], given_by(way, monkeypatch)
    url = json.dumps(f"postgresql://u:{text}@127.0.0.1:1/db")
    registry = json.dumps(f"http://u:{text}@127.0.0.1:1")
    Path("pipeline.yaml").write_text(OF_A_TABLE.format(url=url, secret=json.dumps(text), registry=registry))
    said = [windrow(command, *options) for command in EXPLAIN]
    assert leaking(*said) == []
    assert all("127.0.0.1:1" in one for one in said), said[0]
    Path("pipeline.sql").write_text(IN_SQL.format(secret=text))
    said = [CliRunner().invoke(main, [*command, "pipeline.sql", *options]).output for command in EXPLAIN]
    assert [one for one in said if CANARY in one] == []
    assert all("127.0.0.1:1" in one for one in said), said[0]
    Path("pipeline.sql").write_text(f"CREATE TABLE t WITH ('url' = 'x' 'postgresql://u:{CANARY}@h/db');\n")
    assert CANARY not in CliRunner().invoke(main, ["check", "pipeline.sql"]).output


@pytest.mark.parametrize("way", ["environment", "file", "variable", "profile"])
@pytest.mark.parametrize("scheme", ["postgresql", "http"])
def test_a_whole_url_has_no_secret(way: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url, registry = "postgresql://127.0.0.1/db", "http://127.0.0.1"
    for password in (ODD, CANARY):
        options = given_by(way, monkeypatch, f"{scheme}://u:{password}@127.0.0.1/db")
        is_sink = scheme == "postgresql"
        Path("pipeline.yaml").write_text(
            of_servers("x", WAYS[way] if is_sink else url, registry if is_sink else WAYS[way])
        )
        said = [windrow(command, *options) for command in EXPLAIN]
        assert leaking(*said) == []
        assert all("spend" in one for one in said)


@pytest.mark.parametrize("way", ["environment", "variable"])
@pytest.mark.parametrize(
    ("setting", "replaced"),
    [("delay", "delay: 1m"), ("servers", "servers: 127.0.0.1:1"), ("key", "[user_id]")],
)
def test_a_setting_that_is_for_no_secret_is_not_said(
    setting: str, replaced: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = given_by(way, monkeypatch, "c4nary@h:1" if setting == "servers" else ODD)
    text = of_servers("x", "postgresql://127.0.0.1:1/db", "http://127.0.0.1:1")
    value = '["${CANARY}"]' if setting == "key" else f'{setting}: "${{CANARY}}"'
    Path("pipeline.yaml").write_text(text.replace(replaced, value))
    commands = [*EXPLAIN, ["check"], ["check", "--json"], ["check", "--connect"], ["run", "--json", "--until-end"]]
    said = [windrow(command, *options) for command in commands]
    assert leaking(*said) == []
    assert "${CANARY}" in said[0]
    assert "${CANARY}" in said[-1]


CANNOT_CONNECT = {
    "a part": ("environment", "u:${CANARY}"),
    "an @": ("plain", f"u:{ODD}"),
    "a slash": ("plain", f"u:{CANARY}/{CANARY}"),
    "all as the user": ("variable", "${CANARY}"),
}


@pytest.mark.parametrize(
    "kind", [kind if kind == "a part" else pytest.param(kind, marks=pytest.mark.long) for kind in CANNOT_CONNECT]
)
def test_what_cannot_connect_does_not_say_a_secret(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    way, login = CANNOT_CONNECT[kind]
    text, options = WAYS[way], given_by(way, monkeypatch)
    Path("pipeline.yaml").write_text(
        of_servers(text, f"postgresql://{login}@127.0.0.1:1/db", f"http://u:{text}@127.0.0.1:1")
    )
    commands = [["check", "--connect"], ["run", "--until-end", "--host", "memory"]] if kind == "a part" else LOOKING
    said = [windrow(command, *options) for command in commands]
    assert leaking(*said) == []
    assert ("127.0.0.1:1" in said[-1]) == (kind != "a slash")


@pytest.mark.parametrize("kind", CANNOT_CONNECT)
def test_a_database_that_is_not_there_does_not_say_a_secret(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    way, login = CANNOT_CONNECT[kind]
    options = given_by(way, monkeypatch)
    write_log(LogSpec(events=10, partitions=1), Path("log"))
    text = of_alerts("http://127.0.0.1:1")
    sink = f"{{postgres: {{url: {json.dumps(f'postgresql://{login}@127.0.0.1:1/db')}, table: spend}}}}"
    Path("pipeline.yaml").write_text(text.replace("{sqlite: {path: spend.db, table: spend}}", sink))
    said = [windrow(command, *options) for command in LOOKING]
    assert leaking(*said) == []
    assert "sink" in said[-1]


@pytest.mark.parametrize("way", ["environment", pytest.param("variable", marks=pytest.mark.long)])
def test_nothing_that_a_run_leaves_has_a_secret(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(LogSpec(events=1_000, partitions=2, malformed_share=0.1), Path("log"))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(Path("lineage").absolute()))
    options = given_by(way, monkeypatch)
    # it says what it was given, and fails
    program = [sys.executable, "-c", "import sys; raise SystemExit(sys.argv[1])", "${CANARY}"]
    Path("pipeline.yaml").write_text(of_alerts("http://u:${CANARY}@127.0.0.1:1/${CANARY}", *program))
    said = windrow(["run", "--until-end", "--host", "memory"], *options)
    assert "dead letters" in said
    assert leaking(said, *(windrow(command, *options) for command in LOOKING)) == []
    assert len(list(Path().rglob("*"))) > 5


def test_a_command_is_given_what_its_variables_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", ODD)
    Path("secret").write_text("of a file\n")
    command = ["sh", "-c", "echo $${HOME} ${CANARY}", "${file:secret}", "${NOT_GIVEN:-else}"]
    Path("pipeline.yaml").write_text(of_alerts("${CANARY}", *command))
    for given, value in ((Given(), ODD), (Given({"CANARY": "}{"}), "}{")):
        alerts = open_pipeline("pipeline.yaml", given).pipeline.alerts
        argv = resolve_arguments(alerts.command, "alerts.command")
        assert argv == ("sh", "-c", f"echo ${{HOME}} {value}", "of a file", "else")
    monkeypatch.delenv("CANARY")
    assert "${CANARY}" in windrow(["explain"]), "it is resolved when an alert is sent"


def test_a_command_line_that_is_advised_has_no_secret_and_can_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(LogSpec(events=100, partitions=2), Path("log"))
    text = of_alerts("http://h/${HOOK}", "notify", "${TOKEN}").replace("{tumbling: 5m}", '{tumbling: "${SIZE}"}')
    Path("pipeline.yaml").write_text(text.replace("path: spend.db", 'path: "${DB}.db"'))
    given = {"HOOK": "c4nary1", "TOKEN": "c4nary2", "SIZE": "5m", "DB": "c4nary three"}
    for name in given:
        monkeypatch.delenv(name, raising=False)
    options = [word for name, value in given.items() for word in ("--var", f"{name}={value}")]
    said = windrow(["doctor"], *options)
    assert leaking(said) == []
    found = re.search(r"(windrow tune .* --log)", said)
    assert found is not None, said
    assert "--var SIZE=5m" in found[1]
    of_shell = _words_of_shell(found[1], given)
    assert of_shell == ["tune", "pipeline.yaml", *options, "--log"]
    assert _words_of_shell(found[1], {**given, "DB": ""}) == [], "the shell says that DB is not set"
    line = CommandLines("pipeline.yaml", 'a "$1" c4nary three').of("status {c}")
    assert leaking(line) == []
    assert _words_of_shell(line, given) == ["status", "pipeline.yaml", "--checkpoint", 'a "$1" c4nary three']


def _words_of_shell(line: str, environment: dict[str, str]) -> list[str]:
    """Return the arguments that a shell gives to the command of a line; nothing if it refuses the line."""
    script = line.replace("windrow", "printf '%s\\n'", 1)
    ran = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    return ran.stdout.splitlines()
