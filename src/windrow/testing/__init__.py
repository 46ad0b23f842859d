"""Tools for tests of pipelines: stories, the oracle, and a generator of random logs."""
