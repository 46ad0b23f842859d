"""`windrow explain`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.graphs import as_graph, parse_short
from tests.short_forms import graph_of_short

from windrow.authoring.load import open_pipeline
from windrow.authoring.printing import to_mermaid, to_python_file, to_text, to_yaml
from windrow.authoring.sections import mask_secrets
from windrow.cli import main

TEXT = """\
name: user-spend
source: {kafka: {servers: "localhost:9092", topic: spend, start: earliest, options: {sasl.jaas.config: hunter2}}}
decode: {user_id: string, event_time: timestamp_millis, amount: 'decimal(12,2)'}
time: {field: event_time, delay: 10m, future: 1h}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
emit: {lateness: 1h, late: each, mode: retract}
sink: {postgres: {url: "postgresql://me:hunter2@localhost/spend", table: user_spend_5m}}
"""
PIPELINE = parse_short(TEXT)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(TEXT)


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", "pipeline.yaml", *arguments])


def test_each_format() -> None:
    assert explain().stdout == to_text(as_graph(PIPELINE))
    for format_, print_ in {"text": to_text, "yaml": to_yaml, "mermaid": to_mermaid, "python": to_python_file}.items():
        result = explain("--format", format_)
        assert (result.exit_code, result.stdout) == (0, print_(as_graph(PIPELINE)))
    assert json.loads(explain("--format", "json").stdout)["window"] == {"tumbling": "5m"}
    assert (
        explain("--format", "yaml", "--json").stdout == explain("--json").stdout == explain("--format", "json").stdout
    )


def test_the_python_is_a_file_that_gives_the_pipeline_again() -> None:
    Path("again.py").write_text(explain("--format", "python").stdout)
    assert open_pipeline("again.py").runnable() == as_graph(mask_secrets(graph_of_short(PIPELINE)))


@pytest.mark.parametrize("format_", ["text", "yaml", "json", "mermaid", "python"])
def test_no_format_shows_a_secret(format_: str) -> None:
    assert "hunter2" not in explain("--format", format_).output


def test_a_pipeline_with_errors_is_refused() -> None:
    Path("pipeline.yaml").write_text(TEXT.replace("[user_id]", "[usr_id]").replace("5m}", "0m}"))
    result = explain()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "windrow: pipeline.yaml:5: key.0: 'usr_id' is not a field of decode; did you mean 'user_id'?\n"
        "pipeline.yaml:6: window.tumbling.size: must be longer than 0, such as 5m\n"
    )
    error = json.loads(explain("--json").stderr)["error"]
    assert error["exit_code"] == 2
    assert [(one["file"], one["line"]) for one in error["problems"]] == [("pipeline.yaml", 5), ("pipeline.yaml", 6)]


def test_a_secret_in_the_wrong_place_is_not_repeated() -> None:
    url = "postgresql://me:hunter2@localhost/spend"
    for sink in (f'"{url}"', f'{{url: "{url}:x", table: t, tabel: t}}', f'{{url: ["{url}"], table: t}}'):
        Path("pipeline.yaml").write_text(f"{TEXT[: TEXT.index('sink:')]}sink: {{postgres: {sink}}}\n")
        result = explain()
        assert result.exit_code == 2
        assert "hunter2" not in result.output


def test_ddl_prints_the_tables_of_a_run_and_the_grants_of_its_role() -> None:
    lines = explain("--ddl").stdout.splitlines()
    assert lines[0] == "-- postgresql://me:***@localhost/spend"
    assert 'GRANT SELECT, INSERT, UPDATE, DELETE ON "user_spend_5m" TO "me";' in lines
    assert any(line.startswith('CREATE TABLE "user_spend_5m_changes" ("epoch" bigint NOT NULL,') for line in lines)
    assert all(line.endswith(";") for line in lines[1:])
    assert explain("--ddl", "--json").exit_code == 2
    url, own = "postgresql://me:hunter2@localhost/spend", "postgresql://${PGHOST}/spend"
    Path("pipeline.yaml").write_text(TEXT.replace(url, own).replace("table: ", "schema: s, table: "))
    lines = explain("--ddl").stdout.splitlines()
    assert lines[1] == 'SET search_path = "s";'
    assert lines[-1].startswith("-- GRANT ")
    Path("pipeline.yaml").write_text(f"{TEXT[: TEXT.index('sink:')]}sink: {{sqlite: {{path: a.db, table: spend}}}}\n")
    refused = explain("--ddl")
    assert (refused.exit_code, "but the sinks are sqlite" in refused.stderr) == (2, True)


@pytest.mark.parametrize("encoding", ["avro", "protobuf", "json_schema"])
def test_ddl_prints_the_schemas_of_topics(encoding: str) -> None:
    sink = 'kafka: {servers: "h:9092", topic: spend, format: upsert, key_subject: acme.Key'
    registry = f'encoding: {{{encoding}: {{registry: "http://me:hunter2@h:8081"}}}}'
    head = TEXT[: TEXT.index("sink:")]
    Path("pipeline.yaml").write_text(f"{head}sink: {{{sink}, {registry}}}}}\n")
    lines = explain("--ddl").stdout.splitlines()
    kind = {"json_schema": "JSON"}.get(encoding, encoding.upper())
    assert lines[::2] == [
        f"-- {kind} schema for the subject {subject} at http://me:***@h:8081:"
        for subject in ("spend-value", "acme.Key")
    ]
    assert all(line.startswith("-- ") for line in lines)
    if encoding != "protobuf":
        value, key = (json.loads(line.removeprefix("-- ")) for line in lines[1::2])
        assert "total" in json.dumps(value)
        assert "total" not in json.dumps(key)
    Path("pipeline.yaml").write_text(f"{head}sink: {{{sink.replace(', key_subject: acme.Key', '')}}}}}\n")
    refused = explain("--ddl")
    assert (refused.exit_code, "but the sinks are kafka" in refused.stderr) == (2, True)
