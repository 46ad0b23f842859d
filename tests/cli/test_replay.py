"""`windrow replay`, `diff` and `promote`: a shadow beside the live table, compared with it, and put in its place."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result
from tests.graphs import sink_spec_of
from tests.runtime.spend import Files, event, events

from windrow.authoring.load import open_pipeline
from windrow.cli import main
from windrow.connectors.log.source import EmbeddedLog
from windrow.connectors.open_sinks import open_sinks
from windrow.engine.changelog import StepOutput
from windrow.errors import SourceError
from windrow.model import LogSource
from windrow.runtime.savepoint import Savepoint
from windrow.runtime.stream.checkpoint import Checkpoint, locked
from windrow.runtime.stream.steps import StepOffsets

PIPELINE = """\
name: user-spend
source: {log: {path: spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m}
key: [user_id]
window: {tumbling: 5m}
key_groups: 2
aggregate: {total: sum(amount), events: count()}
emit: {lateness: 1h}
sink: {sqlite: {path: spend.db, table: spend}}
"""
MEMORY = ("--host", "memory")


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A folder to work in, with a log and a pipeline in it; Spark must not start."""

    def no_spark(*_: object, **__: object) -> NoReturn:
        pytest.fail("Spark was started")

    monkeypatch.chdir(tmp_path)
    # the hosts hold the function by a name of their own
    for host in ("stream", "batch"):
        monkeypatch.setattr(f"windrow.runtime.{host}.run.spark_session", no_spark)
    Path("pipeline.yaml").write_text(PIPELINE)
    log = Files(tmp_path / "spend", 2)
    made = events(400, partitions=2)
    log.append([value for number in range(2) for value in [one for one in made if one[0] == number][:150]])
    return log


def windrow(*words: str, code: int = 0) -> Result:
    """Run a command on the pipeline."""
    command, *options = words
    result = CliRunner().invoke(main, [command, "pipeline.yaml", *options])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    return result


def plain(*words: str, code: int = 0) -> dict[str, Any]:
    """Run a command, and read its JSON."""
    found: dict[str, Any] = json.loads(windrow(*words, "--json", code=code).stdout)
    return found


def live() -> None:
    """Run the pipeline to the end of its log."""
    windrow("run", "--until-end", *MEMORY)


def contents(table: str) -> dict[str, list[Any]]:
    """All rows of a table and its companions, without the steps that they were written in."""
    found = {}
    with closing(sqlite3.connect("spend.db")) as db:
        for part in ("", "_changes", "_late", "_dead", "_clocks"):
            cursor = db.execute(f"SELECT * FROM {table}{part}")
            names = [column[0] for column in cursor.description]
            keep = [place for place, name in enumerate(names) if name not in {"epoch", "seq", "low_watermark"}]
            found[part] = sorted((tuple(row[place] for place in keep) for row in cursor), key=repr)
    return found


def execute(sql: str) -> None:
    with closing(sqlite3.connect("spend.db", isolation_level=None)) as db:
        db.execute(sql)


def checkpoint(folder: str, offsets: dict[int, int]) -> Checkpoint:
    """A checkpoint whose last step ended at those offsets."""
    made = Checkpoint.new(Path(folder), open_pipeline("pipeline.yaml").runnable(), sorted(offsets))
    made.write()
    for part in ("offsets", "commits"):
        (made.spark / part).mkdir(parents=True)
        (made.spark / part / "0").write_text("v1\n{}\n")
    plan(made, 0, offsets)
    return made


def plan(made: Checkpoint, epoch: int, offsets: dict[int, int]) -> None:
    """Note where a step is to end."""
    at = EmbeddedLog(LogSource("spend")).beginning(offsets)
    (made.spark / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{json.dumps(StepOffsets(at).to_json())}\n")


def test_a_replay_is_the_same_to_the_last_digit_and_can_take_the_place_of_the_live_table() -> None:
    live()
    before = contents("spend")
    assert before["_changes"]
    said = windrow("replay", *MEMORY)
    assert "to the end of the log, as there is no checkpoint" in said.stderr
    assert "spend_shadow: replayed up to 150 of partition 0, 150 of partition 1" in said.stdout
    assert contents("spend") == before == contents("spend_shadow")
    assert "the same" in windrow("diff").stdout
    assert windrow("diff", "--panes").exit_code == 0
    execute("UPDATE spend SET events = events + 1 WHERE user_id = (SELECT min(user_id) FROM spend)")
    wrong = contents("spend")
    windrow("diff", code=1)
    promoted = windrow("promote")
    assert "to undo this: windrow promote pipeline.yaml" in promoted.stdout
    assert (contents("spend"), contents("spend_shadow")) == (before, wrong)
    assert "holds the rows of another run" in windrow("run", "--until-end", *MEMORY, code=1).stderr
    assert plain("promote") == {
        "pipeline": "user-spend",
        "table": "spend",
        "promoted": "spend_shadow",
        "former": "spend_shadow",
        "carried": [],
        "left": [],
    }
    assert contents("spend") == wrong


def test_diff_shows_what_differs() -> None:
    live()
    windrow("replay", *MEMORY, "--into", "other")
    with closing(sqlite3.connect("spend.db", isolation_level=None)) as db:
        changed, user = (user for (user,) in db.execute("SELECT DISTINCT user_id FROM spend ORDER BY 1 LIMIT 2"))
        first = "SELECT min(window_start) FROM spend WHERE user_id = ?1"
        db.execute(f"UPDATE other SET total = total + 1 WHERE user_id = ?1 AND window_start = ({first})", (changed,))
        db.execute("DELETE FROM other WHERE user_id = ?", (user,))
        [(gone,)] = db.execute("SELECT count(*) FROM spend WHERE user_id = ?", (user,))
        [(rows, total)] = db.execute("SELECT count(*), sum(cast(round(total * 100) AS INTEGER)) FROM spend")
    found = plain("diff", "--against", "other", "--limit", "1", code=1)
    assert (found["same"], found["different"], found["here"]["only"], found["there"]["only"]) == (False, 1, gone, 0)
    assert (found["here"]["rows"], found["there"]["rows"]) == (rows, rows - gone)
    assert round(float(found["here"]["sums"]["total"]) * 100) == total
    assert len(found["first"]) == 1
    said = windrow("diff", "--against", "other", "--limit", "2", code=1).stdout
    assert "only in spend: total" in said
    assert gone > 1
    assert f"... and {gone - 1} more" in said
    assert said.endswith("not the same\n")
    early = windrow("diff", "--against", "other", "--to", "2026-01-01T00:00", code=0).stdout
    assert "windows that begin before 2026-01-01 00:00:00" in early
    assert "is the table itself" in windrow("diff", "--against", "spend", code=2).stderr
    assert "there is no table 'nothing'" in windrow("diff", "--against", "nothing", code=2).stderr
    assert "is not a time" in windrow("diff", "--from", "yesterday", code=2).stderr


def test_diff_refuses_a_range_that_ends_before_it_begins() -> None:
    refused = windrow("diff", "--from", "2026-01-02", "--to", "2026-01-01", code=2)
    assert refused.stderr == "windrow: --from 2026-01-02 00:00:00 is after --to 2026-01-01 00:00:00: swap the two\n"


def test_diff_says_that_there_were_no_rows() -> None:
    live()
    windrow("replay", *MEMORY)
    said = windrow("diff", "--from", "2040-01-01", "--to", "2040-01-01").stdout
    assert said.endswith("no rows were compared: both tables are empty in this range\n")


def test_a_replay_into_another_table_says_how_to_compare_it() -> None:
    live()
    assert windrow("replay", *MEMORY).stdout.endswith("windrow diff pipeline.yaml\n")
    assert windrow("replay", *MEMORY, "--into", "t2").stdout.endswith("windrow diff pipeline.yaml --against t2\n")


def test_promote_of_another_shadow_says_how_to_undo_it() -> None:
    live()
    before = contents("spend")
    windrow("replay", *MEMORY, "--into", "t2")
    execute("UPDATE t2 SET events = events + 1")
    assert "to undo this: windrow promote pipeline.yaml --from t2\n" in windrow("promote", "--from", "t2").stdout
    assert contents("spend") != before
    windrow("promote", "--from", "t2")
    assert contents("spend") == before


def test_another_pipelines_table_in_another_file_is_compared() -> None:
    live()
    Path("other.yaml").write_text(
        PIPELINE.replace("spend.db, table: spend}", "other.db, table: spend, decimals: text}")
    )
    ran = CliRunner().invoke(main, ["run", "other.yaml", "--until-end", *MEMORY])
    assert ran.exit_code == 0, ran.output
    found = plain("diff", "other.yaml")
    assert (found["same"], found["here"]["database"], found["there"]["database"]) == (True, "spend.db", "other.db")
    assert found["here"]["sums"] == found["there"]["sums"]


def test_from_a_time_only_later_windows_are_written_and_compared(log: Files) -> None:
    log.append([(0, event(600)), (0, event(20))])  # the second is late, of a window before
    live()
    said = plain("replay", *MEMORY, "--from", "2026-01-01T01:00")
    assert said["ended"] == "end"
    with closing(sqlite3.connect("spend.db")) as db:
        answers = [
            db.execute(f"SELECT * FROM {table} WHERE window_end > '2026-01-01 01:00:00' ORDER BY 1, 3").fetchall()
            for table in ("spend", "spend_shadow")
        ]
        [(least,)] = db.execute("SELECT min(window_end) FROM spend_shadow")
        [(first,)] = db.execute("SELECT min(window_end) FROM spend")
    assert answers[0] == answers[1] != []
    assert first <= "2026-01-01 01:00:00" < least
    assert plain("diff")["from"] == "2026-01-01 01:00:00"
    assert "only windows that end after 2026-01-01 01:00:00" in windrow("promote", code=1).stderr


def test_from_offsets_and_up_to_offsets() -> None:
    live()
    said = plain("replay", *MEMORY, "--to", "0=100,1=0")
    assert said["to"] == {"0": 100, "1": 0}
    assert said["events"] == 100
    said = plain("replay", *MEMORY, "--from", "0=100,1=150", "--fresh")
    assert said["events"] == 50
    assert any("windows lack earlier records" in note for note in said["notes"])
    assert "was replayed from given offsets" in windrow("promote", code=1).stderr


def test_by_default_it_ends_where_the_live_table_stands(log: Files) -> None:
    checkpoint(".windrow/user-spend", {0: 100, 1: 50})
    said = plain("replay", *MEMORY)
    assert (said["to"], said["events"]) == ({"0": 100, "1": 50}, 150)
    assert said["notes"] == ["up to the position of the live table: epoch 0 of the checkpoint .windrow/user-spend"]
    whole = plain("replay", *MEMORY, "--to", "end", "--fresh")
    assert whole["events"] == 300
    # windows that are open there are open here
    assert said["inserts"] < whole["inserts"]
    missing = windrow("replay", *MEMORY, "--checkpoint", "nowhere", code=2).stderr
    assert "there is no checkpoint in nowhere" in missing
    log.append([(1, event(700))])
    assert plain("replay", *MEMORY, "--fresh")["events"] == 150


def test_it_goes_as_far_as_the_table_if_the_run_died_before_it_had_noted_its_step() -> None:
    made = checkpoint(".windrow/user-spend", {0: 100, 1: 50})
    plan(made, 1, {0: 120, 1: 60})
    pipeline = open_pipeline("pipeline.yaml").runnable()
    with closing(open_sinks(pipeline)) as sink:
        sink.open(made.run)
        for epoch in range(2):
            sink.commit(epoch, {"": StepOutput.empty(sink_spec_of(pipeline).rows)})
    said = plain("replay", *MEMORY)
    assert said["to"] == {"0": 120, "1": 60}
    assert said["notes"] == ["up to the position of the live table: epoch 1 of the checkpoint .windrow/user-spend"]


def test_a_checkpoint_of_another_run_does_not_say_where_the_table_stands() -> None:
    live()
    checkpoint(".windrow/user-spend", {0: 100, 1: 50})
    assert "the run of .windrow/user-spend did not write the table" in windrow("replay", *MEMORY, code=2).stderr
    windrow("replay", *MEMORY, "--to", "end")


def test_what_is_known_at_the_end_can_be_kept() -> None:
    windrow("replay", *MEMORY, "--savepoint", "kept")
    kept = Savepoint.read(Path("kept"))
    assert kept.offsets == {0: 150, 1: 150}
    assert len(list(Savepoint.states(Path("kept")))) == kept.key_groups
    with closing(sqlite3.connect("spend.db")) as db:
        assert db.execute("SELECT run FROM windrow_tables").fetchall() == [(kept.run.id,)]
        assert db.execute("SELECT max(epoch) FROM windrow_epochs").fetchall() == [(kept.epoch,)]
    assert "kept is not empty" in windrow("replay", *MEMORY, "--savepoint", "kept", "--fresh", code=2).stderr


def test_a_savepoint_that_cannot_be_written_is_refused_before_the_replay() -> None:
    windrow("replay", *MEMORY)
    before = contents("spend_shadow")
    Path("file").touch()
    for folder in ("/proc/windrow/kept", "file/kept"):
        result = windrow("replay", *MEMORY, "--fresh", "--savepoint", folder, code=2)
        assert result.stderr.startswith(f"windrow: {folder} cannot be created (")
    assert contents("spend_shadow") == before
    refused = windrow("replay", *MEMORY, "--fresh", "--from", "7=1", "--savepoint", "new/kept", code=2)
    assert "specifies partition 7" in refused.stderr
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("replay", "--savepoint"),
        ("replay", "--checkpoint"),
        ("replay", "--into"),
        ("run", "--checkpoint"),
        ("run", "--from-savepoint"),
        ("savepoint", "--to"),
        ("state", "--savepoint"),
        ("diff", "--against"),
        ("promote", "--from"),
    ],
)
def test_an_empty_folder_or_table_is_wrong_input(command: str, option: str) -> None:
    refused = windrow(command, option, "", code=2)
    assert f"Invalid value for '{option}': it must not be empty; give a " in refused.stderr


