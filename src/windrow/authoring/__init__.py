"""Read, validate and print pipelines."""
