"""The realtime host: records as they come, on a poll loop within Spark tasks that do not end.

`partition.py` is the loop of a partition and its transactions, `checkpoints.py` its state in a compacted topic, and
`run.py` the Spark job that places the loops, and what it needs before.
"""
