"""The realtime host: processes records as they arrive, in poll loops inside long-running Spark tasks.

`topics.py` names and creates the topics of a pipeline. `partition.py` has the loop of a partition and its transactions,
`checkpoints.py` keeps its state in a compacted topic, and `journal.py` records the rules and lists in force at each
offset. `supervise.py` reopens partitions after failures, `progress.py` reports their positions, `stopping.py` stops a
run from anywhere, `key_sample.py` looks for keys that occur in several partitions, and `run.py` is the Spark job that
distributes the loops.
"""
