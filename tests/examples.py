"""Numbers of examples: few in `make test`, more in `make test-merge`, many where `make test-long` searches."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, settings


def scaled(count: int) -> int:
    """Return a sixth of `count` in `make test`, half in `make test-merge`, ten times as many in `make test-long`."""
    match settings.get_current_profile_name():
        case "random":
            return count * 10
        case "quick":
            return max(1, count // 20)
        case "merge":
            return max(1, count // 2)
        case _:
            return max(1, count // 6)


def examples(count: int, *, suppress_health_check: Sequence[HealthCheck] = ()) -> settings:
    """Return settings with a scaled number of examples."""
    return settings(max_examples=scaled(count), suppress_health_check=suppress_health_check)


def many(count: int) -> settings:
    """Return settings of a test that takes minutes, with as many examples in every profile.

    Such a test should end within some twenty minutes on a core that does nothing else: a third of its time limit.
    """
    return settings(max_examples=count)
