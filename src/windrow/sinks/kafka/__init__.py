"""Kafka topics: the changes of a pipeline, and beside them its late output, dead letters and clocks."""
