"""Commits a run's offsets to the consumer groups of its Kafka sources, for tools that show consumer lag.

windrow never reads these offsets back, so neither results nor the position to resume from depend on them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from windrow import model as m
from windrow.errors import WindrowError
from windrow.telemetry.reports import OnStep, StepReport

_ANSWER = 5.0
"""Timeout in seconds of a commit."""
_LEAVE = 6.0
"""Seconds that the last commit may delay the end of a run."""
_PAUSE = 10.0
"""Seconds after a failure before the next commit."""
_RENEW = 3600.0
"""Seconds after which unchanged offsets are committed again, because a broker drops offsets after a week."""


class GroupOffsets:
    """Commits the offsets of each step to the consumer groups of a graph's sources, in background threads.

    No step waits for a commit.
    """

    def __init__(self, graph: m.Graph, on_warning: Callable[[str], None]) -> None:
        self._committers = {
            number: _Committer(node.source, node.source.group, on_warning)
            for number, node in enumerate(graph.sources)
            if isinstance(node.source, m.KafkaSource) and node.source.group is not None
        }

    def __enter__(self) -> Self:
        for committer in self._committers.values():
            committer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        for committer in self._committers.values():
            committer.close()
        for committer in self._committers.values():
            committer.join(_LEAVE)

    def committing(self, on_step: OnStep) -> OnStep:
        """Wrap `on_step` so that the offsets of each step are committed."""

        def commit(report: StepReport) -> None:
            for number, committer in self._committers.items():
                first = number * m.MAX_PARTITIONS  # a group has the partitions by their numbers in the source
                committer.commit(
                    {
                        partition - first: offset
                        for partition, offset in report.offsets.items()
                        if isinstance(partition, int) and 0 <= partition - first < m.MAX_PARTITIONS
                    }
                )
            on_step(report)

        return commit if self._committers else on_step


class _Committer(threading.Thread):
    """Commits the latest offsets of a source to a consumer group. Consecutive failures cause a single warning."""

    def __init__(self, source: m.KafkaSource, group: str, on_warning: Callable[[str], None]) -> None:
        super().__init__(name="windrow-group", daemon=True)
        self._source = source
        self._group = group
        self._on_warning = on_warning
        self._changed = threading.Condition()
        self._offsets: Mapping[int, int] = {}
        self._committed: Mapping[int, int] = {}
        self._is_closed = False

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Set the offsets to commit, and return without waiting for the commit."""
        with self._changed:
            self._offsets = offsets
            self._changed.notify()

    def close(self) -> None:
        """End the thread after one last attempt to commit the latest offsets."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def run(self) -> None:
        """Commit offsets until closed; this is the body of the thread."""
        from windrow.connectors.kafka.client import ConsumerGroup  # noqa: PLC0415 - librdkafka only where there is a group
        from windrow.connectors.kafka.options import client_options  # noqa: PLC0415 - the same

        group: ConsumerGroup | None = None
        is_failing = is_closed = False
        while not is_closed:
            with self._changed:
                if is_failing:
                    self._changed.wait_for(lambda: self._is_closed, _PAUSE)
                is_renewed = not self._changed.wait_for(
                    lambda: self._is_closed or self._offsets != self._committed, _RENEW
                )
                offsets, is_closed = self._offsets, self._is_closed
            if not offsets or (offsets == self._committed and not is_renewed):
                continue
            try:
                if group is None:
                    group = ConsumerGroup(self._group, self._source.topic, client_options(self._source))
                group.commit(offsets, _ANSWER)
            except WindrowError as exc:
                if not is_failing:
                    self._on_warning(f"{exc}; the run continues, but the group shows no lag until a commit succeeds")
                is_failing = True
            else:
                self._committed, is_failing = offsets, False
