"""What the processes of a run take: memory of the driver, Spark's JVM and the Python workers, each second."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

MIB = 1 << 20
_PAGE, _TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
_WORKER = 3
"""How far below the run's leader a Python worker is: below the fork server (or Java), and Spark's daemon."""
_PARENT, _SESSION, _TICKS, _THREADS, _RESIDENT = 1, 3, slice(11, 15), 17, 21
"""Where they stand in what the kernel says of a process after its name: proc(5)."""
GROWTH = 1.10
"""Memory is flat if its level in the last third is at most so many times that in the second; the first warms up."""


@dataclass(frozen=True)
class Sample:
    """Resident memory in MiB, at some seconds since the beginning. Pages that processes share count in each."""

    seconds: float
    driver: float
    jvm: float
    workers: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.driver + self.jvm + self.workers


class Sampler:
    """Samples the session that `leader` says, in a thread, as long as there is one."""

    def __init__(self, leader: Callable[[], int | None], every: float = 1.0) -> None:
        self.samples: list[Sample] = []
        self._leader = leader
        self._every = every
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            leader = self._leader()
            if leader is not None:
                driver, jvm, workers = memory(leader)
                if jvm:
                    self.samples.append(Sample(time.monotonic() - self._began, driver, jvm, workers))


def memory(leader: int) -> tuple[float, float, float]:
    """Return the MiB of a session's leader, its JVM, and all others."""
    return _by_kind(leader, lambda _, status: int(status[_RESIDENT]) * _PAGE / MIB)


def cpu(leader: int) -> float:
    """Return the seconds of CPU time that a session's processes have taken, with those of its that have ended."""
    return sum(int(ticks) for _, _, status in _session(leader) for ticks in status[_TICKS]) / _TICK


class CpuMeter:
    """Adds up the seconds of CPU time of a session's leader, its JVM, and all others, if `look` is called now and then.

    What a process took after the last look before its end is lost.
    """

    def __init__(self, leader: int) -> None:
        self.seconds = [0.0, 0.0, 0.0]
        self._leader = leader
        self._seen: dict[int, int] = {pid: own for pid, _, own in self._own()}

    def look(self) -> None:
        """Add what was taken since the last look."""
        for pid, name, own in self._own():
            kind = 0 if pid == self._leader else 1 if name == "java" else 2
            self.seconds[kind] += (own - self._seen.get(pid, 0)) / _TICK
            self._seen[pid] = own

    def _own(self) -> Iterator[tuple[int, str, int]]:
        for pid, name, status in _session(self._leader):
            yield pid, name, sum(map(int, status[_TICKS][:2]))


def shares(leader: int) -> float:
    """Return the MiB of a session's processes, where a page that so many share counts as so much less in each."""
    return sum(shares_by_kind(leader))


def shares_by_kind(leader: int) -> tuple[float, float, float]:
    """Return the MiB, as those of `shares`, of a session's leader, its JVM, and all others."""
    return _by_kind(leader, lambda pid, _: _proportional(pid))


def members(leader: int) -> list[int]:
    """Return the processes of a session."""
    return [pid for pid, _, _ in _session(leader)]


@dataclass(frozen=True)
class Family:
    """The processes of a run: its JVMs, the Python workers that Spark's daemon has forked, and all of them."""

    java: list[int]
    workers: list[int]
    members: list[int]


def family(leader: int) -> Family:
    """Return the processes of the run that a session's leader is."""
    found = {pid: (name, int(status[_PARENT])) for pid, name, status in _session(leader)}
    java = [pid for pid, (name, _) in found.items() if name == "java"]

    def depth(pid: int) -> int:
        return 0 if pid == leader or pid not in found else 1 + depth(found[pid][1])

    workers = [pid for pid, (name, _) in found.items() if name != "java" and depth(pid) == _WORKER]
    return Family(java, workers, list(found))


@dataclass(frozen=True)
class Footprint:
    """What a run takes: MiB of the driver, the JVM and the other processes, open descriptors, and threads.

    Of a page that several processes share, each has its part.
    """

    driver: float
    jvm: float
    workers: float
    descriptors: int
    threads: int


def footprint(leader: int) -> Footprint:
    """Return the footprint of a session."""
    descriptors = threads = 0
    for pid, _, status in _session(leader):
        threads += int(status[_THREADS])
        with suppress(OSError):  # it ended meanwhile
            descriptors += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return Footprint(*shares_by_kind(leader), descriptors, threads)


def _by_kind(leader: int, of: Callable[[int, list[str]], float]) -> tuple[float, float, float]:
    driver = jvm = workers = 0.0
    for pid, name, status in _session(leader):
        value = of(pid, status)
        if pid == leader:
            driver += value
        elif name == "java":
            jvm += value
        else:
            workers += value
    return driver, jvm, workers


def _proportional(pid: int) -> float:
    with suppress(OSError, StopIteration):  # it ended meanwhile
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024
    return 0.0


def _session(leader: int) -> Iterator[tuple[int, str, list[str]]]:
    """Go through the processes of a session: id, name, and what the kernel says of it after the name (proc(5))."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):  # it ended meanwhile
                name, rest = (entry / "stat").read_text().partition("(")[2].rsplit(")", 1)
                status = rest.split()
                if int(status[_SESSION]) == leader:
                    yield int(entry.name), name, status


def flatness(samples: list[Sample], percentile: int = 50) -> tuple[bool, str]:
    """Return whether the memory of all together is flat, and a line for each kind.

    The level of a third is a percentile: the median, or a high one where processes begin anew now and then.
    """
    third = len(samples) // 3
    lines, flat = [], third > 0
    for kind in ("driver", "jvm", "workers", "total"):
        first, second, last = (
            _level([getattr(sample, kind) for sample in samples[at * third : (at + 1) * third]], percentile)
            for at in range(3)
        )
        grown = last / second if second else float("nan")
        lines.append(f"  {kind:8} {first:7,.0f} {second:7,.0f} {last:7,.0f} MiB   last / second third {grown:.2f}")
        if kind == "total":
            flat = flat and grown <= GROWTH
    verdict = f"memory is {'flat' if flat else 'NOT FLAT'} (last third at most {GROWTH:.2f} times the second)"
    return flat, "\n".join([f"memory, percentile {percentile} of each third:", *lines, verdict])


def _level(values: list[float], percentile: int) -> float:
    return sorted(values)[(len(values) - 1) * percentile // 100] if values else float("nan")
