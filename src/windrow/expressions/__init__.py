"""SQL expressions over the fields of a record: their types, what they need, and why some are refused.

DuckDB parses and types them, and is loaded with the first of them.
"""

from windrow.expressions.analyse import Expression, analyse
from windrow.expressions.calls import Call, split_call

__all__ = ["Call", "Expression", "analyse", "split_call"]
