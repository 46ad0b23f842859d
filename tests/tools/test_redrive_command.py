"""`windrow redrive`, as far as no Spark is needed: runs are made of the memory host's steps."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from tests.graphs import Runnable, as_graph

from windrow.authoring.load import open_pipeline
from windrow.cli import main
from windrow.connectors.log import append
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.sink import Follows, Run
from windrow.engine.changelog import concat_by_sink, empty_by_sink
from windrow.engine.schema import RAW
from windrow.runtime.compatibility import upgraded
from windrow.runtime.memory import MemoryHost
from windrow.runtime.savepoint import Savepoint, fingerprint
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.runtime.stream.offsets import begin_from
from windrow.telemetry.history import HistoryWriter, RunRecord, history_of
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import StepReport

OLD = """\
name: spend
source: {log: {path: log}}
decode: {user: string, t: timestamp, amount: "decimal(12,2)"}
time: {field: t, delay: 0s}
key: user
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
emit: {lateness: 10m}
sink: {sqlite: {path: spend.db, table: spend}}
"""
GRAPH = """\
name: spend
sources:
  log:
    source: {log: {path: log}}
    decode: {user: string, t: timestamp}
    time: {field: t, delay: 0s}
streams:
  users: {from: log, select: [user]}
sinks:
  spend: {from: users, sink: {sqlite: {path: spend.db, table: spend}}}