def test_the_live_table_is_never_written() -> None:
    live()
    before = contents("spend")
    assert "'SPEND' is the live table" in windrow("replay", *MEMORY, "--into", "SPEND", code=2).stderr
    assert "names that begin with windrow_" in windrow("replay", *MEMORY, "--into", "windrow_x", code=2).stderr
    windrow("replay", *MEMORY)
    assert "--fresh" in windrow("replay", *MEMORY, code=1).stderr
    windrow("replay", *MEMORY, "--fresh")
    assert contents("spend") == before


def test_a_replay_that_did_not_come_to_its_end_cannot_be_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    live()

    def broken(*_: object) -> NoReturn:
        msg = "the disk is on fire"
        raise SourceError(msg)

    with monkeypatch.context() as patch:
        patch.setattr("windrow.runtime.memory._read", broken)
        windrow("replay", *MEMORY, code=1)
    assert "has not finished" in windrow("promote", code=1).stderr


def test_the_journal_is_repeated_unless_the_log_alone_is_asked_for() -> None:
    live()
    execute("INSERT INTO spend_clocks VALUES (0, 'spend', 1, 1, NULL, '2026-01-02 00:00:00', 'active')")
    said = plain("replay", *MEMORY)
    assert "the clock journal of 'spend' is repeated: 1 watermark move, 1 end of input" in said["notes"]
    assert said["expired"] > 100
    # what was repeated is written again, so that the next replay repeats it too
    assert ("spend", 1, 1, None, "active") in contents("spend_shadow")["_clocks"]
    alone = plain("replay", *MEMORY, "--no-journal", "--fresh")
    assert alone["expired"] < 50
    assert not any("journal" in note for note in alone["notes"])


