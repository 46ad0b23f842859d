"""Pipelines said as SQL: the text is parsed by sqlglot, and becomes the document that a YAML file is read into."""

from windrow.authoring.sql.statements import compose_sql

__all__ = ["compose_sql"]
