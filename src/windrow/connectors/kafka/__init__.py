"""Kafka topics: the changes of a pipeline, and beside them its late output, dead letters and clocks."""

STAMPED = {"message.timestamp.type": "LogAppendTime"}
"""Settings of a topic that others read: its timestamps are the broker's."""
