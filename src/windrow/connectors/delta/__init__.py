"""Delta tables: a folder for each table of a pipeline."""

from windrow.errors import needs_extra

with needs_extra("delta", "a sink of Delta tables"):
    from windrow.connectors.delta.sink import DeltaTables

__all__ = ["DeltaTables"]
