"""`windrow check`."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windrow.cli import main

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
