"""Supervision of a task's partitions: each is reopened after a temporary failure while the others continue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress

from confluent_kafka import KafkaException

from windrow.errors import InputError, RecordsLostError, RunError, WindrowError
from windrow.runtime.realtime import partition as p
from windrow.runtime.realtime.partition import Partition, PartitionRun, in_background

_PAUSE = 0.5
"""Seconds between two attempts to open a partition whose broker does not answer."""
_HEALTHY = 60.0
"""Seconds without a failure after which an outage counts as over, even if nothing was committed."""
_FENCED_WAIT = 5.0
"""Seconds that a fenced task waits, so that the task that fenced it can commit."""
_LEAVE = 10.0
"""Seconds that a stop waits for a partition that is being opened."""


class TakenOverError(RunError):
    """Raised when another task runs the partition and has committed to it."""


class Supervised:
    """A partition and its run, which is reopened after a temporary failure.

    It is opened in a background thread, so that the task's other partitions need not wait until the previous run is
    fenced and the state is restored.
    """

    def __init__(self, job: Partition, retry: float) -> None:
        self._job = job
        self._retry = retry
        self._run: PartitionRun | None = None
        self._opening: Future[PartitionRun] | None = None
        self._is_fenced = False
        self._down_since: float | None = None
        self._down_at = (0, 0.0)
        """Offset and time of the last failure."""
        self._pause_until = 0.0
        self._failed: tuple[int, float] | None = None

    def turn(self, seconds: float) -> bool:
        """Run one pass of the partition's loop, and return True, if the partition is open; else return False.

        Raise permanent errors, after abandoning uncommitted work.
        """
        try:
            return self._try(seconds)
        except BaseException:
            # the operators may have processed half of a step
            self._abandon()
            raise

    def _try(self, seconds: float) -> bool:
        try:
            if self._run is None:
                self._run = self._poll_opening()
            if self._run is None:
                return False
            self._run.turn(seconds)
            offset, since = self._down_at
            # a turn without records does not show that a transaction would succeed
            if self._run.done > offset or time.monotonic() - since > _HEALTHY:
                self._down_since = None
        except p.FencedError as exc:
            self._is_fenced = True
            self._wait(exc, _FENCED_WAIT)
        except InputError:
            raise
        except (RunError, KafkaException) as exc:
            # the next attempt compares the log with the state, and reports which records were lost
            if isinstance(exc, RecordsLostError) or not (isinstance(exc, KafkaException) or exc.passes):
                self._require_other(exc)
            self._wait(exc, _PAUSE)
        except Exception as exc:  # noqa: BLE001 - a defect is reported with its place in the log, as any failure
            self._require_other(exc)
        else:
            return True
        self._abandon()
        return False

    def close(self) -> None:
        """Commit the remaining output, and end the partition's run."""
        if self._opening is not None:
            with suppress(Exception):  # a failure to open no longer matters
                self._opening.result(_LEAVE).abandon()
        if self._run is not None:
            with suppress(WindrowError, KafkaException):  # the next run repeats uncommitted work
                self._run.close()

    def _poll_opening(self) -> PartitionRun | None:
        """Begin to open the partition when due, and return its run once it is open, or None."""
        if self._opening is None:
            if time.monotonic() < self._pause_until:
                return None
            self._opening = in_background(self._open)
        if not self._opening.done():
            return None
        opening, self._opening = self._opening, None
        return opening.result()

    def _open(self) -> PartitionRun:
        if self._is_fenced:
            self._require_own()
        return self._job.open()

    def _abandon(self) -> None:
        if self._run is not None:
            self._run.abandon()
            self._run = None

    def _wait(self, exc: Exception, pause: float) -> None:
        """Schedule the next attempt; raise the error if all attempts have failed for `retry` seconds."""
        now = time.monotonic()
        self._down_since = now if self._down_since is None else self._down_since
        self._down_at = (self._down_at[0] if self._run is None else self._run.done), now
        self._pause_until = now + pause
        if now - self._down_since > self._retry:
            raise exc

    def _require_other(self, exc: Exception) -> None:
        """Raise RunError if the partition has just failed at the same offset.

        If the partition could not even be opened, raise the error itself.
        """
        if self._run is None:
            raise exc
        offset, now = self._run.done, time.monotonic()
        if self._failed is not None and self._failed[0] == offset and now - self._failed[1] < p.REPEATED:
            msg = f"partition {self._job.number} of {self._job.source.topic} failed twice after offset {offset}: {exc}"
            raise RunError(msg) from exc
        self._failed = offset, now

    def _require_own(self) -> None:
        """Raise TakenOverError if another task has committed.

        If none has, the broker only aborted a transaction because this task stalled, and the task continues.
        """
        owner, own = self._job.last_owner(), self._job.owner
        if owner is not None and not owner.is_task_of(own):
            by = "a newer attempt of its task" if owner.run == own.run else "another run of the pipeline"
            msg = f"partition {self._job.number} of {self._job.source.topic} was taken over by {by}"
            raise TakenOverError(msg)
        self._is_fenced = False


def serve(jobs: Sequence[Partition], is_stopped: Callable[[], bool], retry: float = 600.0) -> None:
    """Run partitions until asked to stop; raise a WindrowError if one of them cannot be run."""
    loops = [Supervised(job, retry) for job in jobs]
    try:
        while not is_stopped():
            turned = [loop.turn(p.POLL_SECONDS / len(loops)) for loop in loops]
            if not any(turned):
                time.sleep(p.POLL_SECONDS)
    finally:
        for loop in loops:
            loop.close()
