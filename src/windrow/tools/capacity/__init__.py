"""Capacity planning: the load of a pipeline, the expected rates and state of its nodes, and resource formulas."""
