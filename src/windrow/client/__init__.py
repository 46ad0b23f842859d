"""The client: run pipelines, read their tables and show both, for commands, Python programs and notebooks.

These are the methods of `windrow.client.pipeline.Pipeline`; commands of the same names print their results.
"""
