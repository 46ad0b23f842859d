"""The faults that a soak strikes a live run with: one of each kind, in an order that a seed shuffles."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psycopg
from bench.poison import poison
from bench.processes import family
from tests.faults.clock import Clock

from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres

DISK = 2 << 30
"""Bytes of the checkpoint's file system."""
_BACK = 3600


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Fault:
    """What strikes, what keeps it up meanwhile, and what ends it after `lasts` seconds.

    A run `may_end` of it, and is then started again, as a supervisor does. If the run `goes_on`, it has to commit steps
    while the fault lasts, which is longer then if need be; otherwise after it.
    """

    strike: Callable[[], None]
    end: Callable[[], None] = nothing
    keep: Callable[[], None] = nothing
    lasts: float = 0.0
    may_end: bool = False
    goes_on: bool = False


@dataclass
class Scene:
    """What faults can strike: the processes of the run (its leader's id), the servers, the disk and the clock."""

    leader: Callable[[], int]
    kafka: Kafka
    postgres: Postgres
    topic: str
    partitions: int
    url: str
    disk: Disk
    clock: Clock | None
    chance: Random


@dataclass(frozen=True)
class Disk:
    """A small file system in memory, as root can mount it, for one folder."""

    folder: Path

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Mount it in the block; raise RuntimeError if that is not possible."""
        ran = subprocess.run(
            [_program("mount"), "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            msg = f"cannot mount the small disk of the checkpoint: {ran.stderr.strip()}; run as root, or --skip disk"
            raise RuntimeError(msg)
        try:
            yield
        finally:
            subprocess.run([_program("umount"), "-l", self.folder], check=True)

    def fill(self) -> None:
        """Leave no room but what the run itself has freed since; a write since then only makes it a little larger."""
        room = os.statvfs(self.folder)
        self._resize(max((room.f_blocks - room.f_bfree) * room.f_frsize, room.f_frsize))

    def empty(self) -> None:
        """Give all of the room back."""
        self._resize(DISK)

    def _resize(self, size: int) -> None:
        subprocess.run([_program("mount"), "-o", f"remount,size={size}", self.folder], capture_output=True, check=False)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        msg = f"there is no program {name}, which the small disk of the checkpoint needs; --skip disk"
        raise RuntimeError(msg)
    return found


def kinds(scene: Scene, longest: float) -> dict[str, Fault]:
    """Return the faults by name; those that last end after `longest` seconds, servers that are away after a sixth.

    A run gives up after a minute without a step, and the feed after a minute without a broker, which takes its time to
    start.
    """
    away = longest / 6

    def set_clock(seconds: int) -> None:
        if scene.clock is not None:
            scene.clock.set(seconds)

    return {
        "worker": Fault(lambda: _kill([scene.chance.choice(_workers(scene))]), goes_on=True),
        "workers": Fault(lambda: _kill(_workers(scene)), goes_on=True),
        "java": Fault(lambda: _kill(family(scene.leader()).java), may_end=True),
        "run": Fault(lambda: _kill(family(scene.leader()).members), may_end=True),
        "broker": Fault(scene.kafka.kill, scene.kafka.start, lasts=away),
        "database": Fault(scene.postgres.kill, scene.postgres.start, lasts=away),
        "connections": Fault(lambda: _end_connections(scene.url), goes_on=True),
        "disk": Fault(scene.disk.fill, scene.disk.empty, scene.disk.fill, longest, may_end=True),
        "clock": Fault(lambda: set_clock(-_BACK), lambda: set_clock(0), lasts=longest, goes_on=True),
        "poison": Fault(lambda: _poison(scene), goes_on=True),
    }


def order(names: list[str], chance: Random) -> Iterator[str]:
    """Yield names without end, each before any is repeated."""
    while names:
        yield from chance.sample(names, len(names))


def _workers(scene: Scene) -> list[int]:
    """Return the Python workers of the run, as soon as there are any."""
    deadline = time.monotonic() + 60
    while not (found := family(scene.leader()).workers):
        if time.monotonic() > deadline:
            msg = "the run has no Python workers"
            raise RuntimeError(msg)
        time.sleep(0.1)
    return found


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _end_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )


def _poison(scene: Scene) -> None:
    """Append a record of each kind to a partition; the users are new, so that theirs are nowhere else."""
    now = int(time.time() * 1000)
    partition = scene.chance.randrange(scene.partitions)
    scene.kafka.produce(scene.topic, partition, poison(f"poison-{now}-", now).values())
