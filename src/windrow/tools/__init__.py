"""Tools for pipelines and runs, each a library with its command."""
