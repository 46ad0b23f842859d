"""Operators: the computations of a pipeline that run in each key group."""
