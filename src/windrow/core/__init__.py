"""What it means: time, windows, aggregates and panes, over Arrow columns and without Spark."""
