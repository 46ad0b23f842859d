"""How a soak is judged, what it strikes a run with, and in which order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from bench.faults import order
from bench.poison import poison
from bench.soak_report import EPOCHS, HISTORY, JUDGED, Criterion, End, Sample, Struck, judge, markdown
from bench.verdict import Verdict, pipeline, read_record, source_of
from hypothesis import given
from hypothesis import strategies as st
from tests.faults.clock import Clock

RIGHT = Verdict(5, {"spent": 3}, [])
SAMPLE = Sample(0.0, 100.0, 1000.0, 500.0, 300, 80, 50.0, 400, 1000, 900)
FAULTS = [Struck(100.0, "worker", 3.0), Struck(400.0, "disk", 20.0)]


def samples(seconds: float = 2 * JUDGED) -> list[Sample]:
    return [replace(SAMPLE, seconds=15.0 * number) for number in range(int(seconds / 15) + 1)]


def missed(criteria: list[Criterion]) -> set[str]:
    return {one.name for one in criteria if one.is_met is False}


def test_a_soak_that_is_well_meets_each_criterion() -> None:
    ends = [End(401.0, "disk", is_fair=True, said="no space left")]
    criteria = judge(samples(), FAULTS, ends, ["worker", "disk"], RIGHT)
    assert all(one.is_met for one in criteria), criteria
    page = markdown("A soak", criteria, FAULTS, samples())
    assert "not met" not in page
    assert "| disk | 1 | 20.0 |" in page


@pytest.mark.parametrize(
    ("field", "factor", "name"),
    [
        ("jvm", 1.3, "memory, MiB"),
        ("descriptors", 1.5, "descriptors"),
        ("threads", 1.5, "threads"),
        ("checkpoint", 1.5, "checkpoint, MiB"),
        ("files", 1.5, "files of the checkpoint"),
    ],
)
def test_what_grows_is_seen_in_a_long_soak_alone(field: str, factor: float, name: str) -> None:
    for seconds, found in ((2 * JUDGED, {name}), (JUDGED / 2, set())):
        grown = [
            replace(one, **{field: type(getattr(one, field))(getattr(one, field) * factor)})
            if one.seconds > 0.7 * seconds
            else one
            for one in samples(seconds)
        ]
        assert missed(judge(grown, FAULTS, [], ["disk"], RIGHT)) == found


def test_what_is_high_at_the_beginning_or_low_after_a_kill_is_flat() -> None:
    seen = [replace(one, jvm=3000.0) if one.seconds < JUDGED / 2 else one for one in samples()]
    seen = [replace(one, jvm=300.0) if one.seconds % 300 < 60 else one for one in seen]
    assert not missed(judge(seen, FAULTS, [], [], RIGHT))


def test_what_goes_wrong_is_named() -> None:
    ends = [End(9.0, None, is_fair=False, said="no reason")]
    struck = [*FAULTS, Struck(700.0, "clock", None)]
    full = [replace(one, history=HISTORY + 1, epochs=EPOCHS + 1) for one in samples()]
    criteria = judge(full, struck, ends, ["worker", "broker"], replace(RIGHT, differences=["spent: 1 row"]))
    said = {one.name: one.said for one in criteria if not one.is_met}
    assert said.pop("answers equal to the definition").endswith("spent: 1 row")
    assert said.pop("each kind of fault has struck") == "broker"
    assert said.pop("the run went on after each") == "clock at 700 s"
    assert said.pop("it ended of no other") == "after no fault at 9 s: no reason"
    assert set(said) == {"rows of the history", "rows of windrow_epochs"}
    assert "| clock | 1 | never |" in markdown("A soak", criteria, struck, full)


def test_nothing_seen_is_not_well() -> None:
    assert len(missed(judge([], [], [], ["disk"], RIGHT))) == 8


@given(st.integers(0, 1000), st.integers(1, 12))
def test_each_kind_strikes_before_any_does_again(seed: int, count: int) -> None:
    names = [f"kind {number}" for number in range(count)]
    found = list(islice(order(names, Random(seed)), 3 * count))
    assert all(sorted(found[at : at + count]) == sorted(names) for at in range(0, 3 * count, count))
    assert found == list(islice(order(names, Random(seed)), 3 * count))


def test_poison_has_each_reason_that_a_record_alone_can_have(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(pipeline("127.0.0.1:1", "purchases", "postgresql://postgres@127.0.0.1:1/soak"))
    source, now = source_of(file), int(time.time() * 1000)
    found = {name: read_record(source, now * 1000, value)[0] for name, value in poison("p-", now).items()}
    kinds = {"malformed", "not an object", "missing", "null", "wrong type", "out of range", "future", None}
    assert set(found.values()) == kinds
    assert found["user_id 5"] == "malformed"  # half a surrogate pair
    assert found["sum beyond 64 bits 2"] is None


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_clock_is_set_for_a_process_that_runs(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    code = "import time\nwhile True: input(); print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for seconds in (0, -3600, 0):
            clock.set(seconds)
            child.stdin.write("\n")
            child.stdin.flush()
            plain, nanos, monotonic = map(float, child.stdout.readline().split())
            assert abs(plain - (time.time() + seconds)) < 60
            assert abs(nanos - (time.time() + seconds)) < 60
            assert abs(monotonic - time.monotonic()) < 60
        child.kill()
