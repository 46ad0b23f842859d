"""The fluent Python API, in which a pipeline is built stage by stage."""
