"""The realtime host: records as they come, on a poll loop within Spark tasks that do not end.

`topics.py` names the topics of a pipeline and creates them, `partition.py` is the loop of a partition and its
transactions, `checkpoints.py` its state in a compacted topic, `journal.py` the rules and lists that were in force,
`supervise.py` opens partitions again after failures, `progress.py` says how far they are, `stopping.py` stops a run
from anywhere, `key_sample.py` looks for keys in two partitions, and `run.py` is the Spark job that places the loops.
"""
