"""Explanation of a single result row."""
