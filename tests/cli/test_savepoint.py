"""`windrow savepoint`, `windrow state` and what `windrow run` says of both, as far as no Spark is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from tests.runtime.spend import event

from windrow.authoring.load import open_pipeline
from windrow.cli import main
from windrow.connectors.sink import Run
from windrow.engine.schema import RAW
from windrow.runtime.memory import MemoryHost
from windrow.runtime.savepoint import Savepoint, fingerprint

PIPELINE = """\
name: user-spend
source: {log: {path: data}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount)}
emit: {lateness: 1h}
sink: {sqlite: {path: spend.db, table: spend}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a pipeline, and a savepoint of a step of two records of it."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/partition-0.jsonl").touch()
    Path("spend.yaml").write_text(PIPELINE)
    pipeline = open_pipeline("spend.yaml").runnable()
    host = MemoryHost(pipeline, [0])
    rows = [{"partition": 0, "offset": number, "value": event(1, user)} for number, user in enumerate("ab")]
    host.step(pa.Table.from_pylist(rows, schema=RAW))
    savepoint = Savepoint(Run("user-spend", "one"), 4, {0: 2}, (0,), 8, fingerprint(pipeline))
    savepoint.write(Path("saved"), enumerate(host.states))


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_state_says_what_a_savepoint_holds() -> None:
    told = run("state", "spend.yaml", "--savepoint", "saved", "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert (found["epoch"], found["keys"], found["open_windows"], found["fired_windows"]) == (4, 2, 1, 0)
    assert found["partitions"][0]["offset"] == 2
    assert len(found["key_groups"]) == 8
    assert sum(one["bytes"] for one in found["key_groups"]) == found["bytes"]
    text = run("state", "spend.yaml", "--savepoint", "saved").stdout
    assert text.startswith(f"user-spend: state after epoch 4: {found['bytes']:,} bytes, 2 keys, 1 open window,")
    assert " of panes from 2026-01-01 00:00:00 in key group " in text


def test_state_shows_the_stored_rows_of_a_key() -> None:
    shown = run("state", "spend.yaml", "--savepoint", "saved", "--key", "user_id=a", "--json")
    (row,) = json.loads(shown.stdout)["rows"]
    assert (row["user_id"], row["at"]) == ("a", "from 2026-01-01 00:00:00")
    text = run("state", "spend.yaml", "--savepoint", "saved", "--key", "user_id=a").stdout
    assert text.startswith(f"{row['kind']} from 2026-01-01 00:00:00, key group {row['key_group']}: {{")
    assert run("state", "spend.yaml", "--savepoint", "saved", "--key", "user_id=x").stdout.startswith(
        "user-spend: no state of user_id=x after epoch 4"
    )
    refused = run("state", "spend.yaml", "--savepoint", "saved", "--key", "amount=1")
    assert refused.exit_code == 2
    assert "no stream has the key amount; the keys are user_id" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["state", "spend.yaml"], "there is no checkpoint in .windrow/user-spend"),
        (["state", "spend.yaml", "--savepoint", "saved", "--checkpoint", "x"], "not both"),
        (["state", "spend.yaml", "--savepoint", "data"], "data is not a savepoint"),
        (["savepoint", "spend.yaml"], "there is no checkpoint in .windrow/user-spend"),
        (["run", "spend.yaml", "--backfill", "--from-savepoint", "saved"], "leave out --backfill or --from-savepoint"),
        (["run", "spend.yaml", "--backfill", "--host", "memory", "--until-end"], "leave out --host memory"),
        (["run", "spend.yaml", "--from-savepoint", "data"], "data is not a savepoint"),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], message: str) -> None:
    told = run(*words)
    assert told.exit_code == 2
    assert message in told.stderr


def test_a_change_that_cannot_be_is_refused_before_anything_runs() -> None:
    Path("spend.yaml").write_text(PIPELINE.replace("tumbling: 5m", "tumbling: 10m"))
    told = run("run", "spend.yaml", "--from-savepoint", "saved")
    assert told.exit_code == 2
    assert 'window: {"tumbling": "5m"} there, {"tumbling": "10m"} here' in told.stderr
    assert not Path(".windrow").exists()
