"""Dead letters, put back into the log."""
