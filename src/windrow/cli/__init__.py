"""The `windrow` command."""
