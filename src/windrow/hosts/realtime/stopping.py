"""Stopping a run from anywhere: requests that name it, as commits of a consumer group beside that of its offsets.

A task looks for them once a second, beside its loop. A request names a run by its id, so a run that begins later is not
meant, and nothing has to be taken back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from windrow.errors import RunError, SourceError
from windrow.hosts.realtime.progress import Position, Positions
from windrow.hosts.realtime.topics import source_of, state_topic, stop_group
from windrow.model import Runnable
from windrow.sources.kafka.client import client_of, group_answer
from windrow.sources.kafka.options import TIMEOUT, client_options
from windrow.sources.kafka.read import Tail

_EVERY = 1.0
"""Seconds between two looks for a request."""
_LOOK = 0.2
"""Seconds between two looks whether a run has ended."""


def request_stop(pipeline: Runnable, runs: Iterable[str]) -> None:
    """Ask the tasks of runs to commit what is decided, and end; raise SourceUnavailableError if no broker answers."""
    source = source_of(pipeline)
    admin = client_of(AdminClient, source.topic, {**client_options(source), "error_cb": lambda _: None})
    place = TopicPartition(state_topic(pipeline), 0, 0, metadata=",".join(runs))
    asked = ConsumerGroupTopicPartitions(stop_group(pipeline), [place])
    (answer,) = admin.alter_consumer_group_offsets([asked], request_timeout=TIMEOUT).values()
    group_answer(answer, stop_group(pipeline), source.servers, TIMEOUT)


def stop_run(pipeline: Runnable, seconds: float) -> list[Position]:
    """Stop the run of a pipeline, and return how far its partitions are then.

    Raise RunError if none is running, or if it has not ended in so many seconds; SourceError if no broker answers.
    """
    positions = Positions(pipeline)
    runs = {one.owner.run for one in positions.ask() if one.owner is not None and not one.owner.ended}
    if not runs:
        msg = f"no run of {pipeline.name} is going on: {'each has ended' if _has_run(positions) else 'it never ran'}"
        raise RunError(msg)
    request_stop(pipeline, runs)
    deadline = time.monotonic() + seconds
    while True:
        found = positions.ask()
        left = [one for one in found if one.owner is not None and one.owner.run in runs and not one.owner.ended]
        if not left:
            return found
        if time.monotonic() > deadline:
            numbers = ", ".join(str(one.partition) for one in left)
            msg = (
                f"the run of {pipeline.name} has not ended after {seconds:g} s, in partition {numbers}: it was asked "
                "to, and ends when it gets to it; if it died before, nothing is left to be stopped"
            )
            raise RunError(msg)
        time.sleep(_LOOK)


class StopRequests:
    """Looks for requests to stop a run, in a thread of its own, until it is left."""

    def __init__(self, pipeline: Runnable, run: str) -> None:
        self._run = run
        self._topic = state_topic(pipeline)
        self._settings = client_options(source_of(pipeline))
        self._group = stop_group(pipeline)
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


def _has_run(positions: Positions) -> bool:
    return any(one.owner is not None for one in positions.ask())
