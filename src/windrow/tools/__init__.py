"""Tools around pipelines and runs: each a library and its command."""
