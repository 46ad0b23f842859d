"""Variables of a pipeline file: where values come from, what they become, and what is said of those without one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from tests.graphs import as_graph, graph_of, parse_short
from tests.short_forms import Pipeline

import windrow as wr
from windrow.authoring.load import open_pipeline, open_pipelines
from windrow.authoring.pipeline_file import read_document
from windrow.authoring.printing import to_json, to_mermaid, to_python_file, to_svg, to_text, to_yaml
from windrow.authoring.variables import Given
from windrow.authoring.yaml_edit import set_values
from windrow.client.findings import find
from windrow.connectors.postgres.client import Server
from windrow.connectors.sink import Run
from windrow.errors import InputError, PipelineError, SourceError
from windrow.model import LogSource, PostgresSink
from windrow.model.references import mask_url
from windrow.runtime.compatibility import pipeline_changes
from windrow.runtime.savepoint import fingerprint
from windrow.runtime.stream.checkpoint import Checkpoint

TEXT = """\
name: spend
source: {log: {path: "${DATA:-/data}/log"}}
decode: {user_id: string, city: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time:
  field: event_time
  delay: ${DELAY}
key: ${KEYS:-[user_id]}
window: {tumbling: "${SIZE:-5m}"}
aggregate: {total: sum(amount)}
emit: {lateness: 1h}
sink:
  postgres:
    url: postgresql://windrow:${DB_PASSWORD}@${DB_HOST:-localhost}/spend
    table: spend
"""
PROFILES = """\
profiles:
  dev: {DELAY: 1m, DB_HOST: dev.example.org}
  prod: {DELAY: 10m, DATA: /mnt}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("WINDROW_PROFILE", "DATA", "DELAY", "KEYS", "SIZE", "DB_PASSWORD", "DB_HOST"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "windrow.yaml").write_text(PROFILES)
    path = tmp_path / "spend.yaml"
    path.write_text(TEXT)
    return path


def _loaded(file: Path, variables: Mapping[str, str] | None = None, profile: str | None = None) -> Pipeline:
    return graph_of(wr.load(file, vars=variables, profile=profile), Pipeline)


def test_a_value_is_that_of_the_option_then_the_profile_then_the_environment_then_the_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAY", "30m")
    monkeypatch.setenv("DATA", "/env")
    delays = [parse_short(TEXT.replace("${DELAY}", delay)).time for delay in ("30m", "10m", "2m", "1m", "10m")]
    found = [_loaded(file), _loaded(file, profile="prod"), _loaded(file, {"DELAY": "2m"}, "prod")]
    monkeypatch.setenv("WINDROW_PROFILE", "dev")
    found += [_loaded(file), _loaded(file, profile="prod")]
    assert [one.time for one in found] == delays
    assert [getattr(one.source, "path", None) for one in found] == [
        "/env/log", "/mnt/log", "/mnt/log", "/env/log", "/mnt/log"
    ]  # fmt: skip
    monkeypatch.setenv("DATA", "")
    assert getattr(_loaded(file).source, "path", None) == "/data/log"  # `:-` is for an empty one, too


def test_a_whole_plain_value_is_read_as_yaml_and_a_quoted_one_is_text(file: Path) -> None:
    found = _loaded(file, {"KEYS": "[user_id, city]", "SIZE": "1h"}, "dev")
    assert found.key == ("user_id", "city")
    assert found == _loaded(
        file, {"KEYS": "[user_id, city]", "SIZE": "1h", "DELAY": "1m", "DB_HOST": "dev.example.org"}
    )
    with pytest.raises(PipelineError, match=r"spend.yaml:7: the value of KEYS cannot be read as YAML"):
        _loaded(file, {"KEYS": "[user_id"}, "dev")
    with pytest.raises(PipelineError, match=r"spend.yaml:7: key is missing"):
        _loaded(file, {"KEYS": " "}, "dev")


def test_all_variables_without_a_value_are_named_with_their_lines(file: Path) -> None:
    file.write_text(TEXT.replace("lateness: 1h", 'lateness: "${LATE}"'))
    with pytest.raises(PipelineError) as refused:
        wr.load(file)
    lines = str(refused.value).splitlines()
    assert [line.split(": the")[0] for line in lines] == [f"{file}:6", f"{file}:10"]
    assert "the variable LATE has no value: give --var LATE=VALUE" in lines[1]


@pytest.mark.parametrize(
    ("variables", "profile", "said"),
    [
        ({"DELY": "1m"}, "dev", r"\${DELY} is given a value, but .*spend.yaml does not use it; did you mean DELAY\?"),
        ({}, "nix", r"windrow.yaml:1: there is no profile 'nix'; the profiles are dev, prod"),
        ({"DATA": "/a/${B}"}, "dev", "spend.yaml:2: the value of DATA refers to another variable"),
    ],
)
def test_a_given_name_that_leads_nowhere_is_an_error(
    file: Path, variables: dict[str, str], profile: str, said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        wr.load(file, vars=variables, profile=profile)


def test_a_profile_needs_its_file_only_where_there_are_variables(file: Path) -> None:
    (file.parent / "windrow.yaml").unlink()
    with pytest.raises(PipelineError, match=r"there is no file windrow.yaml beside the pipeline"):
        wr.load(file, profile="dev")
    plain = file.with_name("plain.yaml")
    plain.write_text(to_yaml(as_graph(_loaded(file, {"DELAY": "1m", "DB_HOST": "h", "DB_PASSWORD": "p"}))))
    assert wr.load(plain, profile="dev").name == "spend"


def test_what_begins_no_variable_is_an_error_and_can_be_escaped() -> None:
    text = TEXT.replace("${DELAY}", "1m")
    for wrong in ("${file:/etc/x}", "${1}", "${A-b}"):
        with pytest.raises(PipelineError, match=r"^x.yaml:2: \$\{ is not followed by a variable"):
            read_document(text.replace("${DATA:-/data}", wrong), "x.yaml")
    pipeline = read_document(text.replace("${DATA:-/data}", "$${DATA}"), "x.yaml").pipeline
    assert pipeline.sources[0].source == LogSource("${DATA}/log")
    hint = 'within {...} put "${NAME}" in quotes'
    with pytest.raises(PipelineError) as refused:
        read_document(text.replace('"${SIZE:-5m}"', "${SIZE:-5m}"), "x.yaml")
    assert hint in str(refused.value)


@drawn(st.text(alphabet="$${}A:-\\ '", max_size=12))
def test_any_text_is_printed_so_that_no_variable_is_read_in_it(part: str) -> None:
    made = parse_short(TEXT.replace("${DELAY}", "1m"))
    odd = replace(made, source=LogSource(f"/x{part}"))
    assert parse_short(to_yaml(as_graph(odd))) == odd


def test_a_secret_of_the_environment_stays_a_reference_and_a_given_one_is_masked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    by_reference = _loaded(file, profile="dev")
    assert isinstance(by_reference.sink, PostgresSink)
    assert by_reference.sink.url == "postgresql://windrow:${DB_PASSWORD}@dev.example.org/spend"
    given = _loaded(file, {"DB_PASSWORD": "hunt/er2"}, "dev")
    assert isinstance(given.sink, PostgresSink)
    assert Server(given.sink.url, "sink").parts["password"] == "hunt/er2"  # noqa: S105 - a test's
    for print_ in (to_text, to_yaml, to_json, to_python_file):
        assert "hunter2" not in str(print_(as_graph(by_reference)))
        assert "hunt" not in str(print_(as_graph(given)))
    default = _loaded(file, {"DELAY": "1m"}).sink
    assert isinstance(default, PostgresSink)
    assert Server(default.url, "sink").parts["host"] == "localhost"
    monkeypatch.delenv("DB_PASSWORD")
    with pytest.raises(InputError, match="the environment variable DB_PASSWORD is not set"):
        _ = Server(default.url, "sink").address


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:${P}@${H:-h}:${PORT:-5432}/d", "postgresql://u:${P}@${H:-h}:${PORT:-5432}/d"),
        ("postgresql://u:${P:-secret}@h/d", "postgresql://u:***@h/d"),
        ("${U:-postgresql://u:secret@h/d}", "${U:-postgresql://u:***@h/d}"),
        ("postgresql://${U:-u}:${P}@h/d?password=${Q}x", "postgresql://${U:-u}:${P}@h/d?password=***"),
    ],
)
def test_a_password_in_a_default_is_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown


