"""How partitions share what a step may take."""

from __future__ import annotations

from collections.abc import Mapping


def portions(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide a limit, all of it, among partitions in which more or less waits.

    Who has more gets more, so that partitions of one topic stay abreast in time, and few windows are open at once. Each
    gets a sixteenth of an equal share, and one at the least unless there are more partitions than that: a partition of
    which nothing is read for long could be taken for idle.
    """
    least = max(1, limit // (16 * len(waiting))) if limit >= len(waiting) else 0
    left, total = limit - least * len(waiting), sum(waiting.values())
    found, passed = {}, 0
    for partition in sorted(waiting):
        before, passed = passed, passed + waiting[partition]
        found[partition] = least + left * passed // total - left * before // total
    return found
