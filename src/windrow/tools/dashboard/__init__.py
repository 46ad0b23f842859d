"""A page that shows runs: their history, summarized once for all viewers, and their tables."""
