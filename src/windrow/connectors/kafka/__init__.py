"""Kafka topics: the changes of a pipeline, and companion topics with its late output, dead letters and clocks."""
