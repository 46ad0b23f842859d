"""Web dashboard of runs: their history, summarized once for all viewers, and their tables."""
