"""Reading, checking and printing of pipelines."""
