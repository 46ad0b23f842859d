"""Named points of a step, and faults that strike there, each once: the one way in which tests break a step within.

Nothing of this is in the product: `installed` wraps functions of the driver, and the wrappers of what runs in Spark's
workers travel there with the query. A fault that has struck leaves a file, so that no other process does it again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from pyspark import TaskContext, cloudpickle

from windrow.connectors.postgres.sink import PostgresTables
from windrow.connectors.sql.tables import SqlTable
from windrow.connectors.sqlite.tables import SqliteTables
from windrow.runtime.spark import stages
from windrow.runtime.spark.stages import LevelStep
from windrow.runtime.stream import run

Point = Literal["reading", "read", "operator", "stepped", "gathered", "inside", "committed"]
"""While records are read, when they are; before and after the operator of a key group; when all is computed and the
state is committed, within the sink's transaction, and when that is committed but Spark has not noted it."""

IN_OPERATORS: tuple[Point, ...] = ("operator", "stepped")
IN_WORKERS: tuple[Point, ...] = ("reading", "read", *IN_OPERATORS)
IN_DRIVER: tuple[Point, ...] = ("gathered", "inside", "committed")

Victim = Literal["step", "worker", "executor", "java", "driver", "all"]
"""The step fails with an error; or a process is killed: the Python worker, the executor that it works for, the JVMs,
windrow's own, or all of them."""


@dataclass(frozen=True)
class Fault:
    """What dies at which point, in the first step from `epoch` on; of points at operators, at those of a level."""

    point: Point
    victim: Victim
    epoch: int
    level: int = 0

    @property
    def kind(self) -> str:
        """What it is called in the report."""
        level = f" of level {self.level}" if self.level and self.point in IN_OPERATORS else ""
        return f"{self.victim} at {self.point}{level}"


@dataclass(frozen=True)
class Plan:
    """Faults; `folder` remembers which have struck, `driver` is the process that runs the query."""

    folder: Path
    faults: tuple[Fault, ...]
    driver: int = field(default_factory=os.getpid)

    @property
    def struck(self) -> list[Fault]:
        """Those that have struck."""
        return [fault for number, fault in enumerate(self.faults) if self._mark(number).exists()]

    def strike(self, point: Point, epoch: int, level: int | None = None) -> None:
        """Do what is planned for this point and step, and was not done yet."""
        for number, fault in enumerate(self.faults):
            is_here = fault.point == point and level in {None, fault.level}
            if is_here and epoch >= fault.epoch and self._claim(number):
                _do(fault, self.driver)
                return

    def to_json(self) -> str:
        """Write it for a process that makes itself the driver."""
        return json.dumps({"folder": str(self.folder), "faults": [asdict(fault) for fault in self.faults]})

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what `to_json` wrote."""
        kept = json.loads(text)
        return Plan(Path(kept["folder"]), tuple(Fault(**fault) for fault in kept["faults"]))

    def _mark(self, number: int) -> Path:
        return self.folder / f"{number}.struck"

    def _claim(self, number: int) -> bool:
        try:
            self._mark(number).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


@contextmanager
def installed(plan: Plan) -> Iterator[None]:
    """Let the plan's faults strike in the queries that are started meanwhile."""
    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)  # type: ignore[no-untyped-call] # it has no types
    with ExitStack() as held:
        held.callback(cloudpickle.unregister_pickle_by_value, here)
        ingest = stages.stream_ingest
        changed: list[tuple[Any, str, Any]] = [
            (run, "stream_ingest", lambda *args, **more: _reading(plan, ingest(*args, **more))),
            (run, "LevelStep", lambda *args, **more: _Step(plan, *args, **more)),
            (SqliteTables, "commit", _committing(plan, SqliteTables.commit)),
            (PostgresTables, "commit", _committing(plan, PostgresTables.commit)),
            (SqlTable, "write", _within(plan, SqlTable.write)),
        ]
        for owner, name, wrapper in changed:
            held.enter_context(patch.object(owner, name, wrapper))
        yield


Batches = Callable[[Iterable[Any]], Iterator[Any]]


def _reading(plan: Plan, run: Batches) -> Batches:
    def seen(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            plan.strike("reading", _epoch())
            yield batch

    def wrapper(batches: Iterable[Any]) -> Iterator[Any]:
        yield from run(seen(batches))
        plan.strike("read", _epoch())

    return wrapper


class _Step(LevelStep):
    def __init__(self, plan: Plan, *args: Any, **more: Any) -> None:  # noqa: ANN401 - whatever the step takes
        super().__init__(*args, **more)
        self._plan = plan

    def __call__(self, *args: Any) -> Any:  # noqa: ANN401 - as above
        self._plan.strike("operator", _epoch(), self._level)
        frames = list(super().__call__(*args))
        self._plan.strike("stepped", _epoch(), self._level)
        return iter(frames)


def _committing(plan: Plan, commit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(commit)
    def wrapper(sink: Any, epoch: int, *outputs: Any) -> Any:  # noqa: ANN401 - one a table
        plan.strike("gathered", epoch)
        refused = commit(sink, epoch, *outputs)
        plan.strike("committed", epoch)
        return refused

    return wrapper


def _within(plan: Plan, write: Callable[..., None]) -> Callable[..., None]:
    @wraps(write)
    def wrapper(self: Any, *args: Any) -> None:  # noqa: ANN401 - a sink or a step
        write(self, *args)
        plan.strike("inside", next(value for value in args if isinstance(value, int)))

    return wrapper


def _epoch() -> int:
    """Return the step that a worker's task is of."""
    context = TaskContext.get()
    told = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if told is None:
        msg = "a task does not know its step"
        raise RuntimeError(msg)
    return int(told)


def _do(fault: Fault, driver: int) -> None:
    match fault.victim:
        case "step":
            msg = f"a fault of the tests: {fault.point}"
            raise RuntimeError(msg)
        case "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        case "executor":  # a worker is a child of the daemon that the executor started
            os.kill(_parent(os.getppid()), signal.SIGKILL)
        case "driver":
            os.kill(driver, signal.SIGKILL)
        case "java":
            for pid in session_of(driver):
                with suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text() == "java\n":
                        os.kill(pid, signal.SIGKILL)
        case "all":
            others = [pid for pid in session_of(driver) if pid != os.getpid()]
            for pid in (*others, os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def session_of(leader: int) -> list[int]:
    """Return the living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                # after the name, which is in brackets and may hold anything: state, parent, group, session
                state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(session) == leader and state not in {"Z", "X"}:
                    found.append(int(entry.name))
    return found