def test_a_run_that_is_going_is_not_pushed_aside() -> None:
    live()
    windrow("replay", *MEMORY)
    made = checkpoint(".windrow/user-spend", {0: 0})
    with locked(made.folder):
        assert "another run is using the checkpoint" in windrow("promote", code=2).stderr
    assert "the checkpoint .windrow/user-spend does not belong to the tables" in windrow("promote").stdout


def test_promote_speaks_of_a_checkpoint_only_where_there_is_one() -> None:
    live()
    windrow("replay", *MEMORY)
    assert "checkpoint" not in windrow("promote").stdout


def test_a_null_is_shown_as_one() -> None:
    text = Path("pipeline.yaml").read_text()
    Path("pipeline.yaml").write_text(text.replace('"decimal(12,2)"', '"decimal(12,2)?"'))
    live()
    windrow("replay", *MEMORY)
    execute("UPDATE spend_shadow SET total = NULL")
    shown = windrow("diff", code=1).stdout
    assert " and null" in shown
    assert "None" not in shown


def test_there_must_be_something_to_promote() -> None:
    assert "there is no database spend.db" in windrow("promote", code=2).stderr
    live()
    assert "there is no table 'spend_shadow' to promote" in windrow("promote", code=2).stderr
    assert "'spend' is the live table" in windrow("promote", "--from", "spend", code=2).stderr


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_partition_that_is_not_there_is_wrong_input(option: str) -> None:
    told = windrow("replay", option, "7=1", *MEMORY, code=2).stderr
    assert f"{option} specifies partition 7, which is not in the log: the log has 0, 1" in told
    assert not Path("spend.db").exists()


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_an_offset_beyond_the_end_is_wrong_input(option: str) -> None:
    told = windrow("replay", option, "0=151,1=150", *MEMORY, code=2).stderr
    assert told == f"windrow: {option} specifies offset 151 of partition 0, which ends at 150: use at most 150\n"
    assert not Path("spend.db").exists()
    assert windrow("replay", option, "0=150,1=150", *MEMORY).exit_code == 0


