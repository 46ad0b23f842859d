"""State of key groups: the store, reports on its contents, and its migration to a changed pipeline."""
