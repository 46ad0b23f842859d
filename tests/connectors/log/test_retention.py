"""A log that is trimmed and compacted is read as a plain list says, whatever was killed in between."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windrow.cli import main
from windrow.connectors.cuts import StreamPlan
from windrow.connectors.log import retention, segments
from windrow.connectors.log.segments import Retained
from windrow.connectors.log.source import EmbeddedLog, LogFolder, find_losses
from windrow.connectors.log.stream import LogStreamReader
from windrow.errors import InputError, RecordsLostError, SourceError
from windrow.model import LogSource

PAD = "x" * 300
Rows = list[tuple[int, bytes]]


class Killed(Exception):  # noqa: N818 - not an error
    """The process ends here."""


def record(key: str, number: int, time: int, *, deletes: bool = False) -> bytes:
    if deletes:
        return json.dumps({"_key": key, "_value": None, "_log_time": time}).encode()
    return json.dumps({"user": key, "n": number, "_log_time": time, "pad": PAD}).encode()


def put(path: Path, values: list[bytes], partition: int = 0) -> None:
    with (path / f"partition-{partition}.jsonl").open("ab") as file:
        file.writelines(value + b"\n" for value in values)


def rows(batches: Iterator[Any]) -> Rows:
    return [
        pair
        for batch in batches
        for pair in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]


def read(path: Path) -> Rows:
    return rows(EmbeddedLog(LogSource(str(path))).read_all())


def compact(log: LogFolder, active: int = 0, before: int = 0) -> int:
    change = retention.plan_compact(log, ["user"], active=active, tombstones_before=before, partition=0)
    if change is None:
        return 0
    retention.apply(log, change)
    return change.removed


def trim(log: LogFolder, **by: Any) -> int:  # noqa: ANN401 - the bounds of `plan_trim`
    changes = retention.plan_trim(log, **by)
    for change in changes:
        retention.apply(log, change)
    return sum(change.removed for change in changes)


def oracle_compact(model: Rows, cut: int, before: int) -> Rows:
    newest: dict[str, int] = {}
    for offset, value in model:
        fields = json.loads(value)
        if offset < cut:
            newest[fields.get("user", fields.get("_key"))] = offset
    expires = {
        offset for offset, value in model if "_key" in (fields := json.loads(value)) and fields["_log_time"] < before
    }
    return [(o, v) for o, v in model if o >= cut or (o in newest.values() and o not in expires)]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"), st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=40)
        ),
        st.tuples(st.just("trim"), st.floats(0, 1)),
        st.tuples(st.just("older"), st.floats(0, 1)),
        st.tuples(st.just("compact"), st.floats(0, 1)),
    ),
    max_size=8,
)


@given(ACTIONS, st.lists(st.sampled_from(["", "segment", "write", "free"]), min_size=8, max_size=8), st.integers(1, 30))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_appends_trims_compactions_and_kills(  # noqa: C901 - a case an action
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, Any]], kills: list[str], step: int
) -> None:
    path = tmp_path_factory.mktemp("log")
    put(path, [])
    log, count, first = LogFolder(path), 0, 0
    model: Rows = []
    for (action, what), kill in zip(actions, kills, strict=False):
        old, old_first = list(model), first
        end = count
        with pytest.MonkeyPatch.context() as patched:
            if kill == "segment":
                patched.setattr(retention, "write_segment", _killed_after(segments.write_segment))
            elif kill == "write":
                patched.setattr(Retained, "write", _killed_after(Retained.write))
            elif kill == "free":
                patched.setattr(Retained, "free", _killed_after(Retained.free))
            try:
                if action == "append":
                    put(path, [record(key, count + n, count + n, deletes=gone) for n, (key, gone) in enumerate(what)])
                    model += [
                        (count + n, record(key, count + n, count + n, deletes=gone))
                        for n, (key, gone) in enumerate(what)
                    ]
                    count += len(what)
                elif action == "trim":
                    to = first + int((end - first) * what)
                    model, first = [row for row in model if row[0] >= to], to
                    trim(log, offsets={0: to})
                elif action == "older":
                    model = [row for row in model if row[0] >= int(end * what)]
                    trim(log, older=int(end * what))
                    first = log.first(0).line
                else:
                    model = oracle_compact(model, end, int(end * what))
                    compact(log, before=int(end * what))
            except Killed:
                pass
        there = read(path)
        assert there in (model, old)
        if there != model or log.first(0).line != first:
            model, first = there, log.first(0).line
        assert old_first <= first
        retention.finish(log)
        assert read(path) == model
        assert EmbeddedLog(LogSource(str(path))).ends() == {0: (first, count)}
        assert in_steps(log, step) == model
        for offset in range(first, count + 1, 7):
            assert rows(EmbeddedLog(LogSource(str(path))).read_from(0, offset)) == [r for r in model if r[0] >= offset]


def _killed_after(function: Callable[..., object]) -> Callable[..., None]:
    def killed(*given: object) -> None:
        function(*given)
        raise Killed

    return killed


def in_steps(log: LogFolder, size: int) -> Rows:
    """What a stream reads that begins at the first record."""
    reader = LogStreamReader(log, StreamPlan(iter, {}, tasks=1, max_records=size))
    at, found = EmbeddedLog(LogSource(str(log.path))).beginning(), []
    while (ends := reader.step_from(dict(at), size)) != at:
        for part in reader.partitions(at, ends):
            found += rows(reader.read(part))
        assert find_losses(log, ends).losses == ()
        at = ends
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    put(tmp_path, [record("abc"[n % 3], n, 1000 * n) for n in range(200)])
    return tmp_path


def test_a_run_that_is_behind_a_trim_lost_records_as_of_a_topic(path: Path) -> None:
    log = LogFolder(path)
    reader = LogStreamReader(log, StreamPlan(iter, {}, tasks=1))
    behind = reader.step_from({}, 40)
    trim(log, offsets={0: 43})
    with pytest.raises(RecordsLostError, match="partition 0: offsets 40 to 42 are gone"):
        reader.step_from(behind, 10)
    found = find_losses(log, behind)
    assert [str(loss) for loss in found.losses] == [
        "partition 0: offsets 40 to 42 are gone; the next record is at offset 43"
    ]
    assert find_losses(log, found.offset).losses == ()
    assert find_losses(log, {}).losses[0].goes_on == 43  # a run that had read nothing yet
    assert in_steps(log, 50)[0][0] == 43


def test_a_run_that_is_at_the_trim_or_after_it_lost_nothing(path: Path) -> None:
    log = LogFolder(path)
    reader = LogStreamReader(log, StreamPlan(iter, {}, tasks=1))
    offsets = [reader.step_from({}, count) for count in (100, 150)]
    trim(log, offsets={0: 100})
    assert [find_losses(log, offset).losses for offset in offsets] == [(), ()]


def test_a_reader_meets_a_compaction_in_the_middle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windrow.connectors.log.folder.BLOCK", 8192)
    log = LogFolder(path)
    reading = log.read(0)
    got = rows(iter([next(reading)]))
    assert compact(log) == 197
    rest = rows(reading)
    assert [offset for offset, _ in got] == list(range(len(got)))
    assert [offset for offset, _ in rest] == [197, 198, 199]


def test_a_reader_meets_a_trim_in_the_middle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windrow.connectors.log.folder.BLOCK", 8192)
    log = LogFolder(path)
    reading = log.read(0)
    next(reading)
    trim(log, offsets={0: 150})
    with pytest.raises(RecordsLostError, match="to 149 are gone"):
        list(reading)


def test_blocks_are_freed_and_the_active_bytes_stay(path: Path) -> None:
    log, file = LogFolder(path), path / "partition-0.jsonl"
    before = file.stat()
    tail = file.read_bytes()[-10_000:]
    compact(log, active=10_000)
    after = file.stat()
    assert after.st_size == before.st_size
    assert after.st_blocks < before.st_blocks / 2
    assert file.read_bytes()[-10_000:] == tail
    facts = retention.describe(log)
    assert facts[0].kind == "compacted"
    assert facts[0].records == 3
    assert facts[1].last_time == 199_000
    assert sum(1 for _ in read(path)) == facts[0].records + facts[1].records


@pytest.mark.parametrize("missing", [{"fallocate64"}, {"fallocate64", "fallocate"}])
def test_a_c_library_has_one_name_or_none_for_freeing_blocks(
    path: Path, monkeypatch: pytest.MonkeyPatch, missing: set[str]
) -> None:
    """As musl, which has no `fallocate64` since 1.2.4."""

    class Library(ctypes.CDLL):
        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a function of C
            if name in missing:
                raise AttributeError(name)
            return super().__getattr__(name)

    monkeypatch.setattr("windrow.connectors.log.segments.ctypes.CDLL", Library)
    log, before = LogFolder(path), read(path)
    (change,) = retention.plan_trim(log, offsets={0: 150})
    assert retention.apply(log, change) == ("fallocate" not in missing)
    assert read(path) == before[150:]


KILLED_COMMAND = """
import sys
from windrow.cli import main
from windrow.connectors.log import retention, segments

