"""Tools for testing pipelines: stories, the oracle, and servers."""
