"""Delta tables: one folder for each table of a pipeline."""
