"""Records that are gone from a log before they were read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

OnDataLoss = Literal["stop", "continue"]
"""What a run does where records are gone: it stops, or goes on with what is there and has the loss in the journal."""


@dataclass(frozen=True)
class Loss:
    """A partition that was read up to the offset `stood`; `what` says what is gone, `goes_on` is what is there next."""

    partition: int
    stood: int
    goes_on: int
    what: str

    def __str__(self) -> str:
        return f"partition {self.partition}: {self.what}; what is there goes on at offset {self.goes_on}"


@dataclass(frozen=True)
class Found:
    """What a log says of where a run stands: the `losses`, and where it would stand (as Spark notes it) after them."""

    losses: tuple[Loss, ...]
    offset: Any


def listed(losses: Iterable[Loss]) -> str:
    """Write losses in a line."""
    return "; ".join(map(str, losses))
