"""Aggregates: how an accumulator begins, merges and ends, as SQL that operators compose."""

from windrow.core.aggregates.fold import Accumulator, Fold
from windrow.core.aggregates.folds import folds
from windrow.core.aggregates.results import Results
from windrow.core.aggregates.scale import fitted, rescale, unscale

__all__ = ["Accumulator", "Fold", "Results", "fitted", "folds", "rescale", "unscale"]
