"""Random walks by seed, as a source of windrow: a log that is computed, and the same whenever it is read."""

from windrow_random_walks.connector import RandomWalksSource, random_walks

__all__ = ["RandomWalksSource", "random_walks"]
