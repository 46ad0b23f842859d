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
