"""The embedded log."""
