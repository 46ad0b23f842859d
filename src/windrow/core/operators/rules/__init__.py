"""The rules operator: judges each record by a pipeline's rules, and revises alerts when a record comes late."""

from windrow.core.operators.rules.operator import RulesOperator

__all__ = ["RulesOperator"]
