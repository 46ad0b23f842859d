"""Connectors: a package for each system that records are read from or rows are written to."""
