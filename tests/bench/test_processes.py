"""Memory that grows is seen, and who takes it."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.processes import GROWTH, Sample, cpu, family, flatness, footprint, memory
from hypothesis import given
from hypothesis import strategies as st


def samples(totals: list[float]) -> list[Sample]:
    return [Sample(float(second), 1.0, total - 2.0, 1.0) for second, total in enumerate(totals)]


@given(st.floats(100, 10_000), st.integers(1, 200), st.floats(0, 5_000))
def test_memory_that_stays_is_flat_whatever_the_beginning_took(level: float, third: int, start: float) -> None:
    flat, text = flatness(samples([start + 3] * third + [level] * (2 * third)))
    assert flat
    assert text.endswith("memory is flat (last third at most 1.10 times the second)")


@given(st.floats(100, 10_000), st.integers(10, 200), st.floats(1.5 * GROWTH, 10))
def test_memory_that_grows_is_not_flat(level: float, third: int, growth: float) -> None:
    flat, text = flatness(samples([level * (1 + (growth - 1) * at / third) for at in range(3 * third)]))
    # by its slope from the second third to the last
    assert flat is ((1 + 2.5 * (growth - 1)) / (1 + 1.5 * (growth - 1)) <= GROWTH)
    assert not flat
    assert "NOT FLAT" in text


def test_a_saw_is_flat_by_its_heights() -> None:
    life = [10.0 * second for second in range(1, 101)]
    uneven = samples([*life * 3, *life * 3, *life[40:] * 5])
    assert not flatness(uneven)[0]
    assert flatness(uneven, percentile=90)[0]


def test_nothing_seen_is_not_flat() -> None:
    assert not flatness([])[0]
    assert not flatness(samples([5.0, 5.0]))[0]


def test_the_processes_of_a_session_are_told_apart() -> None:
    child = "print(1, flush=True); input()"
    code = f"import subprocess, sys; sum(range(5_000_000)); subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        assert leader.stdout.readline() == "1\n"  # the child runs
        driver, jvm, workers = memory(leader.pid)
        assert driver > 1
        assert workers > 1
        assert jvm == 0
        assert 0 < cpu(leader.pid) < 60
        seen, found = footprint(leader.pid), family(leader.pid)
        assert 1 < seen.driver < driver + 1
        assert 1 < seen.workers < workers + 1
        assert seen.jvm == 0
        assert seen.descriptors >= 6
        assert seen.threads == 2
        assert leader.pid in found.members
        assert len(found.members) == 2
        assert not found.workers
        assert not found.java
        leader.communicate("\n")
    assert memory(leader.pid) == (0, 0, 0)
    assert memory(os.getsid(0)) != (0, 0, 0)


def test_workers_are_what_the_daemon_below_the_fork_server_has_forked() -> None:
    nested = "import os, sys\nfor _ in range(3):\n    if os.fork(): os.wait(); sys.exit()\n"
    nested += "print(os.getpid(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", nested],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as leader:
        assert leader.stdout is not None
        worker = int(leader.stdout.readline())
        assert family(leader.pid).workers == [worker]
        assert len(family(leader.pid).members) == 4
        leader.communicate("\n")
