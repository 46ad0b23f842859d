"""The fluent form of a pipeline."""