def test_postgresql_too(database: str) -> None:
    text = Path("pipeline.yaml").read_text()
    Path("pipeline.yaml").write_text(
        text.replace("{sqlite: {path: spend.db, table: spend}}", f'{{postgres: {{url: "{database}", table: spend}}}}')
    )
    live()
    assert plain("replay", *MEMORY, "--savepoint", "kept")["ended"] == "end"
    found = plain("diff", "--panes")
    assert found["same"]
    assert found["here"]["rows"] > 100
    promoted = plain("promote")
    assert (promoted["former"], promoted["left"]) == ("spend_shadow", [])
    assert "holds the rows of another run" in windrow("replay", *MEMORY, code=1).stderr
    assert windrow("diff").exit_code == 0


def test_diff_compares_what_is_stored() -> None:
    live()
    windrow("replay", *MEMORY)
    assert plain("diff")["same"] is True
    with closing(sqlite3.connect("spend.db")) as db, db:
        db.execute("UPDATE spend SET events = 1.5 WHERE events = 2")
        changed = db.execute("SELECT count(*) FROM spend WHERE events = 1.5").fetchone()[0]
    found = plain("diff", code=1)
    assert (found["same"], found["different"]) == (False, changed)
    assert {(one["here"]["events"], one["there"]["events"]) for one in found["first"]} == {("1.5", 2)}
    assert "events 1.5 and 2\n" in windrow("diff", code=1).stdout
    assert "column 'events' of table 'spend' holds 1.5" in windrow("show", "--limit", "1000", code=1).stderr


