"""Hosts that run stories, imported when they are asked for.

It is apart from `run`, since the command line names the hosts without loading Arrow.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from windrow import model as m
from windrow.errors import InputError, not_one_of

if TYPE_CHECKING:
    from windrow.engine.changelog import StepOutput
    from windrow.engine.tick import Crash, PlayStep

HOSTS = {
    "memory": "windrow.runtime.memory",
    "stream": "windrow.runtime.stream.run",
    "batch": "windrow.runtime.batch.run",
}
"""The module of each host's `play`."""


class Play(Protocol):
    """Runs a log that is given in steps."""

    def __call__(
        self, graph: m.Graph, steps: Sequence[PlayStep | Crash], at_end: Literal["fire", "hold"], /
    ) -> list[dict[str, StepOutput]]:
        """Return the output by sink of each step of (partition, value), tick or crash, and of the input's end.

        All partitions that occur are known from the start; offsets count from 0 in each.
        """
        ...


def load_play(host: str) -> Play:
    """Return a host's `play`; raise InputError if there is no such host."""
    if host not in HOSTS:
        msg = f"the host of a story {not_one_of(host, list(HOSTS))}"
        raise InputError(msg)
    play: Play = importlib.import_module(HOSTS[host]).play
    return play
