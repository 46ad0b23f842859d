"""Embedded logs: partitioned logs in a folder, with one file of JSON lines per partition."""
