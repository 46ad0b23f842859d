"""Partitions that one task runs: each is opened again after a failure that may pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from confluent_kafka import KafkaException

from windrow.errors import InputError, RecordsLostError, RunError, WindrowError
from windrow.hosts.realtime.partition import POLL_SECONDS, FencedError, Partition, PartitionRun

_SAME = 60.0
"""Seconds within which a failure at the offset of the one before ends the run."""
_PAUSE = 0.5
"""Seconds between two attempts to open a partition whose broker does not answer."""
_HEALTHY = 60.0
"""Seconds without a failure after which an outage is over, where nothing comes that could be committed."""
_FENCED_WAIT = 5.0
"""Seconds that who is fenced waits, so that the one who did it has committed."""


class Supervised:
    """A partition and its run, which is opened again after a failure that may pass."""

    def __init__(self, job: Partition, retry: float) -> None:
        self._job = job
        self._retry = retry
        self._run: PartitionRun | None = None
        self._down_since: float | None = None
        self._down_at = (0, 0.0)
        """At which offset it failed last, and when."""
        self._pause_until = 0.0
        self._failed: tuple[int, float] | None = None

    def turn(self, seconds: float) -> None:
        """Go once through the partition's loop; raise what cannot be mended, after leaving what is not committed."""
        if time.monotonic() < self._pause_until:
            time.sleep(0.01)
            return
        try:
            self._try(seconds)
        except BaseException:
            # its operators may have gone through half of a step
            self._abandon()
            raise

    def _try(self, seconds: float) -> None:
        try:
            if self._run is None:
                self._run = self._job.open()
            self._run.turn(seconds)
            offset, since = self._down_at
            # a turn that took nothing says little of what a transaction with records would meet
            if self._run.done > offset or time.monotonic() - since > _HEALTHY:
                self._down_since = None
        except FencedError:
            self._require_own()
        except (InputError, RecordsLostError):
            raise
        except (WindrowError, KafkaException) as exc:
            if not (isinstance(exc, KafkaException) or getattr(exc, "passes", False)):
                self._require_other(exc)
            self._wait(exc)
        except Exception as exc:  # noqa: BLE001 - a defect is reported with its place in the log, as any failure
            self._require_other(exc)
        else:
            return
        self._abandon()

    def close(self) -> None:
        """Commit what is decided."""
        if self._run is not None:
            with suppress(WindrowError, KafkaException):  # it is decided again by the next run
                self._run.close()

    def _abandon(self) -> None:
        if self._run is not None:
            self._run.abandon()
            self._run = None

    def _wait(self, exc: Exception) -> None:
        """Wait before the next attempt; raise if there was none without a failure for long."""
        now = time.monotonic()
        self._down_since = now if self._down_since is None else self._down_since
        self._down_at = (self._down_at[0] if self._run is None else self._run.done), now
        self._pause_until = now + _PAUSE
        if now - self._down_since > self._retry:
            raise exc

    def _require_other(self, exc: Exception) -> None:
        """Raise RunError if the partition has just failed at the same offset."""
        if self._run is None:
            raise exc
        offset, now = self._run.done, time.monotonic()
        if self._failed is not None and self._failed[0] == offset and now - self._failed[1] < _SAME:
            msg = f"partition {self._job.number} of {self._job.source.topic} failed twice behind offset {offset}: {exc}"
            raise RunError(msg) from exc
        self._failed = offset, now

    def _require_own(self) -> None:
        """Raise FencedError if somebody else has committed; what a stall let the broker abort is begun again."""
        if self._run is None:
            return
        time.sleep(_FENCED_WAIT)
        owner = self._run.owner()
        own = self._job.owner
        if owner is not None and (owner.run, owner.attempt) != (own.run, own.attempt):
            by = "a newer attempt of its task" if owner.run == own.run else "another run of the pipeline"
            msg = f"partition {self._job.number} of {self._job.source.topic} was taken over by {by}"
            raise FencedError(msg)


def serve(jobs: Sequence[Partition], is_stopped: Callable[[], bool], retry: float = 600.0) -> None:
    """Run partitions until asked to stop; raise a WindrowError for one that cannot be run."""
    loops = [Supervised(job, retry) for job in jobs]
    try:
        while not is_stopped():
            for loop in loops:
                loop.turn(POLL_SECONDS / len(loops))
    finally:
        for loop in loops:
            loop.close()
