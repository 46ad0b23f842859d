"""Numbers of examples: few in the default suite, many where `make test-long` searches at random."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> settings:
    """Return settings with `count` examples, and ten times as many under the profile `random`."""
    return settings(max_examples=count * (10 if settings.get_current_profile_name() == "random" else 1))
