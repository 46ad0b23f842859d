"""The rules operator: judges each record by a pipeline's rules, and revises alerts when a record comes late."""
