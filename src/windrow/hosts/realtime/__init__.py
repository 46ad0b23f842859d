"""The realtime host: records as they come, on a poll loop within Spark tasks that do not end.

`job.py` names what a pipeline is made of in real time, `topics.py` creates its topics, `partition.py` is the loop of a
partition and its transactions, `checkpoints.py` its state in a compacted topic, `supervise.py` opens partitions again
after failures, `progress.py` says how far they are, and `run.py` is the Spark job that places the loops.
"""
