"""Changes as Parquet files in a folder."""
