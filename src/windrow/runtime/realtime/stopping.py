"""Stops a run from anywhere: a stop request is a commit in a consumer group beside the one that holds the offsets.

Each task checks for requests once a second, in parallel with its loop. A request contains the ID of a run, so it does
not stop later runs and need not be removed.

A run also announces itself in this group before Spark starts, because it is not visible otherwise until its tasks have
committed.
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
"""Seconds between two checks for a request."""
_LOOK = 0.2
"""Seconds between two checks whether a run has ended."""


@dataclass(frozen=True)
class Announced:
    """The run that was started last: its ID, when it began (seconds since the epoch), and whether it has ended."""

    run: str
    begun: float
    ended: bool = False

    def is_starting(self, at: Position) -> bool:
        """Return True if the run has not ended, and has not committed anything in a partition yet."""
        return not self.ended and (at.owner is None or at.owner.run != self.run)


def request_stop(graph: m.Graph, runs: Iterable[str]) -> None:
    """Ask the tasks of the given runs to commit and end; raise SourceUnavailableError if no broker answers."""
    _commit(graph, TopicPartition(state_topic(graph), 0, 0, metadata=",".join(runs)))


def announce(graph: m.Graph, run: Announced) -> None:
    """Record the start or end of a run; raise SourceError if the group is not permitted, or if no broker answers."""
    _commit(graph, TopicPartition(source_of(graph).topic, 0, 0, metadata=json.dumps(vars(run))))


def announced(graph: m.Graph) -> Announced | None:
    """Return the run that was started last, or None.

    Raise SourceError if the group is not permitted, or if no broker answers.
    """
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
    """Stop the run of a pipeline, even if it is just starting, and return the final positions of its partitions.

    Raise RunError if no run is active, or if the run has not ended within `seconds`, and SourceError if no broker
    answers.
    """
    positions = Positions(graph)
    at = positions.ask()
    runs = {position.owner.run for position in at if position.owner is not None and not position.owner.ended}
    last = announced(graph)
    if last is not None and all(map(last.is_starting, at)):
        runs.add(last.run)
    if not runs:
        has_run = any(position.owner is not None for position in at)
        msg = f"no run of {graph.name} is active: {'each has ended' if has_run else 'it never ran'}"
        raise RunError(msg)
    request_stop(graph, runs)
    deadline = time.monotonic() + seconds
    while True:
        found = positions.ask()
        owners = [(position.partition, position.owner) for position in found if position.owner is not None]
        left = [partition for partition, owner in owners if owner.run in runs and not owner.ended]
        last = announced(graph)
        is_starting = last is not None and last.run in runs and all(map(last.is_starting, found))
        if not left and not is_starting:
            return found
        if time.monotonic() > deadline and is_starting:
            msg = (
                f"the run of {graph.name} has not ended after {seconds:g} s, as it is still starting: it was asked to "
                "stop, and will end once Spark has started; if it has died, there is nothing to stop"
            )
            raise RunError(msg)
        if time.monotonic() > deadline:
            msg = (
                f"the run of {graph.name} has not ended after {seconds:g} s, in partition {', '.join(map(str, left))}: "
                "it was asked to stop, and will end after its current step; if it has died, there is nothing to stop"
            )
            raise RunError(msg)
        time.sleep(_LOOK)


class StopRequests:
    """Checks for requests to stop a run, in a background thread, until the block ends."""

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
        """Return True if the run was asked to stop."""
        return self._asked.is_set()

    def _look(self) -> None:
        tail = Tail(self._topic, 0, self._settings, self._group)
        while not self._left.wait(_EVERY):
            with suppress(SourceError):  # the next check asks again
                found = tail.committed(_EVERY)
                if found is not None and self._run in (found.metadata or "").split(","):
                    self._asked.set()
                    break
        tail.close()
