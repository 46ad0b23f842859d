"""Read pipelines in SQL: sqlglot parses the text, which is then translated to the document of a YAML file."""

from windrow.authoring.sql.statements import compose_sql

__all__ = ["compose_sql"]
