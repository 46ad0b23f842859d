"""State of key groups: the store, reports on what it holds, and its migration to a changed pipeline."""