def halting(owner, name, *, after):
    function = getattr(owner, name)
    def halted(*given):
        made = function(*given) if after else None
        print("here", flush=True)
        sys.stdin.readline()
        return made
    setattr(owner, name, halted)

place, path = sys.argv[1:]
name, _, when = place.partition(" ")
halting({"write_segment": retention}.get(name, segments.Retained), name, after=when == "after")
main(["log", "compact", path, "--key", "user", "--active", "0"])
"""


@pytest.mark.parametrize(
    ("place", "left"),
    [("write_segment after", 200), ("write before", 200), ("write after", 3)],
)
def test_a_compaction_that_is_killed_leaves_the_old_log_or_the_new(path: Path, place: str, left: int) -> None:
    """A process of its own, which holds the lock when it is killed; the command is given again after that."""
    whole, size = read(path), (path / "partition-0.jsonl").stat().st_size
    command = [sys.executable, "-c", KILLED_COMMAND, place, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        child.kill()
    there = read(path)
    assert len(there) == left
    assert set(there) <= set(whole)
    ran = CliRunner().invoke(main, ["log", "compact", str(path), "--key", "user", "--active", "0"])
    assert ran.exit_code == 0, ran.output
    assert ("nothing to compact" in ran.output) == (left == 3)
    assert len(read(path)) == 3
    assert len(list(path.glob("*.arrow"))) == 1, "what the killed one wrote is gone"
    assert (path / "partition-0.jsonl").stat().st_blocks * 512 < size / 2


def test_a_size_is_the_most_that_stays(path: Path) -> None:
    log = LogFolder(path)
    trim(log, size=5000)
    assert sum(len(value) + 1 for _, value in read(path)) <= 5000
    assert trim(log, size=5000) == 0


def test_records_without_a_key_stay(tmp_path: Path) -> None:
    values = [b"{", record("a", 0, 0), b'{"n": 1}', record("a", 1, 1)]
    put(tmp_path, values)
    assert compact(LogFolder(tmp_path)) == 1
    assert read(tmp_path) == [(0, values[0]), (2, values[2]), (3, values[3])]


def test_a_log_made_anew_is_not_read_by_what_the_old_one_kept(path: Path) -> None:
    trim(LogFolder(path), offsets={0: 10})
    (path / "partition-0.jsonl").write_bytes(b"{}\n" * 400)
    with pytest.raises(SourceError, match=r"kept.json belongs to a former partition-0.jsonl: remove it"):
        read(path)


def test_an_offset_behind_the_end_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="partition 0 ends at offset 200, before 300"):
        trim(LogFolder(path), offsets={0: 300})


def test_a_record_without_a_log_time_holds_no_retention_up(tmp_path: Path) -> None:
    put(tmp_path, [b"{", record("a", 0, 5), b"{}", record("a", 1, 6), b"{", record("a", 2, 9)])
    assert trim(LogFolder(tmp_path), older=7) == 4
    assert [offset for offset, _ in read(tmp_path)] == [4, 5]


def test_a_log_without_log_times_stays(tmp_path: Path) -> None:
    put(tmp_path, [b"{}"] * 9)
    assert trim(LogFolder(tmp_path), older=2**50) == 0


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"[]", b'{"first": ["a", "b"], "base": [1, 2], "segment": null, "head": 0}', b"{", b"7"]
)
def test_a_damaged_file_beside_a_partition_is_named(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, [record("a", number, number) for number in range(40)])
    trim(LogFolder(tmp_path), offsets={0: 20})
    segments.beside(tmp_path / "partition-0.jsonl").write_bytes(content)
    with pytest.raises(SourceError, match=r"partition-0\.kept\.json is damaged: restore it"):
        read(tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"no arrow file"])
def test_a_damaged_segment_is_named(tmp_path: Path, content: bytes | None) -> None:
    put(tmp_path, [record("ab"[number % 2], number, number) for number in range(40)])
    compact(LogFolder(tmp_path))
    (segment,) = tmp_path.glob("*.arrow")
    segment.unlink()
    if content is not None:
        segment.write_bytes(content)
    segments._index.cache_clear()  # noqa: SLF001 - another process reads it
    with pytest.raises(SourceError, match=r"the compacted segment .* cannot be read"):
        read(tmp_path)
    with pytest.raises(SourceError, match=r"the compacted segment .* cannot be read"):
        retention.describe(LogFolder(tmp_path))


def test_a_log_that_is_trimmed_while_its_ends_are_looked_up_has_lost_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, scan, pending = LogFolder(path), LogFolder.scan, [10]

    def late(folder: LogFolder, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - whatever `scan` takes
        if pending:
            trim(log, offsets={0: pending.pop()})
        return scan(folder, *args, **more)

    monkeypatch.setattr(LogFolder, "scan", late)
    assert EmbeddedLog(LogSource(str(path))).ends()[0] == (10, 200)
