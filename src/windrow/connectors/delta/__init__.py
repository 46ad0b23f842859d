"""Delta tables: a folder for each table of a pipeline."""
