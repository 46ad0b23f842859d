"""Hosts, which run a pipeline: stream, realtime, batch and memory."""
