"""Where records come from, one connector a file."""
