"""The state of key groups: its store, reports on its contents, and its migration to a changed pipeline."""
