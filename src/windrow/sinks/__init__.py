"""Where results go, one connector a file."""
