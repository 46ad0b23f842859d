"""Delta tables and Parquet files: killed at every point of a step, and written by who was given up."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tests.contracts.steps import DAY, MINUTE, RUN, change, step
from tests.contracts.stores import AnyStore, DeltaStore, ParquetStore, brief, committed
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors import ownership
from windrow.connectors.database import Replayed
from windrow.connectors.delta import merge
from windrow.connectors.delta.folder import DeltaFolder
from windrow.connectors.delta.sink import DeltaTables
from windrow.connectors.open_sinks import open_database
from windrow.connectors.ownership import Origin
from windrow.connectors.parquet.sink import ParquetFolder
from windrow.connectors.sink import Follows, Run
from windrow.connectors.tables import Table
from windrow.engine.changelog import StepOutput
from windrow.errors import InputError, SinkAddressError, SinkError
from windrow.model import Aggregate, CollectList

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


class Killed(BaseException):
    """The end of a process."""


class Points:
    """Raises `Killed` when the process touches a folder for the `left`th time."""

    def __init__(self) -> None:
        self.folder, self.left = "", 0
        sys.addaudithook(self._touched)

    def _touched(self, event: str, args: tuple[Any, ...]) -> None:
        if self.left and event in EVENTS and str(args[0]).startswith(self.folder):
            self.left -= 1
            if not self.left:
                raise Killed

    @staticmethod
    def all() -> Iterator[int]:
        """Points from the first on, more than any step has."""
        yield from range(1, 100)
        pytest.fail("a step does not come to its end")

    @contextmanager
    def kill(self, folder: Path, point: int) -> Iterator[None]:
        self.folder, self.left = str(folder), point
        try:
            yield
        finally:
            self.left = 0


POINTS = Points()


def two_steps(model: Pipeline) -> tuple[StepOutput, StepOutput]:
    """Steps with rows for every table; the second updates, deletes and inserts."""
    first = [change("insert", 0, user, Decimal(1), 1) for user in "AB"]
    second = [
        change("update_before", 0, "A", Decimal(1), 1),
        change("update_after", 0, "A", Decimal(2), 2, pane="late", revision=1),
        change("delete", 0, "B", Decimal(1), 1, revision=1),
        change("insert", 5, "C", Decimal(3), 1),
    ]
    late = [["spend", 0, 9, DAY, DAY, DAY + MINUTE, 90_000, "expired", "{}"]]
    dead, clocks = [["spend", 0, 1, None, "malformed", b"x"]], [["spend", 0, 1, DAY, DAY, "end"]]
    return step(model, first), step(model, second, late=late, dead=dead, clocks=clocks)


def contents(store: AnyStore, model: Pipeline) -> list[list[dict[str, Any]]]:
    tables = store.tables(model)
    return [store.result(model), store.changes(model), *(store.read(table) for table in tables.own[2:])]


@pytest.mark.long
@pytest.mark.parametrize("kind", [DeltaStore, ParquetStore])
def test_a_step_is_whole_wherever_it_is_killed(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    whole = kind(tmp_path / "whole")
    whole.path.parent.mkdir()
    steps = two_steps(whole.model())
    committed(whole, whole.model(), steps[0])
    shutil.copytree(tmp_path / "whole", tmp_path / "before")
    committed(whole, whole.model(), steps[1])
    expected, seen = contents(whole, whole.model()), list[int]()
    for point in POINTS.all():
        store = kind(tmp_path / f"at_{point}")
        shutil.copytree(tmp_path / "before", store.path.parent)
        model = store.model()
        sink = store.sink(model)
        sink.open(RUN)
        try:
            with POINTS.kill(store.path, point):
                sink.commit(1, steps[1])
        except Killed:
            found = store.result(model)
            again = store.sink(model)
            last = again.open(RUN)
            assert last in (0, 1)
            assert (found == expected[0]) == (last == 1)
            assert last == 1 or [row[1] for row in brief(found)] == ["A", "B"]
            seen.append(last)
            again.commit(1, steps[1])
            again.close()
            assert contents(store, model) == expected
        else:
            break
    assert seen == sorted(seen)
    assert {0, 1} == set(seen)


@pytest.mark.parametrize("kind", [pytest.param(DeltaStore, marks=pytest.mark.long), ParquetStore])
def test_clearing_goes_on_wherever_it_is_killed(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    store = kind(tmp_path)
    model = store.model()
    other = Run(RUN.pipeline, "run-0")
    for point in POINTS.all():
        run = Run(RUN.pipeline, f"run-{point}")
        committed(store, model, *two_steps(model), run=run)
        try:
            with POINTS.kill(store.path, point):
                store.sink(model).clear()
        except Killed:
            store.sink(model).clear()
        else:
            break
        finally:
            sink = store.sink(model)
            assert sink.open(other) is None
            sink.close()
            assert contents(store, model) == [[], [], [], [], []]
            sink.clear()
    assert point > 3
    assert not list(store.path.glob("_*"))


def test_who_was_given_up_is_refused_by_delta_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DeltaStore(tmp_path)
    model = store.model()
    steps = two_steps(model)
    committed(store, model, steps[0])
    outputs = (steps[1], replace(steps[1], late=steps[0].late, dead=steps[0].dead), step(model))
    for changelog in (True, False):
        for output in outputs:
            one = store.model(sink=replace(store.settings(), changelog=changelog))
            given_up, next_one = DeltaTables(sink_spec_of(one)), DeltaTables(sink_spec_of(one))
            given_up.open(RUN)
            next_one.open(RUN)
            with monkeypatch.context() as patched:
                # it looked before the next one opened the tables
                patched.setattr(given_up, "_check", lambda _: None)
                patched.setattr(DeltaFolder, "read", lambda _: True)
                with pytest.raises(SinkError, match="another writer committed first"):
                    given_up.commit(1, output)
    assert store.epochs() == [0]
    assert [len(rows) for rows in contents(store, model)] == [2, 2, 0, 0, 0]


def test_who_was_given_up_cannot_rename_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ParquetStore(tmp_path)
    model = store.model()
    steps = two_steps(model)
    committed(store, model, steps[0])
    given_up, next_one = ParquetFolder(sink_spec_of(model)), ParquetFolder(sink_spec_of(model))
    given_up.open(RUN)
    checked, write = given_up._check, ParquetFolder._write  # noqa: SLF001 - the moment between check and rename

    def opened_meanwhile(self: ParquetFolder, epoch: int, tables: Mapping[str, pa.Table]) -> list[Path]:
        paths = write(self, epoch, tables)
        next_one.open(RUN)
        return paths

    monkeypatch.setattr(ParquetFolder, "_write", opened_meanwhile)
    with pytest.raises(SinkError, match="opened by another process of the same run"):
        given_up.commit(1, steps[1])
    monkeypatch.undo()
    assert store.epochs() == [0]
    next_one.commit(1, steps[1])
    assert store.epochs() == [0, 1]
    with pytest.raises(SinkError, match="opened by another process"):
        checked(RUN)
    assert sorted(path.name for path in (store.path / "spend").glob("_*")) == [
        "_owner.json",
        f"_staging-{next_one._id}",  # noqa: SLF001 - its own
    ]


def test_a_compaction_at_the_same_time_is_survived(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path)
    model = store.model()
    sink = DeltaTables(sink_spec_of(model))
    sink.open(RUN)
    for epoch in range(3):
        sink.commit(epoch, step(model, [change("insert", 5 * epoch, "A", Decimal(1), 1)]))
    check, checked = sink._check, list[str]()  # noqa: SLF001 - the moment before a commit

    def compact(folder: DeltaFolder) -> None:
        check(folder)
        checked.append(folder.table.name)
        # the result table is checked when a step begins, too
        if checked.count(folder.table.name) == (2 if folder.table.name == "spend" else 1):
            assert DeltaTable(folder.uri).optimize.compact()["numFilesRemoved"] == 3

    sink._check = compact  # type: ignore[method-assign]  # noqa: SLF001 - the same
    changes = [change("update_after", 0, "A", Decimal(2), 2, revision=1), change("insert", 20, "A", Decimal(1), 1)]
    sink.commit(3, step(model, changes))
    assert checked == ["spend", "spend_changes", "spend_changes", "spend", "spend"]
    assert [row[2] for row in brief(store.result(model))] == [2, 1, 1, 1]
    assert [row["epoch"] for row in store.changes(model)] == [0, 1, 2, 3, 3]


def test_a_step_leaves_the_files_of_other_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "ROWS", 2)
    folder = tmp_path / "with [pattern] * and ?"
    folder.mkdir()
    store = DeltaStore(folder)
    model = store.model()
    committed(store, model, step(model, [change("insert", 5 * n, "A", Decimal(n), 1) for n in range(6)]))
    before = {Path(uri).name for uri in DeltaTable(store.path / "spend").file_uris()}
    committed(store, model, step(model, [change("update_after", 25, "A", Decimal(9), 2, revision=1)]))
    after = DeltaTable(store.path / "spend")
    assert len(before) == len(after.file_uris()) == 3
    assert len(before & {Path(uri).name for uri in after.file_uris()}) == 2
    assert [row["total"] for row in after.to_pyarrow_table().sort_by("window_start").to_pylist()] == [0, 1, 2, 3, 4, 9]


def test_a_step_that_was_cut_short_is_not_handed_over(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path)
    model = store.model()
    steps = two_steps(model)
    committed(store, model, steps[0])
    sink = DeltaTables(sink_spec_of(model))
    sink.open(RUN)
    folders = {folder.table.name: folder for folder in sink._tables[0].folders}  # noqa: SLF001 - to commit to one alone
    _, companions, _ = sink._tables[0].step(1, steps[1])  # noqa: SLF001 - the same
    folder, write = companions[0]
    assert folder is folders["spend_changes"]
    folder.commit(RUN, 1, lambda _: None, write)
    folder, write = companions[-1]
    assert folder is folders["spend_clocks"]
    folder.commit(RUN, 1, lambda _: None, write)
    assert sink.journal().num_rows == 0
    with pytest.raises(SinkError, match="'spend' is at epoch 1, but the savepoint is at epoch 0"):
        DeltaTables(sink_spec_of(model)).open(Run(RUN.pipeline, "run-2"), Follows(RUN, 0))


@pytest.mark.parametrize("claims", range(5))
def test_a_step_is_written_once_if_it_is_committed_while_tables_are_handed_over(
    claims: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DeltaStore(tmp_path)
    model, next_run = store.model(), Run(RUN.pipeline, "run-2")
    steps = two_steps(model)
    committed(store, model, steps[0])
    given_up = DeltaTables(sink_spec_of(model))
    given_up.open(RUN)
    claim, claimed = DeltaFolder.claim, list[str]()

    def meanwhile(self: DeltaFolder, run: Run, opener: str, last: int | None, origin: Origin | None = None) -> None:
        if len(claimed) == claims:
            _, companions, _ = given_up._tables[0].step(1, steps[1])  # noqa: SLF001 - of a step that has begun
            with suppress(SinkError):
                for folder, write in companions:
                    folder.commit(RUN, 1, given_up._check, write)  # noqa: SLF001 - the same
        claimed.append(self.table.name)
        claim(self, run, opener, last, origin)

    with monkeypatch.context() as patched, suppress(SinkError):
        patched.setattr(DeltaFolder, "claim", meanwhile)
        DeltaTables(sink_spec_of(model)).open(next_run, Follows(RUN, 0))
    sink = DeltaTables(sink_spec_of(model))
    try:
        sink.open(next_run, Follows(RUN, 0))
    except SinkError:
        assert sink.open(RUN) == 0
        assert not sink.is_even
    sink.commit(1, steps[1])
    assert claimed[-1] != "spend" or claims > 0
    assert [row["epoch"] for row in store.changes(model)] == [0, 0, 1, 1, 1, 1]
    assert [len(rows) for rows in contents(store, model)] == [2, 6, 1, 1, 1]


@pytest.mark.parametrize("user", ["\U00020000", "x\U0010ffff", "\U0001f600", "é" * 300])
def test_a_key_of_any_characters_is_found_again(user: str, tmp_path: Path) -> None:
    store = DeltaStore(tmp_path)
    table = Table("last", pa.schema([pa.field("user", pa.string()), pa.field("n", pa.int64())]), ("user",))
    folder = DeltaFolder(str(store.path), table)
    folder.read()
    folder.claim(RUN, "opener", None)
    for epoch, op in enumerate(("insert", "update_after")):
        rows = pa.table({"user": [user], "n": [epoch], "op": [op]})
        folder.commit(RUN, epoch, lambda _: None, merge.merge(table, rows))
    assert DeltaTable(folder.uri).to_pyarrow_table().to_pylist() == [{"user": user, "n": 1}]


def test_who_was_given_up_is_refused_by_tables_that_were_made_anew(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path)
    model = store.model()
    given_up = DeltaTables(sink_spec_of(model))
    given_up.open(RUN)
    shutil.rmtree(store.path)
    committed(store, model, *two_steps(model), run=Run(RUN.pipeline, "run-2"))
    with pytest.raises(SinkError, match="taken over by another run"):
        given_up.commit(0, two_steps(model)[0])
    assert len(store.changes(model)) == 6


def test_a_delta_table_is_not_made_in_a_folder_of_other_files(tmp_path: Path) -> None:
    # a VACUUM of it would remove them
    files, store = ParquetStore(tmp_path), DeltaStore(tmp_path)
    model = files.model()
    committed(files, model, step(model))
    with pytest.raises(SinkError, match="'spend' holds rows that windrow did not write"):
        DeltaTables(sink_spec_of(store.model())).open(RUN)
    assert not (store.path / "spend" / "_delta_log").exists()


def test_the_versions_that_others_commit_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DeltaStore(tmp_path)
    model = store.model()
    sink = DeltaTables(sink_spec_of(model))
    sink.open(RUN)
    sink.commit(0, two_steps(model)[0])
    before = DeltaTable(store.path / "spend").version()
    sync, synced = DeltaFolder._sync, list[str]()  # noqa: SLF001 - the moment between commit and sync

    def other(self: DeltaFolder, since: int) -> None:
        if self.table.name == "spend":
            DeltaTable(self.uri).alter.set_table_properties({"other": "x"}, raise_if_not_exists=False)
        sync(self, since)

    monkeypatch.setattr(DeltaFolder, "_sync", other)
    monkeypatch.setattr("windrow.connectors.delta.folder.sync_path", lambda path: synced.append(str(path)))
    sink.commit(1, two_steps(model)[1])
    logs = [store.path / "spend" / "_delta_log" / f"{before + n:020}.json" for n in range(3)]
    assert [path for path in map(str, logs) if path not in synced] == []


def test_parquet_files_are_handed_over_by_the_last_to_open_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ParquetStore(tmp_path)
    model = store.model()
    steps = two_steps(model)
    committed(store, model, steps[0])
    next_run, looks = Run(RUN.pipeline, "run-2"), list[Run]()

    def meanwhile(run: Run, *given: Any) -> bool:  # noqa: ANN401 - the function's
        looks.append(run)
        is_handed_over = ownership.authorize(run, *given)
        if len(looks) == 2:
            committed(store, model, steps[1])
        return is_handed_over

    monkeypatch.setattr("windrow.connectors.step_folder.authorize", meanwhile)
    with pytest.raises(SinkError, match="opened by another process"):
        ParquetFolder(sink_spec_of(model)).open(next_run, Follows(RUN, 0))
    assert looks[:2] == [next_run, next_run]
    assert store.owners() == {"spend": RUN.id}
    with pytest.raises(SinkError, match="is at epoch 1, but the savepoint is at epoch 0"):
        ParquetFolder(sink_spec_of(model)).open(next_run, Follows(RUN, 0))


def test_a_delta_table_that_somebody_else_made(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path)
    model = store.model()
    write_deltalake(store.path / "spend", pa.table({"x": [1]}))
    with pytest.raises(SinkError, match="'spend' holds rows that windrow did not write"):
        DeltaTables(sink_spec_of(model)).open(RUN)
    with pytest.raises(SinkError, match="'spend' holds rows that windrow did not write"):
        DeltaTables(sink_spec_of(model)).clear()
    assert DeltaTable(store.path / "spend").count() == 1


def test_delta_tables_with_other_columns_are_refused(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path)
    model = store.model()
    committed(store, model, step(model))
    more = replace(model, aggregates=(*model.aggregates, replace(model.aggregates[0], name="more")))
    with pytest.raises(SinkError, match=r"'spend' has no column 'more' \(decimal\(38,2\)\).*--fresh"):
        DeltaTables(sink_spec_of(more)).open(RUN)
    DeltaTables(sink_spec_of(more)).clear()
    DeltaTables(sink_spec_of(more)).open(RUN)
    assert [field.name for field in DeltaTable(store.path / "spend").schema().fields][-3:] == [
        "more",
        "pane",
        "revision",
    ]


def test_a_delta_table_that_was_removed_while_the_run_writes(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path)
    model = store.model()
    sink = DeltaTables(sink_spec_of(model))
    sink.open(RUN)
    sink.commit(0, step(model))
    store.drop("spend")
    with pytest.raises(SinkError, match="taken over by another run"):
        sink.commit(1, step(model))
    assert not (store.path / "spend").exists()


@pytest.mark.parametrize("kind", [DeltaStore, ParquetStore])
def test_folders_that_no_table_can_be_in(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    model = kind(tmp_path / "nothing").model()
    with pytest.raises(SinkAddressError, match=r"nothing of .* does not exist: create it"):
        kind(tmp_path / "nothing").sink(model).open(RUN)
    store = kind(tmp_path)
    store.path.write_text("a file")
    with pytest.raises(SinkError, match="correct the sink's path"):
        store.sink(store.model()).open(RUN)


def test_a_step_has_files_of_the_rows_that_it_has(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path)
    model = store.model()
    committed(store, model, *two_steps(model))
    assert sorted(path.name for path in (store.path / "spend" / "epoch=000000000001").iterdir()) == [
        "_clocks.parquet",
        "_dead.parquet",
        "_late.parquet",
        "changes.parquet",
    ]
    assert [path.name for path in (store.path / "spend" / "epoch=000000000000").iterdir()] == ["changes.parquet"]


def test_a_folder_of_an_earlier_version_keeps_the_names_of_its_files(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path)
    model = store.model()
    committed(store, model, *two_steps(model))
    folder, owner = store.path / "spend", store.path / "spend" / "_owner.json"
    owner.write_text(json.dumps({"pipeline": RUN.pipeline, "run": RUN.id, "origin": Origin("spend").text()}))
    for path in folder.glob("*/_*.parquet"):
        path.rename(path.with_name(path.name.removeprefix("_")))
    for path in folder.glob("epoch=*"):
        path.rename(path.with_name(path.name.replace("epoch=", "step-")))
    rows = two_steps(model)[1]
    for number in (2, 3):
        committed(store, model, rows)
        names = sorted(path.name for path in (folder / f"step-{number:012}").iterdir())
        assert names == ["changes.parquet", "clocks.parquet", "dead.parquet", "late.parquet"]
    sink = store.sink(model)
    assert sink.journal().num_rows == 3 * rows.clocks.num_rows
    sink.clear()
    committed(store, model, *two_steps(model))
    assert sink.journal().num_rows == rows.clocks.num_rows
    assert (folder / "epoch=000000000001" / "_late.parquet").exists()


def test_spark_reads_the_changes_of_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    store = ParquetStore(tmp_path)
    model = store.model()
    committed(store, model, *two_steps(model))
    sink = store.sink(model)  # a step may be in the making
    sink.open(RUN)
    found = spark.read.parquet(str(store.path / "spend"))
    assert found.columns == list(store.tables(model).changes.columns)
    rows = [tuple(row) for row in found.orderBy("epoch", "seq").select("epoch", "op", "user", "total").collect()]
    assert rows == [(row["epoch"], row["op"], row["user"], row["total"]) for row in store.changes(model)]


ODD = ["A", "a b/\u00fc", "007", "x%y=z", "", "__HIVE_DEFAULT_PARTITION__", "long" * 60]
NULL = ("", "__HIVE_DEFAULT_PARTITION__")


def partitioned(store: DeltaStore | ParquetStore, *columns: str) -> Pipeline:
    return store.model(sink=replace(store.settings(), partition_by=columns))


def steps_of(model: Pipeline) -> list[StepOutput]:
    """Rows of odd users, some of which are revised or deleted, in three steps."""
    first = [change("insert", at, user, Decimal(1), 1) for at in (0, 5) for user in ODD]
    revised = []
    for user in ODD[:3]:
        revised += [
            change("update_before", 0, user, Decimal(1), 1, pane="late"),
            change("update_after", 0, user, Decimal(2), 2, pane="late", revision=1),
        ]
    deleted = [change("delete", 5, user, Decimal(1), 1, pane="late", revision=1) for user in ODD[1:3]]
    again = [change("insert", 10, user, Decimal(4), 3) for user in ODD[:2]]
    return [step(model, first), step(model, [*revised, *deleted]), step(model, again)]


@pytest.mark.parametrize("kind", [DeltaStore, ParquetStore])
@pytest.mark.parametrize("is_at_once", [False, True])
def test_rows_are_divided_by_columns(kind: type[Any], is_at_once: bool, tmp_path: Path) -> None:  # noqa: FBT001
    store, plain = kind(tmp_path / "by"), kind(tmp_path / "plain")
    for one in (store, plain):
        one.path.parent.mkdir()
    model = partitioned(store, "user")
    steps = steps_of(model)
    steps = [StepOutput.concat(steps)] if is_at_once else steps
    committed(store, model, *steps)
    committed(plain, plain.model(), *steps)
    is_delta = kind is DeltaStore
    # a folder's name has at most 255 bytes, and Delta's files have names of their own
    refused = {*NULL, *([] if is_delta else ["long" * 60])}

    def kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row["user"] not in refused]

    if is_delta:
        assert store.result(model) == kept(plain.result(plain.model()))
        found = pa.table(DeltaTable(store.path / "spend").get_add_actions(flatten=True))
        assert set(found["partition.user"].to_pylist()) == set(ODD) - refused
    else:
        spelled = {"A", "a b%2F\u00fc", "007", "x%25y%3Dz"}
        folders = {path.name for path in (store.path / "spend").glob("epoch=*/*") if path.is_dir()}
        assert folders == {f"user={user}" for user in spelled}
    changes = [{**row, "seq": 0} for row in kept(plain.changes(plain.model()))]
    assert [{**row, "seq": 0} for row in store.read(store.tables(model).changes, "epoch, seq")] == changes
    dead = store.read(store.tables(model).dead)
    assert len(dead) == 2 * len(refused)
    assert all(row["reason"].startswith("refused: ") and "partitioned by it" in row["reason"] for row in dead)


def test_a_row_moves_to_another_partition_also_after_a_compaction(tmp_path: Path) -> None:
    store, plain = DeltaStore(tmp_path), DeltaStore(tmp_path / "plain")
    plain.path.parent.mkdir()
    model = partitioned(store, "events", "user")
    steps = steps_of(model)
    for one, of in ((store, model), (plain, plain.model())):
        for number, rows in enumerate(steps):
            committed(one, of, rows)
            DeltaTable(one.path / "spend").optimize.compact()
            if number == 0:
                one.add_column("spend", "note")
                one.note("kept", "A")
    users = set(ODD) - set(NULL)
    assert store.result(model) == [row for row in plain.result(plain.model()) if row["user"] in users]
    found = pa.table(DeltaTable(store.path / "spend").get_add_actions(flatten=True))
    pairs = zip(found["partition.events"].to_pylist(), found["partition.user"].to_pylist(), strict=True)
    assert {(2, "A"), (1, "A"), (3, "a b/\u00fc")} <= set(pairs)
    noted = DeltaTable(store.path / "spend").to_pyarrow_table().select(["user", "revision", "note"]).to_pylist()
    assert {"user": "A", "revision": 1, "note": "kept"} in noted


@pytest.mark.parametrize("kind", [DeltaStore, ParquetStore])
def test_a_table_keeps_its_partitions_until_it_is_cleared(kind: type[Any], tmp_path: Path) -> None:
    store = kind(tmp_path)
    model, other = store.model(), partitioned(store, "user")
    committed(store, model, *steps_of(model))
    refused = pytest.raises(SinkError, match=r"partitioned by nothing, not .*user.*--fresh")
    with refused:
        store.sink(other).preflight(RUN)
    with refused:
        store.sink(other).open(RUN)
    store.sink(other).clear()
    committed(store, other, *steps_of(other))
    assert len(store.read(store.tables(other).dead)) in {4, 6}
    with pytest.raises(SinkError, match=r"partitioned by .*user.*, not nothing"):
        store.sink(model).open(RUN)


def test_spark_reads_a_folder_with_partitions(spark: SparkSession, tmp_path: Path) -> None:
    store = ParquetStore(tmp_path)
    model = partitioned(store, "user")
    steps = steps_of(model)
    # a step without changes has no partitions
    committed(store, model, steps[0], step(model), *steps[1:])
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    spark.conf.set(setting, "false")
    try:
        found = spark.read.parquet(str(store.path / "spend")).select("op", "user", "total", "seq")
        rows = sorted(tuple(row) for row in found.collect())
    finally:
        spark.conf.unset(setting)
    assert rows == sorted((row["op"], row["user"], row["total"], row["seq"]) for row in store.changes(model))


LISTS = (Aggregate("amounts", CollectList("amount", 9)), Aggregate("times", CollectList("t", 9)))


def with_lists(store: DeltaStore | ParquetStore) -> Pipeline:
    return store.model(sink=replace(store.settings(), lists="array"), aggregates=LISTS)


def test_spark_reads_lists_as_arrays(spark: SparkSession, tmp_path: Path) -> None:
    store = ParquetStore(tmp_path)
    rows = [change("insert", 0, "A", '["1.50","-0.01"]', '["2026-01-01T00:00:00.000001Z"]')]
    committed(store, with_lists(store), step(with_lists(store), rows))
    found = spark.read.parquet(str(store.path / "spend"))
    types = {name: type_ for name, type_ in found.dtypes if name in {"amounts", "times"}}
    assert types == {"amounts": "array<decimal(12,2)>", "times": "array<timestamp>"}
    sql = "aggregate(amounts, cast(0 as decimal(20,2)), (a, b) -> cast(a + b as decimal(20,2)))"
    assert found.selectExpr(sql, "unix_micros(times[0])").collect() == [(Decimal("1.49"), 1767225600000001)]


def test_rows_with_lists_are_merged_beside_a_users_column(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path)
    model = with_lists(store)
    first = [change("insert", minute, "A", '["1.50"]', "[]") for minute in (0, 5)]
    committed(store, model, step(model, first))
    store.add_column("spend", "note")
    store.note("mine", "A")
    committed(store, model, step(model, [change("update_after", 5, "A", '["1.50","2.00"]', "[]", revision=1)]))
    found = DeltaTable(store.path / "spend").to_pyarrow_table().sort_by("window_start").to_pylist()
    amounts = [[Decimal("1.50")], [Decimal("1.50"), Decimal("2.00")]]
    assert [(row["amounts"], row["times"], row["note"]) for row in found] == [(each, [], "mine") for each in amounts]


def test_what_was_replayed_into_a_delta_table_is_noted(tmp_path: Path) -> None:
    store = DeltaStore(tmp_path)
    model = store.model()
    database = open_database(model.sink)
    note = Replayed("spend", RUN, begin={0: 3}, end={0: 7, 1: 9}, since=1_767_225_600_500_000, finished=False)
    assert database.stands("spend") is None
    assert database.replayed("spend") is None
    database.note(note)
    committed(store, model, step(model))
    assert database.stands("spend") == (RUN, 0)
    assert database.replayed("spend") == note
    database.note(replace(note, finished=True))
    assert database.replayed("spend") == replace(note, finished=True)
    committed(store, store.model(sink=store.settings("other")), run=Run(RUN.pipeline, "run-2"))
    assert database.replayed("other") is None
    with pytest.raises(SinkError, match=r"cannot be renamed atomically.*'spend_shadow'"):
        database.promote(RUN.pipeline, [("spend", "spend_shadow")])


def test_two_pipelines_note_their_replays_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DeltaStore(tmp_path)
    database = open_database(store.settings())
    notes = [Replayed(table, RUN, begin=None, end={0: 7}, since=None, finished=True) for table in ("a", "b", "c")]
    database.note(notes[0])
    read, others = DeltaFolder.read, [notes[1]]

    def meanwhile(self: DeltaFolder) -> bool:
        found = read(self)
        if others:
            database.note(others.pop())
        return found

    monkeypatch.setattr(DeltaFolder, "read", meanwhile)
    database.note(notes[2])
    found = DeltaTable(store.path / "windrow_replays").to_pyarrow_table()
    assert sorted(found["table_name"].to_pylist()) == ["a", "b", "c"]


def test_parquet_files_have_no_table_to_look_into(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Parquet files of changes.* a pipeline that writes to a table"):
        open_database(ParquetStore(tmp_path).settings())
