"""Operators: the computations of a pipeline that run in key groups."""
