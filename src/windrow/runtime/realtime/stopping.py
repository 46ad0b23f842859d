"""Stopping a run from anywhere: requests that name it, as commits of a consumer group beside that of its offsets.

A task looks for them once a second, beside its loop. A request names a run by its id, so a run that begins later is not
meant, and nothing has to be taken back.

A run announces itself in the same group before Spark starts, as nothing else shows it until its tasks have committed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from windrow import model as m
from windrow.connectors.kafka.client import client_of, group_answer
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.read import CommittedOffsets, Tail
from windrow.errors import RunError, SourceError
from windrow.runtime.realtime.progress import Position, Positions
from windrow.runtime.realtime.topics import source_of, state_topic, stop_group

_EVERY = 1.0
"""Seconds between two looks for a request."""
_LOOK = 0.2
"""Seconds between two looks whether a run has ended."""


@dataclass(frozen=True)
class Announced:
    """The run that was started last: its id, when it began (seconds since the epoch), and whether it has ended."""

    run: str
    begun: float
    ended: bool = False

    def is_starting(self, at: Position) -> bool:
        """Whether the run goes on, as far as is known, and has committed nothing of a partition."""
        return not self.ended and (at.owner is None or at.owner.run != self.run)


def request_stop(graph: m.Graph, runs: Iterable[str]) -> None:
    """Ask the tasks of runs to commit what is decided, and end; raise SourceUnavailableError if no broker answers."""
    _commit(graph, TopicPartition(state_topic(graph), 0, 0, metadata=",".join(runs)))


def announce(graph: m.Graph, run: Announced) -> None:
    """Commit that a run begins, or has ended; raise SourceError if the group may not be used, or no broker answers."""
    _commit(graph, TopicPartition(source_of(graph).topic, 0, 0, metadata=json.dumps(vars(run))))


def announced(graph: m.Graph) -> Announced | None:
    """Return the run that was started last, None if none has announced itself; raise SourceError as `announce` does."""
    source = source_of(graph)
    found = CommittedOffsets(stop_group(graph), source.topic, client_options(source)).ask([0], TIMEOUT).get(0)
    return None if found is None or not found.metadata else Announced(**json.loads(found.metadata))


def _commit(graph: m.Graph, place: TopicPartition) -> None:
    source = source_of(graph)
    admin = client_of(AdminClient, source.topic, {**client_options(source), "error_cb": lambda _: None})
    asked = ConsumerGroupTopicPartitions(stop_group(graph), [place])
    (answer,) = admin.alter_consumer_group_offsets([asked], request_timeout=TIMEOUT).values()
    group_answer(answer, stop_group(graph), source.servers, TIMEOUT)


def stop_run(graph: m.Graph, seconds: float) -> list[Position]:
    """Stop the run of a pipeline, also one that is starting, and return how far its partitions are then.

    Raise RunError if none is running, or if it has not ended in so many seconds; SourceError if no broker answers.
    """
    positions = Positions(graph)
    at = positions.ask()
    runs = {one.owner.run for one in at if one.owner is not None and not one.owner.ended}
    last = announced(graph)
    if last is not None and all(map(last.is_starting, at)):
        runs.add(last.run)
    if not runs:
        msg = f"no run of {graph.name} is going on: {'each has ended' if _has_run(positions) else 'it never ran'}"
        raise RunError(msg)
    request_stop(graph, runs)
    deadline = time.monotonic() + seconds
    while True:
        found = positions.ask()
        left = [one for one in found if one.owner is not None and one.owner.run in runs and not one.owner.ended]
        is_starting = _is_starting(graph, runs, found)
        if not left and not is_starting:
            return found
        if time.monotonic() > deadline and is_starting:
            msg = (
                f"the run of {graph.name} has not ended after {seconds:g} s, as it is starting: it was asked to, "
                "and ends once Spark has started; if it died before, nothing is left to be stopped"
            )
            raise RunError(msg)
        if time.monotonic() > deadline:
            numbers = ", ".join(str(one.partition) for one in left)
            msg = (
                f"the run of {graph.name} has not ended after {seconds:g} s, in partition {numbers}: it was asked "
                "to, and ends when it gets to it; if it died before, nothing is left to be stopped"
            )
            raise RunError(msg)
        time.sleep(_LOOK)


class StopRequests:
    """Looks for requests to stop a run, in a thread of its own, until it is left."""

    def __init__(self, graph: m.Graph, run: str) -> None:
        self._run = run
        self._topic = state_topic(graph)
        self._settings = client_options(source_of(graph))
        self._group = stop_group(graph)
        self._asked, self._left = Event(), Event()
        self._thread = Thread(target=self._look, name="windrow-stop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()

    def is_asked(self) -> bool:
        """Whether the run was asked to stop."""
        return self._asked.is_set()

    def _look(self) -> None:
        tail = Tail(self._topic, 0, self._settings, self._group)
        while not self._left.wait(_EVERY):
            with suppress(SourceError):  # it is asked again
                found = tail.committed(_EVERY)
                if found is not None and self._run in (found.metadata or "").split(","):
                    self._asked.set()
                    break
        tail.close()


def _is_starting(graph: m.Graph, runs: Iterable[str], at: Iterable[Position]) -> bool:
    """Whether one of the runs has begun, and has not committed anything yet."""
    last = announced(graph)
    return last is not None and last.run in runs and all(map(last.is_starting, at))


def _has_run(positions: Positions) -> bool:
    return any(one.owner is not None for one in positions.ask())