@pytest.mark.parametrize("at_end", ["fire", "hold"])
def test_a_replay_that_ended_before_the_live_table_is_not_promoted(log: Files, at_end: str) -> None:
    Path("pipeline.yaml").write_text(PIPELINE.replace("lateness: 1h", f"lateness: 1h, at_end: {at_end}"))
    live()
    kept = contents("spend")
    windrow("replay", "--to", "0=10,1=150", *MEMORY)
    refused = windrow("promote", code=1).stderr
    assert "ended at offset 10 of partition 0, but 'spend' has the records up to offset 150" in refused
    assert "replay again with --fresh and without --to, then promote" in refused
    assert contents("spend") == kept
    windrow("replay", "--fresh", *MEMORY)
    windrow("promote")
    windrow("replay", "--into", "t2", "--to", "0=10,1=150", *MEMORY)
    assert "ended at offset 10 of partition 0" in windrow("promote", "--from", "t2", code=1).stderr
    log.append([(0, event(400))])
    windrow("promote")
    assert contents("spend") == kept


def own(made: Checkpoint) -> None:
    """Let the live table be of the checkpoint's run, one step of which is in it."""
    with closing(sqlite3.connect("spend.db")) as db, db:
        for table in ("tables", "epochs", "openers"):
            db.execute(f"UPDATE windrow_{table} SET run = ?", (made.run.id,))
        db.execute("DELETE FROM windrow_epochs WHERE epoch > 0")


def test_a_replay_as_far_as_the_checkpoint_can_be_promoted_and_one_before_it_cannot() -> None:
    live()
    own(checkpoint(".windrow/user-spend", {0: 100, 1: 150}))
    windrow("replay", "--to", "0=99,1=150", *MEMORY)
    assert (
        "ended at offset 99 of partition 0, but 'spend' has the records up to offset 100"
        in windrow("promote", code=1).stderr
    )
    assert "up to the position of the live table" in windrow("replay", "--fresh", *MEMORY).stderr
    windrow("promote")


def test_a_replay_of_a_log_that_lacks_what_the_live_run_read_is_not_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    live()
    made = checkpoint(".windrow/user-spend", {0: 150, 1: 150})
    own(made)
    made.note_beginning(StepOffsets({"0": {"line": 0, "byte": 0}, "1": {"line": 0, "byte": 0}}))
    windrow("replay", *MEMORY)
    ends = EmbeddedLog.ends
    monkeypatch.setattr(EmbeddedLog, "ends", lambda self: ends(self) | {0: (5, 150)})
    assert "the log no longer has its beginning" in windrow("replay", "--fresh", *MEMORY).stderr
    assert "if the log no longer has it, keep the live table" in windrow("promote", code=1).stderr