"""


def mended(text: str) -> str:
    """Return a pipeline file that also reads records with another name for the amount."""
    return text.replace('amount: "decimal(12,2)"', 'amount: {type: "decimal(12,2)", alias: [sum]}')


NEW = mended(OLD)
LOG = Path("log/partition-0.jsonl")


def line(user: str, at: str, name: str = "amount") -> str:
    return json.dumps({"user": user, "t": f"2026-03-02T{at}:00Z", name: "1.50"})


FIRST = [
    line("ann", "10:00"),
    line("ann", "10:01", "sum"),
    line("bob", "10:02", "sum"),
    "{",
    line("old", "09:30", "sum"),
    line("ann", "10:08"),
]


class Chain:
    """Runs of a pipeline that resume from savepoints, on the memory host, into the tables."""

    def __init__(self) -> None:
        self.epoch = -1
        self.run = Run.new("spend")
        self.pipeline: Runnable = open_pipeline("spend.yaml").runnable()
        self.host = MemoryHost(self.pipeline, [0], probe=step_probe(self.pipeline))
        self.sinks = open_sinks(self.pipeline)
        self.sinks.open(self.run)
        self.next = 0

    def step(self, checkpoint: Path | None = None, *, end: bool = False) -> None:
        """Run over what is new in the log."""
        lines = LOG.read_bytes().splitlines()[self.next :]
        rows = [{"partition": 0, "offset": self.next + n, "value": value} for n, value in enumerate(lines)]
        groups = self.host.step(pa.Table.from_pylist(rows, schema=RAW))
        self.next += len(lines)
        self._commit(groups, checkpoint)
        if end:
            self._commit(self.host.end(), checkpoint)

    def _commit(self, groups: list[Any], checkpoint: Path | None) -> None:
        self.epoch += 1
        self.sinks.commit(
            self.epoch, concat_by_sink(empty_by_sink(as_graph(self.pipeline)), (one.by_sink for one in groups))
        )
        if checkpoint is not None:
            report = StepReport.of(self.epoch, groups, 1.0)
            with HistoryWriter(
                history_of(checkpoint), RunRecord.here(self.pipeline.name, "stream"), pytest.fail
            ) as history:
                history.on_step(report)

    def resume(self, text: str, number: int = 1) -> Path:
        """Resume with another pipeline from a savepoint; return its checkpoint."""
        saved, folder = Path(f"saved-{number}"), Path(f".windrow/{number}")
        since = {} if number == 1 else Checkpoint.read(Path(f".windrow/{number - 1}")).carried().decoded_since  # type: ignore[union-attr]
        savepoint = Savepoint(
            self.run, self.epoch, {0: self.next}, (0,), 8, fingerprint(as_graph(self.pipeline)), decoded_since=since
        )
        savepoint.write(saved, enumerate(self.host.states))
        Path("spend.yaml").write_text(text)
        self.pipeline = open_pipeline("spend.yaml").runnable()
        begin_from(folder, self.pipeline, saved)
        begun = Checkpoint.read(folder)
        assert begun is not None
        carried, states = upgraded(saved, self.pipeline)
        self.host = MemoryHost(self.pipeline, [0], decoded_since=carried.decoded_since, probe=step_probe(self.pipeline))
        self.host.begin(state for _, state in states)
        self.sinks.close()
        self.sinks = open_sinks(self.pipeline)
        self.sinks.open(begun.run, Follows(self.run, self.epoch))
        self.run = begun.run
        return folder


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """A run over a log with dead letters."""
    monkeypatch.chdir(tmp_path)
    return begun(OLD, FIRST)


def begun(pipeline: str, lines: list[str]) -> Chain:
    """Run a pipeline over a log, in the folder at hand."""
    LOG.parent.mkdir()
    LOG.write_text("".join(f"{one}\n" for one in lines))
    Path("spend.yaml").write_text(pipeline)
    chain = Chain()
    chain.step()
    return chain


def redrive(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["redrive", "spend.yaml", *words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def outcomes(*words: str, code: int = 0) -> list[tuple[int, str]]:
    found = json.loads(redrive(*words, "--checkpoint", ".windrow/1", "--json", code=code).stdout)["letters"]
    return [(one["offset"], one["outcome"]) for one in found]


def rows(sql: str, database: str = "spend.db") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as db:
        return db.execute(sql).fetchall()


TOTALS = 'SELECT window_start, "user", total, events FROM spend ORDER BY 1, 2'


def replayed() -> list[tuple[Any, ...]]:
    """The table of a run over the whole log with the pipeline of now."""
    Path("again.yaml").write_text(Path("spend.yaml").read_text().replace("spend.db", "again.db"))
    ended = CliRunner().invoke(main, ["run", "again.yaml", "--until-end", "--host", "memory"])
    assert ended.exit_code == 0, ended.output
    return rows(TOTALS, "again.db")


def test_dead_letters_are_listed_by_reason(chain: Chain) -> None:
    del chain
    assert redrive("--list").stdout.splitlines() == [
        "spend: 4 dead letters",
        "  missing: 3, 0 redriven; the first: missing: amount",
        f"  malformed: 1, 0 redriven; the first: {rows('SELECT reason FROM spend_dead WHERE offset = 3')[0][0]}",
    ]
    listed = json.loads(redrive("--list", "--json").stdout)
    assert [(one["reason"], one["letters"]) for one in listed["reasons"]] == [("missing", 3), ("malformed", 1)]


def test_a_place_without_a_dead_letter_is_said(chain: Chain) -> None:
    chain.resume(NEW)
    places = ("--partition", "0", "--offset", "1", "--offset", "5", "--offset", "77", "--dry-run")
    result = redrive(*places, "--checkpoint", ".windrow/1", code=1)
    assert "offset 77: no dead letter" in result.stdout
    assert json.loads(redrive(*places, "--checkpoint", ".windrow/1", "--json", code=1).stdout)["missing"] == [5, 77]
    beyond = redrive("--partition", "99999999999999999999", "--dry-run", "--checkpoint", ".windrow/1", code=2)
    assert "99999999999999999999 is not in the range 0<=x<=1048575" in beyond.stderr
    assert len(outcomes("--partition", "0", "--dry-run", code=1)) == len(outcomes("--all", "--dry-run", code=1))


def test_mended_dead_letters_count_once_and_a_replay_has_the_same_numbers(chain: Chain) -> None:
    folder = chain.resume(NEW)
    chain.step(folder)
    log = LOG.read_bytes()
    plain = [(1, "would redrive"), (2, "would redrive"), (3, "dead"), (4, "expired")]
    assert outcomes("--all", "--dry-run", code=1) == plain
    assert LOG.read_bytes() == log
    text = redrive("--reason", "missing", "--offset", "1", "--partition", "0", "--checkpoint", str(folder)).stdout
    assert text.splitlines() == [
        "  partition 0, offset 1 (missing: amount): redriven to offset 6; late, so it revises a result",
        "spend: redrove 1 of 1 dead letter into log",
    ]
    assert outcomes("--all", code=1) == [(1, "already"), (2, "redriven"), (3, "dead"), (4, "expired")]
    after = LOG.read_bytes()
    assert outcomes("--all", code=1) == [(1, "already"), (2, "already"), (3, "dead"), (4, "expired")]
    assert outcomes("--reason", "missing", "--key", "user=bob") == [(2, "already")]
    assert LOG.read_bytes() == after
    assert "missing: 3, 2 redriven; the first: missing: amount" in redrive("--list").stdout
    chain.step(end=True)
    live = rows(TOTALS)
    assert [(row[1], row[3]) for row in live] == [("ann", 2), ("bob", 1), ("ann", 1)]
    trail = rows("SELECT partition, offset, copy_of, origin, attempt, reason FROM windrow_redrives ORDER BY 2")
    assert trail == [(0, 6, 1, 1, 1, "missing: amount"), (0, 7, 2, 2, 1, "missing: amount")]
    assert "@" in rows("SELECT redriven_by FROM windrow_redrives")[0][0]
    # the record that would be expired is on time where it is first
    assert [row for row in replayed() if row[1] != "old"] == live
    reasons = rows("SELECT offset, reason FROM spend_dead WHERE offset > 5 ORDER BY 1", "again.db")
    assert reasons == [(6, "redriven: the record at offset 1 counts"), (7, "redriven: the record at offset 2 counts")]


TYPED = OLD.replace("user: string", 'n: long, price: "decimal(9,2)", at: timestamp, is_new: boolean').replace(
    "key: user", 'derive: {half: "case when n = 8 then 4 else 1 end"}\nkey: [n, price, at, is_new, half]'
)


def test_keys_are_compared_by_their_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first: dict[str, Any] = {"n": 7, "price": "1.50", "at": "2026-03-02T10:00:00Z", "is_new": True}
    others: list[dict[str, Any]] = [{"n": 8}, {"price": "1.05"}, {"at": "2026-03-02T10:00:01Z"}, {"is_new": False}]
    lines = [json.dumps({**first, **other, "t": "2026-03-02T10:01:00Z", "sum": "1"}) for other in ({}, *others)]
    begun(TYPED, lines).resume(mended(TYPED))
    for text, offsets in {
        "n=7": [0, 2, 3, 4],
        "n=08": [1],
        "price=1.5": [0, 1, 3, 4],
        "price=1.05": [2],
        "at=2026-03-02T10:00:01Z": [3],
        "at=2026-03-02T12:00:00+02:00": [0, 1, 2, 4],
        "is_new=false": [4],
        "half=4": [1],
    }.items():
        assert [at for at, _ in outcomes("--key", text, "--dry-run")] == offsets
    keys = [f"--key={text}" for text in ("n=7", "price=1.50", "at=2026-03-02T10:00", "is_new=true")]
    assert outcomes(*keys) == [(0, "redriven")]
    assert "--key 'n=x': column 'n' is a whole number of 64 bits" in redrive("--key", "n=x", code=2).stderr
    assert "--key 'at=noon': column 'at' is a time, such as" in redrive("--key", "at=noon", code=2).stderr


def test_before_the_first_step_the_watermark_is_that_of_the_savepoint(chain: Chain) -> None:
    chain.resume(NEW)
    assert outcomes("--reason", "missing", code=1) == [(1, "redriven"), (2, "redriven"), (4, "expired")]
    assert LOG.read_text().count("_redrive") == 2


def test_a_user_without_a_name_is_noted_by_its_number(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.resume(NEW)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    redrive("--partition", "0", "--offset", "1", "--checkpoint", ".windrow/1")
    assert rows("SELECT redriven_by FROM windrow_redrives")[0][0].startswith(f"{os.getuid()}@")


def test_what_was_appended_by_a_call_that_died_is_not_appended_again(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.resume(NEW)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("windrow.tools.redrive.copies._note", die)
        result = CliRunner().invoke(main, ["redrive", "spend.yaml", "--all", "--checkpoint", ".windrow/1"])
        assert result.exit_code == 130
    assert len(LOG.read_bytes().splitlines()) == 8
    assert outcomes("--all", code=1) == [(1, "already"), (2, "already"), (3, "dead"), (4, "expired")]
    assert len(LOG.read_bytes().splitlines()) == 8
    assert rows("SELECT copy_of FROM windrow_redrives ORDER BY 1") == [(1,), (2,)]


def test_a_torn_copy_is_ended(chain: Chain) -> None:
    chain.resume(NEW)
    whole = LOG.read_bytes()
    redrive("--all", "--checkpoint", ".windrow/1", code=1)
    torn = LOG.read_bytes()[: len(whole) + 40]
    LOG.write_bytes(torn)
    assert outcomes("--all", code=1) == [(1, "redriven"), (2, "redriven"), (3, "dead"), (4, "expired")]
    assert LOG.read_bytes().startswith(torn[:-1] + b"\n")
    assert len(LOG.read_bytes().splitlines()) == 9
    LOG.write_bytes(whole + b'{"user"')
    refused = redrive("--all", "--checkpoint", ".windrow/1", code=1).stderr
    assert "partition-0.jsonl ends in an incomplete record: wait until its producer has written it" in refused


def test_a_disk_that_fails_leaves_copies_that_a_second_call_finds(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.resume(NEW)

    def fail(_: int) -> None:
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as patched:
        patched.setattr("windrow.connectors.log.append.os.fsync", fail)
        said = redrive("--all", "--checkpoint", ".windrow/1", code=1).stderr
        assert "cannot append to log/partition-0.jsonl: Input/output error" in said
    assert len(LOG.read_bytes().splitlines()) == 8
    assert outcomes("--all", code=1) == [(1, "already"), (2, "already"), (3, "dead"), (4, "expired")]
    assert rows("SELECT copy_of FROM windrow_redrives ORDER BY 1") == [(1,), (2,)]


def test_one_process_appends_at_a_time(chain: Chain) -> None:
    chain.resume(NEW)
    with append.LogAppender("log", b"{"):
        assert (
            "another process is appending to the log log"
            in redrive("--all", "--checkpoint", ".windrow/1", code=1).stderr
        )


def test_a_copy_that_is_a_dead_letter_again_is_redriven_so_often_only(chain: Chain) -> None:
    # the copies are read by a run that was not mended after all
    other = NEW.replace("alias: [sum]", "alias: [somme]")
    chain.resume(NEW)
    redrive("--partition", "0", "--offset", "1", "--checkpoint", ".windrow/1")
    chain.resume(other, 2)
    chain.step()
    assert rows("SELECT offset, reason FROM spend_dead WHERE offset > 5") == [(6, "missing: amount")]
    chain.resume(NEW, 3)
    folder = ("--partition", "0", "--offset", "6", "--checkpoint", ".windrow/3")
    assert "it was redriven too often" in redrive(*folder, "--max-attempts", "1", code=1).stdout
    assert "redriven to offset 7, attempt 2" in redrive(*folder).stdout
    assert rows("SELECT copy_of, origin, attempt FROM windrow_redrives ORDER BY 1") == [(1, 1, 1), (6, 1, 2)]
    chain.step(end=True)
    live = rows(TOTALS)
    assert [(row[1], row[3]) for row in live] == [("ann", 2), ("ann", 1)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "choose what to redrive: --reason, --partition"),
        (("--all", "--reason", "x"), "--all selects all dead letters: leave out --reason"),
        (("--list", "--all"), "--list shows all dead letters: leave out --all"),
        (("--list", "--dry-run"), "--list shows all dead letters: leave out --dry-run"),
        (("--offset", "1"), "--offset needs a partition: give --partition, too"),
        (("--key", "amount=1"), "--key 'amount=1' does not begin with a field of the key (user"),
        (("--all",), "there is no checkpoint in .windrow/spend: a copy counts only for a run that resumed"),
    ],
)
def test_wrong_options(chain: Chain, words: tuple[str, ...], said: str) -> None:
    del chain
    assert said in redrive(*words, code=2).stderr


def test_the_run_must_have_the_mended_pipeline(chain: Chain) -> None:
    chain.resume(NEW)
    Path("spend.yaml").write_text(OLD)
    said = redrive("--all", "--checkpoint", ".windrow/1", code=2).stderr
    assert "the run of the checkpoint .windrow/1 does not decode with the pipeline spend.yaml; it differs in" in said
    assert 'decode.amount: {"type": "decimal(12,2)", "alias": ["sum"]} there, "decimal(12,2)" here' in said
    assert said.splitlines()[-3:] == [
        "then make the changes again, and resume with them:",
        "  windrow run spend.yaml --from-savepoint .windrow/1.savepoint --checkpoint .windrow/1.corrected",
        "  windrow redrive spend.yaml --checkpoint .windrow/1.corrected --all",
    ]


def follows_a_file(text: str) -> str:
    return text.replace("log: {path: log}", "file: {path: f.csv, key: user, log: log}")


def is_a_graph(_: str) -> str:
    return GRAPH


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (follows_a_file, "the log log is written by the run that follows f.csv: change the file"),
        (
            is_a_graph,
            "pipeline 'spend' has several streams: a record that one of them rejects may have been counted by others",
        ),
    ],
)
def test_pipelines_whose_dead_letters_cannot_be_redriven(chain: Chain, edit: Callable[[str], str], said: str) -> None:
    del chain
    Path("spend.yaml").write_text(edit(OLD))
    assert said in redrive("--all", code=2).stderr
