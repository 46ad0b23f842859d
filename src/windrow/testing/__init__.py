"""Tools for tests of pipelines: stories, the oracle, and servers."""
