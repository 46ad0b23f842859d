"""Reports of runs: their history, metrics, traces and lineage."""
