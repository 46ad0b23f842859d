"""Rows that fail in a formula or as they are written are dead letters in every cut; all other rows are in the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock
from zlib import crc32

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.steps import RUN
from tests.examples import examples, many
from tests.graphs import sink_spec_of
from tests.properties.strategies import Case, cases
from tests.properties.test_carry import Player, together

from windrow.connectors import tables
from windrow.connectors.duckdb.connector import DuckDBSink
from windrow.connectors.duckdb.tables import DuckDBSession
from windrow.connectors.open_sinks import open_database
from windrow.connectors.registry import sink_connector
from windrow.connectors.sqlite import tables as sqlite
from windrow.engine.changelog import StepOutput
from windrow.engine.decode.evaluation import Evaluator
from windrow.engine.tick import PlayStep
from windrow.expressions import SinkSpec
from windrow.model import Aggregate, Count, Formula, SqliteSink

EVERY = 4
"""One row in so many fails in each step."""


@dataclass(frozen=True)
class Faults:
    """The rows that fail, chosen by their window, key and count, so that every cut meets the same ones."""

    seed: int
    names: tuple[str, ...]

    def fails(self, step: str, row: dict[str, Any]) -> bool:
        """Return True if a row fails in a step."""
        content = [str(row[name]) for name in self.names]
        return crc32(f"{self.seed}/{step}/{content}".encode()) % EVERY == 0

    def check(self, step: str, *tables_: object) -> None:
        """Raise an error if a row of the tables fails in a step."""
        for rows in tables_:
            names = rows.schema.names if isinstance(rows, pa.Table) else []
            if isinstance(rows, pa.Table) and set(self.names) <= set(names) and "source" not in names:
                bad = [row for row in plain(rows) if self.fails(step, row)]
                if bad:
                    error = [ValueError, pa.ArrowInvalid, duckdb.InternalException][len(bad[0]) % 3]
                    msg = f"unlucky {bad[0]['n_rows']} at {id(rows):#x}"
                    raise error(msg)


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python values; times are microseconds, and infinite numbers and zeros have one form."""
    columns = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns)
    made = [
        dict(zip(rows.column_names, row, strict=True))
        for row in zip(*(one.to_pylist() for one in columns), strict=True)
    ]
    return [{name: value + 0 if isinstance(value, float) else value for name, value in row.items()} for row in made]


def played(case: Case, steps: Sequence[PlayStep], faults: Faults | None) -> list[StepOutput]:
    """The output of each step; with `faults`, formulas fail."""
    compute = Evaluator.compute_nulls

    def failing(evaluator: Evaluator, rows: pa.Table) -> object:
        if faults is not None:
            faults.check("formula", rows)
        return compute(evaluator, rows)

    with mock.patch.object(Evaluator, "compute_nulls", failing):
        player = Player(case, case.pipeline)
        return [*(player.step(step) for step in steps), together(player.host.end())]


def written(
    spec: SinkSpec, outputs: Sequence[StepOutput], faults: Faults, *, crashes: bool
) -> tuple[list[str], list[Any]]:
    """The rows of the table, and the dead letters of rows, when steps are committed to a sink in which rows fail."""
    places = [(sqlite, "values"), (DuckDBSession, "_over")]
    commits, store = count(), tables.storable_dead
    connector = sink_connector(spec.sink)

    def dying(dead: pa.Table) -> pa.Table:
        number = next(commits)
        # ever fewer: a repeated commit can write as often each time
        if crashes and number & (number - 1) == 0:
            raise KeyboardInterrupt
        return store(dead)

    def failing(write: Any) -> Any:  # noqa: ANN401 - of any sink
        def wrapper(*given: Any) -> Any:  # noqa: ANN401 - the same
            faults.check("write", *given)
            return write(*given)

        return wrapper

    sink = connector.load(connector.tables)(spec)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in places:
            patch.setattr(owner, name, failing(getattr(owner, name)))
        patch.setattr(tables, "storable_dead", dying)
        begin = sink.open(RUN)
        assert begin is None
        for epoch, output in enumerate(outputs):
            while epoch != begin:
                try:
                    sink.commit(epoch, output)
                except KeyboardInterrupt:
                    sink.close()
                    sink = connector.load(connector.tables)(spec)
                    assert sink.open(RUN) == begin
                else:
                    begin = epoch
        sink.close()
    layout = tables.layout(spec)
    with open_database(spec.sink).snapshot() as snapshot:
        rows = [row for part in snapshot.rows(layout.result, layout.result.key) for row in plain(part)]
        dead = [row for part in snapshot.rows(layout.dead, ["reason"]) for row in plain(part)]
    letters = [(row["source"], row["reason"], row["raw"]) for row in dead if row["partition"] is None]
    return sorted(map(repr, rows)), sorted(letters)


