"""Commands on a file with several pipelines and with variables."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windrow.cli import main
from windrow.tools.generate import LogSpec, write_log

ONE = """\
name: {name}
source: {{log: {{path: "${{DATA:-log}}"}}}}
decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
time: {{field: event_time, delay: 10m, future: 1h}}
key: [user_id]
window: {{tumbling: "${{SIZE:-5m}}"}}
aggregate: {{total: sum(amount)}}
emit: {{lateness: 1h}}
sink: {{sqlite: {{path: "{path}", table: {name}}}}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("DATA", "SIZE", "WINDROW_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    Path("two.yaml").write_text(f"{ONE.format(name='spend', path='s.db')}---\n{ONE.format(name='other', path='s.db')}")
    return tmp_path


@pytest.fixture
def log(folder: Path) -> Path:
    path = folder / "log"
    write_log(LogSpec(events=2_000, partitions=2, malformed_share=0.02), path)
    return path


def _windrow(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def _count(table: str) -> int:
    with closing(sqlite3.connect("s.db")) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return found


def test_check_and_explain_are_of_all_pipelines_or_of_one() -> None:
    assert _windrow("check", "two.yaml").output == "two.yaml: ok\n"
    text = Path("two.yaml").read_text()
    Path("two.yaml").write_text(text.replace("key: [user_id]", "key: [usr]"))
    lines = _windrow("check", "two.yaml").output.splitlines()
    assert [line.split(" error")[0] for line in lines] == ["two.yaml:5:", "two.yaml:15:", "two.yaml: 2"]
    assert len(_windrow("check", "two.yaml", "--only", "other").output.splitlines()) == 2
    Path("two.yaml").write_text(text)
    shown = _windrow("explain", "two.yaml", "--format", "yaml", "--var", "SIZE=1h").output
    assert shown.count("window: {tumbling: 1h}") == 2
    Path("again.yaml").write_text(shown)
    assert _windrow("explain", "again.yaml", "--format", "yaml").output == shown
    assert [one["name"] for one in json.loads(_windrow("explain", "two.yaml", "--json").output)] == ["spend", "other"]
    assert "choose one with --only" in _windrow("explain", "two.yaml", "--format", "python").output


def test_two_pipelines_may_not_write_one_table() -> None:
    text = Path("two.yaml").read_text()
    Path("two.yaml").write_text(text.replace("table: other", "table: Spend"))
    found = _windrow("check", "two.yaml")
    assert found.exit_code == 2
    assert "two.yaml:11: error: 'spend' also writes the table 'Spend'" in found.output
    assert _windrow("check", "two.yaml", "--only", "other").exit_code == 0


@pytest.mark.usefixtures("log")
def test_a_run_is_of_all_pipelines_each_with_its_tables_or_of_one() -> None:
    run = ("run", "two.yaml", "--until-end", "--host", "memory")
    result = _windrow(*run, "--only", "other", "--var", "SIZE=1d")
    assert result.exit_code == 0, result.output
    few = _count("other")
    result = _windrow(*run, "--fresh", "--json")
    assert [one["pipeline"] for one in json.loads(result.stdout)["pipelines"]] == ["spend", "other"]
    assert _count("spend") == _count("other") > few > 0
    assert "choose one of spend, other" in _windrow("show", "two.yaml").output
    assert _windrow("show", "two.yaml", "--only", "spend", "--limit", "1").exit_code == 0


@pytest.mark.usefixtures("log")
def test_the_first_pipeline_that_fails_is_named_and_the_others_do_not_run() -> None:
    Path("two.yaml").write_text(
        f"{ONE.format(name='bad', path='none/s.db')}---\n{ONE.format(name='other', path='s.db')}"
    )
    result = _windrow("run", "two.yaml", "--until-end", "--host", "memory")
    assert result.exit_code == 2
    assert "bad failed; not run: other\n" in result.stderr
    assert result.stdout == ""
    assert not Path("s.db").exists()


@pytest.mark.usefixtures("log")
def test_the_results_of_a_pipeline_are_printed_if_a_later_one_fails_or_several_exceed_a_limit() -> None:
    Path("bad.yaml").write_text(
        f"{ONE.format(name='spend', path='s.db')}---\n{ONE.format(name='bad', path='none/s.db')}"
    )
    run = ("run", "bad.yaml", "--until-end", "--host", "memory", "--fresh")
    result = _windrow(*run)
    assert result.exit_code == 2
    assert result.stdout.startswith("spend: read to the end")
    assert [one["pipeline"] for one in json.loads(_windrow(*run, "--json").stdout)["pipelines"]] == ["spend"]
    result = _windrow("run", "two.yaml", "--until-end", "--host", "memory", "--fresh", "--fail-if-dead", "1%")
    assert result.exit_code == 3
    assert [line.split(":")[0] for line in result.stderr.splitlines()[-2:]] == ["windrow", "other"]
    assert "windrow: spend: " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listen", ":0"), "--listen can be used with only one pipeline, but two.yaml has 2: choose one with --only"),
        (("--host", "memory"), "windrow: the memory host reads to the end of the input: add --until-end"),
        (("--host", "realtime"), "the realtime host can be used with only one pipeline"),
        (("--var", "SIZE"), "--var 'SIZE' is not a variable: write --var NAME=VALUE"),
        (("--var", "SIZ=1h"), "${SIZ} is given a value, but two.yaml does not use it; did you mean SIZE?"),
        (("--profile", "prod"), "there is no profile 'prod'"),
    ],
)
def test_options_that_do_not_go_with_it_are_refused(arguments: tuple[str, ...], said: str) -> None:
    result = _windrow("run", "two.yaml", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "failed" not in result.stderr


@pytest.mark.usefixtures("log")
def test_a_run_with_too_many_dead_letters_or_expired_records_ends_with_3_and_keeps_its_results() -> None:
    run = ("run", "two.yaml", "--until-end", "--host", "memory", "--only", "spend", "--fresh")
    assert _windrow(*run, "--fail-if-dead", "5%", "--fail-if-expired", "100%").exit_code == 0
    result = _windrow(*run, "--fail-if-dead", "1%")
    assert result.exit_code == 3
    assert "records of this run are dead letters (`windrow show PIPELINE dead` says why): 1.7" in result.stderr
    assert "but --fail-if-dead allows 1%; committed steps are kept" in result.stderr
    assert _count("spend") > 0
    result = _windrow(*run, "--fail-if-expired", "0%", "--json")
    assert result.exit_code == (3 if json.loads(result.stdout)["expired"] else 0)


@pytest.mark.usefixtures("log")
def test_a_preview_is_of_the_first_records_and_writes_nothing() -> None:
    result = _windrow("preview", "two.yaml", "--only", "spend", "--limit", "3", "--var", "SIZE=1h")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 4
    assert "spend: from all 2,000 records of the log; " in result.stderr
    assert not Path("s.db").exists()
    plain = json.loads(_windrow("preview", "two.yaml", "--only", "spend", "--limit", "100000", "--json").stdout)
    ran = json.loads(_windrow("run", "two.yaml", "--until-end", "--host", "memory", "--only", "spend", "--json").stdout)
    assert [plain[name] for name in ("late", "expired")] == [ran[name] for name in ("late", "expired")]
    assert plain["late"] > 0
    shown = _windrow("show", "two.yaml", "--only", "spend", "--json", "--limit", "100000").stdout
    assert plain["tables"]["spend"] == [json.loads(line) for line in shown.splitlines()]
    assert plain["whole"]
