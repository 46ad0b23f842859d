"""Changes as JSON lines files in a folder."""
