"""The rows of a file that a run follows, as a changelog."""
