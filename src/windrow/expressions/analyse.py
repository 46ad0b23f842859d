"""What an SQL expression over a record's fields gives."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache

from windrow.errors import PipelineError
from windrow.expressions.engine import database
from windrow.expressions.nulls import can_be_null
from windrow.expressions.syntax import columns, parse, refuse
from windrow.expressions.types import instead_of, sql_type, type_of_sql
from windrow.model import DataType, Field


@dataclass(frozen=True)
class Expression:
    """An expression as it was written, and what is known of it.

    `sql` computes it, of `columns` in DuckDB, as a value of `type`; `nullable` says whether that can be null.
    """

    text: str
    sql: str
    type: DataType
    columns: tuple[str, ...]
    nullable: bool


@lru_cache(maxsize=1024)
def analyse(text: str, fields: tuple[Field, ...], nullable: frozenset[str] = frozenset()) -> Expression:
    """Analyse an expression over fields, of which those named by `nullable` can be null.

    Raise PipelineError if it is not one scalar expression over these fields, if it does not give the same value in
    every run, or if no field can hold what it gives.
    """
    tree = parse(text, frozenset(field.name for field in fields))
    try:
        names = columns(tree)
        refuse(tree, frozenset(field.name for field in fields))
    except PipelineError as exc:
        msg = f"{text!r} {exc.message}" if exc.message[0] != "'" else f"{text!r}: {exc.message}"
        raise PipelineError(msg) from exc
    by_name = {field.name: field for field in fields}
    for name in names:
        if name not in by_name:
            msg = f"{text!r}: {_no_field(name, list(by_name))}"
            raise PipelineError(msg)
    given = _describe(text, tuple(by_name[name] for name in names))
    type_ = type_of_sql(given)
    if type_ is None:
        msg = f"{text!r} is of SQL's type {given}, which no field has; {instead_of(given)}"
        raise PipelineError(msg)
    return Expression(
        text=text,
        sql=f"CAST(({text}\n) AS {sql_type(type_)})",
        type=type_,
        columns=names,
        nullable=can_be_null(tree, nullable),
    )


def is_condition(expression: Expression) -> bool:
    """Return whether an expression can stand after `where`."""
    return str(expression.type) == "boolean"


def _no_field(name: str, names: list[str]) -> str:
    close = next((other for other in names if other.lower() == name.lower()), None)
    close = close or next(iter(difflib.get_close_matches(name, names, n=1)), None)
    hint = f"did you mean {close!r}?" if close else f"the fields are {', '.join(names)} (and texts stand in 'quotes')"
    return f"{name!r} is not a field; {hint}"


def _describe(text: str, fields: tuple[Field, ...]) -> str:
    """Return the DuckDB type of an expression over the fields."""
    import duckdb  # noqa: PLC0415 - it is heavy, and a pipeline without expressions is checked without it

    columns_ = ", ".join(
        f'NULL::{sql_type(field.type)} AS "{field.name.replace(chr(34), chr(34) * 2)}"' for field in fields
    )
    of = f"FROM (SELECT {columns_})" if fields else ""
    try:
        described = database().cursor().execute(f"DESCRIBE SELECT ({text}\n) {of}").fetchall()
    except duckdb.Error as exc:
        msg = f"{text!r}: {said_by(exc)}"
        raise PipelineError(msg) from exc
    return str(described[0][1])


def said_by(error: Exception) -> str:
    """Return what DuckDB says of an error, in a line."""
    first = str(error).strip().splitlines()[0]
    kind, colon, rest = first.partition(": ")
    return rest if colon and kind.endswith("Error") else first
