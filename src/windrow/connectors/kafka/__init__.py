"""Kafka topics: the changes of a pipeline, and companion topics with its late output, dead letters and clocks."""

STAMPED = {"message.timestamp.type": "LogAppendTime"}
"""Settings of a topic for other readers: the broker sets the timestamps."""
