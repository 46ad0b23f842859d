"""What rules ask about early triggers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow.model import AllOf, AnyOf, Every, Records, Repeat, Trigger, When


def each_part(trigger: Trigger | None) -> Iterator[Trigger]:
    """Go through a trigger and all that it is composed of."""
    if trigger is None:
        return
    yield trigger
    match trigger:
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from each_part(part)
        case Repeat(part, _):
            yield from each_part(part)
        case Every() | Records() | When():
            return
        case _:
            assert_never(trigger)


def counts(trigger: Trigger | None) -> bool:
    """Whether some part of it looks at each record."""
    return any(isinstance(part, Records | When) for part in each_part(trigger))


def ticks(trigger: Trigger | None) -> bool:
    """Whether some part of it looks at processing time."""
    return any(isinstance(part, Every) for part in each_part(trigger))
