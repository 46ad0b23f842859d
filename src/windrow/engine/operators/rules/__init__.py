"""The rules operator: judges each record by a pipeline's rules, and revises alerts when a late record arrives."""
