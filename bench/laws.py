"""Whether a cost stays as it is when something grows, or follows a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WITHIN = 0.2
"""A cost is flat if it is within so much of the base, and explained if it is within so much of a line."""


@dataclass(frozen=True)
class Judgement:
    """Of costs: the greatest part by which one is off the base, and the line over `x` that fits best, if asked for."""

    off: float
    fixed: float | None = None
    each: float | None = None
    off_line: float | None = None

    @property
    def is_flat(self) -> bool:
        """Whether each is near the base."""
        return self.off <= WITHIN

    @property
    def is_explained(self) -> bool:
        """Whether each is near the line."""
        return self.off_line is not None and self.off_line <= WITHIN

    def words(self, of: str) -> str:
        """Say it in words; `of` is what `x` is."""
        if self.is_flat:
            return f"flat: at most {self.off:.0%} off the base"
        if self.fixed is None or self.each is None or self.off_line is None:
            return f"NOT FLAT: {self.off:.0%} off the base"
        law = f"{self.fixed:.3g} + {self.each:.3g} x {of}"
        if self.is_explained:
            return f"not flat ({self.off:.0%}), by a law: {law}, at most {self.off_line:.0%} off"
        return f"NOT FLAT ({self.off:.0%}), AND NO LAW: {law} is {self.off_line:.0%} off"


def judge(costs: Sequence[float], base: float, x: Sequence[float] | None = None) -> Judgement:
    """Hold costs to a base, and to the line over `x` with the least greatest part by which one is off it, about.

    The line's two numbers are not negative. Two costs always are on a line: they make no law.
    """
    off = max((abs(cost / base - 1) for cost in costs), default=0.0)
    if x is None or len(set(x)) <= 2:  # noqa: PLR2004 - through two points goes any line
        return Judgement(off)
    given = np.array(costs)
    # weighted by the cost: what is to be small is the part of it that is off
    rows = np.column_stack([np.ones(len(x)), np.array(x, dtype=float)]) / given[:, None]
    best, _, _, _ = np.linalg.lstsq(rows, np.ones(len(x)), rcond=None)
    if best.min() < 0:
        alone = [float(column @ np.ones(len(x)) / (column @ column)) for column in rows.T]
        lines = [np.array([alone[0], 0.0]), np.array([0.0, alone[1]])]
        best = min(lines, key=lambda line: float(np.square(rows @ line - 1).sum()))
    return Judgement(off, float(best[0]), float(best[1]), float(np.abs(rows @ best - 1).max()))
