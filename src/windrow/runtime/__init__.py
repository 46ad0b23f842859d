"""Hosts: the stream, batch and memory hosts run a pipeline."""
