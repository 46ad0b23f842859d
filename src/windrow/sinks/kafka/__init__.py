"""Kafka topics: the changes of a pipeline, and beside them its late output, dead letters and clocks."""

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.1"}
"""Settings of a topic that keeps the last record of each key for ever."""
STAMPED = {"message.timestamp.type": "LogAppendTime"}
"""Settings of a topic that others read: its timestamps are the broker's."""
