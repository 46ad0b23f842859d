"""A file that a run follows, with its rows as a changelog."""
