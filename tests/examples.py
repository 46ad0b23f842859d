"""Numbers of examples: few by default, fewer in `make test-quick`, many where `make test-long` searches."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, settings


def scaled(count: int) -> int:
    """Return `count`, ten times as many under the profile `random`, a fifth under `quick`."""
    match settings.get_current_profile_name():
        case "random":
            return count * 10
        case "quick":
            return max(1, count // 5)
        case _:
            return count


def examples(count: int, *, suppress_health_check: Sequence[HealthCheck] = ()) -> settings:
    """Return settings with a scaled number of examples."""
    return settings(max_examples=scaled(count), suppress_health_check=suppress_health_check)


def many(count: int) -> settings:
    """Return settings of a test that takes minutes, with as many examples in every profile.

    Such a test should end within some twenty minutes on a core that does nothing else: a third of its time limit.
    """
    return settings(max_examples=count)