def test_a_replay_of_a_trimmed_log_whose_first_windows_are_missing_is_not_promoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live()
    windrow("replay", *MEMORY)
    ends = EmbeddedLog.ends
    monkeypatch.setattr(EmbeddedLog, "ends", lambda self: ends(self) | {0: (5, 150)})
    execute("DELETE FROM spend_shadow WHERE window_start = (SELECT min(window_start) FROM spend)")
    said = windrow("promote", code=1).stderr
    assert "as the log no longer has its beginning, but 'spend' has windows from 2026-01-01 00:" in said
    assert "and would lose them: keep the live table" in said


def test_a_replay_that_has_the_first_windows_can_be_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    live()
    windrow("replay", *MEMORY)
    ends = EmbeddedLog.ends
    monkeypatch.setattr(EmbeddedLog, "ends", lambda self: ends(self) | {0: (5, 150)})
    windrow("promote")


def goes_on(epochs: int) -> None:
    """Let another run have the live table, with some steps more than the replay that was promoted."""
    with closing(sqlite3.connect("spend.db")) as db, db:
        run = ("user-spend", "run-3")
        db.execute("UPDATE windrow_tables SET run = 'run-3' WHERE table_name = 'spend'")
        db.executemany("INSERT INTO windrow_epochs VALUES (?, ?, ?, '')", [(*run, epoch) for epoch in range(epochs)])


@pytest.mark.parametrize("named", [False, True])
def test_a_table_that_a_run_has_left_behind_is_not_promoted_back(log: Files, *, named: bool) -> None:
    Path("pipeline.yaml").write_text(PIPELINE.replace("lateness: 1h", "lateness: 1h, at_end: hold"))
    live()
    if named:
        own(checkpoint(".windrow/user-spend", {0: 150, 1: 150}))
    windrow("replay", *MEMORY)
    windrow("promote")
    goes_on(9)
    log.append([(1, event(700))])
    now = contents("spend")
    refused = windrow("promote", code=1).stderr
    has = "'spend_shadow' has the records up to offset 150 of partition 1"
    lacks = "no replay wrote 'spend_shadow', and nothing records how much of"
    assert (has if named else lacks) in refused
    assert "but 'spend' has the records up to offset 15" in refused
    assert "would lose rows: replay again with --fresh and without --to, then promote" in refused
    assert contents("spend") == now
    windrow("replay", "--fresh", "--to", "end", *MEMORY)
    windrow("promote")


def test_a_table_is_promoted_back_if_no_run_has_read_on() -> None:
    live()
    own(checkpoint(".windrow/user-spend", {0: 150, 1: 150}))
    windrow("replay", *MEMORY)
    windrow("promote")
    goes_on(9)
    windrow("promote")


def test_where_a_bounded_run_ended_does_not_say_where_a_later_one_is(log: Files) -> None:
    live()
    windrow("replay", *MEMORY)
    goes_on(9)  # in whose last step the input does not end
    log.append([(1, event(700))])
    assert (
        "ended at offset 150 of partition 1, but 'spend' has the records up to offset 151"
        in windrow("promote", code=1).stderr
    )


def test_a_replay_of_another_log_is_not_promoted(tmp_path: Path) -> None:
    live()
    before = contents("spend")
    (tmp_path / "other").mkdir()
    other = Files(tmp_path / "other" / "spend", 2)
    other.append([(number % 2, event(number, "else")) for number in range(400)])
    Path("other.yaml").write_text(PIPELINE.replace("path: spend}", "path: other/spend}"))
    ran = CliRunner().invoke(main, ["replay", "other.yaml", *MEMORY])
    assert ran.exit_code == 0, ran.output
    refused = windrow("promote", code=1).stderr
    assert "the replay into 'spend_shadow' read a different log than spend of the pipeline" in refused
    assert contents("spend") == before


def test_a_replay_is_not_promoted_over_a_live_table_of_another_log(log: Files) -> None:
    live()
    own(checkpoint(".windrow/user-spend", {0: 150, 1: 150}))
    for number in range(2):
        Path(f"spend/partition-{number}.jsonl").unlink()
    log.append([(number % 2, event(number, "else")) for number in range(400)])
    windrow("replay", *MEMORY, "--to", "end")
    assert "'spend' was written from a different log than spend of the pipeline" in windrow("promote", code=1).stderr
