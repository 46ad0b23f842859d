"""How cost grows: the law, the verdicts, the file and the page."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from bench.disk import last_version
from bench.growth_report import page, table
from bench.growth_results import BASE, THINGS, Growth, Measured, Point
from bench.laws import WITHIN, judge
from hypothesis import assume, given
from hypothesis import strategies as st

COSTS = st.floats(0.5, 100)
ONE = Measured(BASE, 4.0, 6.0, 0.9, 2000.0, 900.0, 700.0, 3, 1_000_000, 5000, 300_000, 500_000, 200_000)


@given(COSTS, st.lists(st.floats(1 - WITHIN, 1 + WITHIN), max_size=5))
def test_costs_near_the_base_are_flat(base: float, near: list[float]) -> None:
    costs = [base * part for part in near]
    assume(all(abs(cost / base - 1) <= WITHIN for cost in costs))
    assert judge(costs, base).is_flat
    assert not judge([*costs, base * (1.01 + WITHIN)], base).is_flat
    assert "NOT FLAT" in judge([*costs, base * (1.01 + WITHIN)], base).words("")


@given(st.floats(0, 10), st.floats(0, 10), st.sets(st.integers(1, 60), min_size=3, max_size=6))
def test_a_line_is_found(fixed: float, each: float, given_x: set[int]) -> None:
    assume(fixed + each > 0.1)
    x = sorted(given_x)
    found = judge([fixed + each * one for one in x], fixed + each, x)
    assert found.is_explained
    assert found.fixed == pytest.approx(fixed, abs=1e-6)
    assert found.each == pytest.approx(each, abs=1e-6)


def test_what_is_on_no_line_has_no_law() -> None:
    found = judge([1.0, 1.0, 9.0, 1.0], 1.0, [1, 2, 3, 4])
    assert not found.is_flat
    assert not found.is_explained
    assert "NO LAW" in found.words("slices")
    # what falls as it grows is not explained by less than nothing
    assert min(judge([9.0, 5.0, 1.0], 9.0, [1, 2, 3]).fixed or 0, judge([9.0, 5.0, 1.0], 9.0, [1, 2, 3]).each or 0) >= 0
    assert judge([1.0, 9.0], 1.0, [1, 2]).off_line is None


POINTS = [BASE, *(point for thing in THINGS.values() for point in thing.points)]
MEASURED = st.builds(
    lambda point, wall, cpu, rows: replace(ONE, point=point, wall=wall, cpu=cpu, rows=rows),
    st.sampled_from(POINTS),
    COSTS,
    COSTS,
    st.integers(0, 10_000_000),
)


@given(st.lists(MEASURED, max_size=30))
def test_whatever_was_measured_has_a_table_and_a_page(measured: list[Measured]) -> None:
    found = Growth("2026-01-01", "2 cores", 1_000_000, 500_000, 3, [ONE, *measured])
    rows = list(table(found))
    assert {row.count("|") for row in rows} == {6}
    assert len(rows) == 3 + sum(one.point != BASE for one in measured)
    text = page(found)
    for name in found.things:
        assert f"images/growth-{name}.svg" in text
    assert len(list(found.verdicts())) == len(found.things) + 1 + (found.state_bytes is not None)


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    found = Growth("2026-01-01", "2 cores", 1_000_000, 500_000, 3, [ONE, replace(ONE, point=POINTS[3])])
    found.save(tmp_path / "folder" / "found.json")
    assert Growth.load(tmp_path / "folder" / "found.json") == found


def test_no_two_points_are_the_same() -> None:
    assert len(set(POINTS)) == len(POINTS)
    bare = [replace(point, thing="", value="") for point in POINTS]
    assert len(set(bare)) == len(bare)


def test_a_verdict_is_bad_for_a_curve_without_a_law_and_for_much_state() -> None:
    def grown(wall: float, compacted: int) -> Growth:
        rest = (replace(ONE, point=point, wall=wall * 4.0) for point in THINGS["lateness"].points[:1])
        large = replace(ONE, point=THINGS["lateness"].points[1], rows=1_000_000, compacted=compacted)
        return Growth("", "", 1_000_000, 500_000, 3, [ONE, *rest, large])

    assert grown(1.0, 39_000_000).is_well
    assert not grown(1.0, 41_000_000).is_well
    assert not grown(2.0, 39_000_000).is_well
    failed = replace(grown(1.0, 39_000_000), failed=["hopping"])
    assert not failed.is_well
    assert "FAILED: hopping" in list(failed.verdicts())


def test_the_figures_of_a_point_are_medians() -> None:
    runs = [
        {"seconds": s, "cpu": 2 * s, "results": 10, "events": 100, "steps": 2, "memory": m, "jvm": m, "workers": m}
        for s, m in ((1, 5), (9, 7), (2, 6))
    ]
    held = {"rows": {"panes": 4, "waiting": 1}, "blobs": 9, "left": 100, "compacted": 50}
    found = Measured.of(Point("x", "y"), {"runs": runs, "held": held})
    assert (found.wall, found.cpu, found.results, found.memory, found.rows) == (20_000, 40_000, 0.1, 7, 5)
    assert found.row_bytes == 10


def test_the_last_version_is_the_newest_snapshot_and_the_changelogs_after_it(tmp_path: Path) -> None:
    store = tmp_path / "0" / "1"
    (store / "SSTs").mkdir(parents=True)
    for version in (1, 2, 3, 4):
        (store / f"{version}.changelog").write_bytes(b"x" * 10**version)
    assert last_version(tmp_path) == 11110
    for name, size in (("old-a.sst", 7), ("new-b.sst", 5)):
        (store / "SSTs" / name).write_bytes(b"x" * size)
    for version, name in ((1, "old-a.sst"), (3, "new-b.sst")):
        with zipfile.ZipFile(store / f"{version}.zip", "w") as file:
            file.writestr("metadata", "v1\n" + json.dumps({"sstFiles": [{"dfsSstFileName": name}]}))
    assert last_version(tmp_path) == 10**4 + (store / "3.zip").stat().st_size + 5
    assert last_version(tmp_path / "SSTs") == 0