def expected(
    spec: SinkSpec, outputs: Sequence[StepOutput], faults: Faults, steps: Sequence[str]
) -> tuple[list[str], int]:
    """The rows of the table and the number of dead letters, given the changes without faults: the definition."""
    result = tables.layout(spec).result
    table: dict[tuple[Any, ...], dict[str, Any]] = {}
    dead = 0
    for row in (row for output in outputs for row in plain(output.changes)):
        key = tuple(row[name] for name in result.key)
        if row["op"] == "update_before":
            continue
        table.pop(key, None)
        if row["op"] != "delete":
            is_dead = any(faults.fails(step, row) for step in steps)
            dead += is_dead
            if not is_dead:
                table[key] = {name: row[name] for name in result.columns}
    return sorted(map(repr, table.values())), dead


def hold(case: Case, seed: int, *, is_duckdb: bool, formula: bool, changelog: bool) -> None:
    """Compare two cuts of a log with the definition and with each other; the second has crashes."""
    more = (Aggregate("n_rows", Count()), *((Aggregate("twice", Formula("n_rows * 2")),) if formula else ()))
    pipeline = replace(case.pipeline, aggregates=(*case.pipeline.aggregates, *more))
    case = replace(case, pipeline=pipeline)
    faults = Faults(seed, ("window_start", "window_end", *pipeline.key, "n_rows"))
    found = []
    with TemporaryDirectory() as folder:
        for number, steps in enumerate((case.feed, case.recut.steps)):
            path = str(Path(folder) / f"{number}.db")
            sink = DuckDBSink(path, "t") if is_duckdb else SqliteSink(path, "t", decimals="text")
            spec = sink_spec_of(replace(pipeline, sink=replace(sink, changelog=changelog)))
            without = played(case, steps, None)
            rows, letters = written(spec, played(case, steps, faults), faults, crashes=number == 1)
            assert (rows, len(letters)) == expected(
                spec, without, faults, ["formula", "write"] if formula else ["write"]
            )
            assert all(why.startswith(("internal: formula: ", "internal: write: ")) for _, why, _ in letters)
            revisions = sorted(
                repr(row) for output in without for row in plain(output.changes) if row["op"] != "update_before"
            )
            found.append((rows, revisions, letters))
    (rows, revisions, letters), (other_rows, other_revisions, other_letters) = found
    assert other_rows == rows
    if revisions == other_revisions:
        assert other_letters == letters


FLAGS = st.fixed_dictionaries({name: st.booleans() for name in ("is_duckdb", "formula", "changelog")})


@examples(8)
@given(case=cases(most_records=12), seed=st.integers(0, 2**32), flags=FLAGS)
def test_rows_that_fail_are_dead_letters_in_every_cut(case: Case, seed: int, flags: dict[str, bool]) -> None:
    hold(case, seed, **flags)


@pytest.mark.long
@many(400)
@given(case=cases(), seed=st.integers(0, 2**32), flags=FLAGS)
def test_many_rows_that_fail(case: Case, seed: int, flags: dict[str, bool]) -> None:
    hold(case, seed, **flags)