PRIVATE = "s3cret/Word9 x"
"""A value that is read in parts where an expression is expected."""
OF_ALL = """\
name: spend
source: {log: {path: "${PATH_-/data}/log"}}
decode: {user_id: string, city: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
derive: {more: "${MORE-amount + 1}"}
time: {field: "${FIELD-event_time}", delay: "${DELAY-1m}", jump: 1d}
key: ["${KEY-user_id}"]
window: {tumbling: "${SIZE-5m}"}
aggregate: {total: "sum(${TOTAL-amount})"}
emit: {lateness: "${LATE-1h}"}
sink: {sqlite: {path: "${DB-spend.db}", table: spend}}
""".replace("-", ":-")


@pytest.mark.parametrize(
    ("way", "secret"),
    [
        ("environment", "hunter2"),
        ("command line", "swordfish"),
        ("environment", PRIVATE),
        ("command line", 'it\'s "s3cret" <9>'),
        ("environment", "s3cret1 plus\ns3cret2 'q'\t%s3cret3\nand s3cret4"),
    ],
)
def test_no_setting_is_printed_with_what_the_environment_has(
    secret: str, way: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = re.findall(r"\$\{(\w+)", OF_ALL)
    file.write_text(OF_ALL)
    refused = []
    for name in names:
        given = {name: secret} if way == "command line" else {}
        with monkeypatch.context() as patch:
            for one in names:
                patch.delenv(one, raising=False)
            if not given:
                patch.setenv(name, secret)
            try:
                opened = open_pipeline(str(file), Given(given))
                said = [repr(wr.Pipeline(opened.pipeline)), *map(str, find(opened.pipeline))]
                said += [
                    str(print_(opened.runnable()))
                    for print_ in (to_text, to_yaml, to_json, to_python_file, to_mermaid, to_svg)
                ]
            except PipelineError as exc:
                refused.append(name)
                said = [str(exc)]
        assert any(f"${{{name}}}" in one for one in said), (name, said)
        parts = {secret, *re.findall(r"\w*[0-9]\w*", secret)} - {"9"}
        assert [one for one in said if any(part.lower() in one.lower() for part in parts)] == [], name
    assert {"FIELD", "DELAY", "KEY", "SIZE", "TOTAL", "LATE"} <= set(refused)


@pytest.mark.parametrize(
    "value",
    [
        "zebra + amount",
        "amount + 'zebra quokka'",
        "zebra(quokka)",
        "CAST('zebra' AS BIGINT)",
        "zebra, quokka",
        "zebra.quokka",
        "zebra quokka",
        "amount > 'zebra\nquokka' %%",
        "(SELECT zebra FROM quokka)",
        "amount + zebra(",
    ],
)
def test_no_message_quotes_a_word_of_a_value(value: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MORE", "FIELD", "KEY", "TOTAL", "SIZE", "WHERE", "GAP"):
        text = OF_ALL.replace("key:", "# ${WHERE}\nkey:")
        if name == "WHERE":
            text = text.replace("sum(${TOTAL:-amount})", "count() where ${WHERE}")
        elif name == "GAP":
            text = text.replace('tumbling: "${SIZE:-5m}"', 'session: {gap: "${GAP}", max: 1h}')
        file.write_text(text)
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            try:
                said = [str(one) for one in find(open_pipeline(str(file)).pipeline)]
            except PipelineError as exc:
                said = [str(exc)]
        assert said == [] or any(f"${{{name}}}" in one for one in said), said
        assert [one for one in said if re.search("zebra|quokka", one, re.IGNORECASE)] == [], name


def test_a_word_that_a_value_is_a_part_of_is_hidden_and_names_are_not(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = OF_ALL.replace("${PATH_:-/data}/log", "/data/my${A}s/${B}${A}.${C}").replace(
        "table: spend}", 'table: "spend_${C}"}'
    )
    file.write_text(text)
    for name, value in {"A": "zebra", "B": "quokka", "C": "lemur"}.items():
        monkeypatch.setenv(name, value)
    graph = as_graph(_loaded(file))
    assert "/data/my${A}s/${B}${A}.lemur" in to_text(graph)
    assert str(SourceError("/data/my${A}s, myzebras, quokka")) == "/data/my${A}s, my${A}s, ${B}"
    assert "spend_lemur" in to_text(graph)


def test_a_value_that_is_a_figure_or_in_the_file_or_a_word_of_files_is_printed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"DELAY": "5s", "KEYS": "[user_id]", "DB_HOST": "city", "SIZE": "earliest"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PipelineError, match=r"window.tumbling: 'earliest' is not a duration"):
        wr.load(file)
    monkeypatch.setenv("SIZE", "15m")
    shown = to_text(as_graph(_loaded(file)))
    assert "5s behind" in shown
    assert "15m long" in shown
    assert "user_id, in 8 key groups" in shown
    monkeypatch.setenv("DATA", "/data/of/mine")
    assert "${DATA}/log" in to_text(as_graph(_loaded(file)))
    assert parse_short(to_yaml(as_graph(_loaded(file)))) == parse_short(file.read_text())
    # which is hidden in other texts too, and is no part of other words
    assert str(SourceError("/data/of/mine/x, /data, hunt")) == "${DATA}/x, /data, hunt"


CDC = """\
name: spend
source: {postgres_cdc: {url: "postgresql://u:${DB_PASSWORD}@h/d", table: t, log: l}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 1m}
key: [user_id]
window: {tumbling: "${SIZE}"}
aggregate: {total: sum(amount)}
emit: {lateness: 1h}
sink: {sqlite: {path: s.db, table: t}}
"""


def test_state_does_not_depend_on_how_a_value_was_given(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x")
    monkeypatch.setenv("SIZE", "5m")
    file.write_text(CDC)
    one, other = _loaded(file), _loaded(file, {"DB_PASSWORD": "y", "SIZE": "5m"})
    assert one != other
    assert pipeline_changes(fingerprint(as_graph(one)), fingerprint(as_graph(other))) == []
    file.write_text(CDC.replace("log: l}", 'servers: "h:1", topic: t, options: {ssl.key.password: "${DB_PASSWORD}"}}'))
    one, other = _loaded(file), _loaded(file, {"DB_PASSWORD": "y", "SIZE": "5m"})
    assert pipeline_changes(fingerprint(as_graph(one)), fingerprint(as_graph(other))) == []


GRAPH = """\
name: spend
sources:
  orders:
    source:
      postgres_cdc: {url: "postgresql://h/d", table: t, servers: "h:1", topic: t, options: {ssl.key.password: "${P}"}}
    decode: {user_id: string, event_time: timestamp_millis}
    time: {field: event_time, delay: 1m}
streams:
  known: {from: orders, where: user_id is not null, select: [user_id, event_time]}
  totals: {from: known, key: user_id, window: {tumbling: 5m}, aggregate: {n: count()}}
sinks: {totals: {from: totals, sink: {sqlite: {path: s.db, table: totals}}}}
"""


def test_a_graph_resumes_from_before_though_its_secret_is_given_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(GRAPH)
    (graph,) = open_pipelines(str(file), Given({"P": "x"}))
    now = fingerprint(graph.pipeline)
    before = json.loads(json.dumps(now))
    # as it was kept when options counted
    before["records"]["orders"]["source"]["postgres_cdc"]["options"] = {"ssl.key.password": "${P}"}
    assert before != now
    assert pipeline_changes(before, now) == []
    assert Checkpoint(tmp_path, Run("spend", "1"), (0,), before, None).differences(graph.pipeline) == []


def test_a_pipeline_in_sql_has_variables_in_its_texts(tmp_path: Path) -> None:
    pytest.importorskip("sqlglot")
    file = tmp_path / "spend.sql"
    file.write_text(
        "SET 'name' = 'spend';\n"
        "CREATE TABLE spend (user_id STRING, event_time TIMESTAMP_LTZ(3), amount DECIMAL(12, 2),\n"
        "  WATERMARK FOR event_time AS event_time - INTERVAL '10' MINUTES)\n"
        "WITH ('connector' = 'log', 'path' = '${DATA}/log', 'time.future' = '${FUTURE:-1h}');\n"
        "CREATE TABLE t WITH ('connector' = 'sqlite', 'path' = 'a.db', 'table' = 't', 'emit.lateness' = '1h');\n"
        "INSERT INTO t SELECT window_start, window_end, user_id, sum(amount) AS total\n"
        "FROM TUMBLE(TABLE spend, DESCRIPTOR(event_time), INTERVAL '5' MINUTES)\n"
        "GROUP BY window_start, window_end, user_id;\n"
    )
    with pytest.raises(PipelineError, match=r"spend.sql:4:\d+: the variable DATA has no value"):
        wr.load(file)
    assert "${DATA}/log" in to_yaml(wr.load(file, vars={"DATA": "/mnt"}).graph)


AGAIN = TEXT.replace("name: spend", "name: ${OTHER:-again}").replace("table: spend", "table: again")
SEVERAL = f"{TEXT.replace('${DELAY}', '1m')}---\n{AGAIN}---\n"


def test_a_file_has_several_pipelines_as_documents(file: Path) -> None:
    file.write_text(SEVERAL.replace("${OTHER:-again}", "again"))
    given = Given({"DELAY": "2m"})
    assert [one.pipeline.name for one in open_pipelines(str(file), given)] == ["spend", "again"]
    with pytest.raises(PipelineError, match=r"has 2 pipelines: choose one of spend, again"):
        open_pipeline(str(file), given)
    # what the others lack does not matter to the one that is chosen
    assert wr.load(file, only="spend").name == "spend"
    assert open_pipeline(str(file), Given({"DELAY": "2m"}, only="spend")).pipeline.name == "spend"
    with pytest.raises(PipelineError, match="has no pipeline called 'x'; it has spend, again"):
        wr.load(file, only="x")
    with pytest.raises(PipelineError, match=r"spend.yaml:21: the variable DELAY has no value"):
        wr.load(file)


def test_an_edit_leaves_a_variable_alone() -> None:
    with pytest.raises(PipelineError, match=r"^x.yaml:6: time.delay is \$\{DELAY\} here: set the variable to 2m"):
        set_values(TEXT, "x.yaml", {"time.delay": "2m"})
