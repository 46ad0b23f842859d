"""Analysis of an SQL expression over a record's fields: its type, its columns, and whether it can be null.

An expression counts as nullable unless its tree proves that it is not.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from windrow import model as m
from windrow.errors import PipelineError
from windrow.expressions.bound import checked_plan
from windrow.expressions.engine import database, remedy, sql_type, type_of_sql
from windrow.expressions.macros import LIMIT
from windrow.expressions.sizes import bounded
from windrow.expressions.syntax import columns, duckdb_reason, null_checked, parse, refuse_impure, unparse


@dataclass(frozen=True)
class Expression:
    """An expression as it was written, and what is known of it.

    `sql` computes it, of `columns` in DuckDB, as a value of `type`; `nullable` says whether that can be null. What it
    makes can grow faster than a record if it `grows`, up to a bound for each record.
    """

    text: str
    sql: str
    type: m.DataType
    columns: tuple[str, ...]
    nullable: bool
    grows: bool = False


@lru_cache(maxsize=1024)
def analyse(
    text: str, fields: tuple[m.Field, ...], nullable: frozenset[str] = frozenset(), *, takes_arrays: bool = False
) -> Expression:
    """Analyse an expression over fields, of which those named by `nullable` can be null.

    Unless it `takes_arrays`, a field that is one is an error. Raise PipelineError if it is not one scalar expression
    over these fields, if it does not give the same value in every run, or if no field can hold what it gives.
    """
    tree = parse(text, frozenset(field.name for field in fields))
    with _named(text):
        names = columns(tree)
        refuse_impure(tree, frozenset(field.name for field in fields))
        # before DuckDB computes what is constant
        computed, grows = bounded(tree, fields)
    by_name = {field.name: field for field in fields}
    for name in names:
        if name not in by_name:
            msg = f"{text!r}: {_no_field(name, list(by_name))}"
            raise PipelineError(msg)
        if isinstance(by_name[name].type, m.ArrayType) and not takes_arrays:
            msg = f"{text!r}: {name!r} is an array, which only flat_map takes"
            raise PipelineError(msg)
    given, weight = _describe(text, tuple(by_name[name] for name in names))
    if weight > 1:
        with _named(text):
            computed, grows = bounded(tree, fields, weight)
    computed = null_checked(computed) or computed
    type_ = type_of_sql(given)
    if type_ is None:
        msg = f"{text!r} has the SQL type {given}, which no field can have; {remedy(given)}"
        raise PipelineError(msg)
    return Expression(
        text=text,
        sql=f"CAST(({text if computed is tree else unparse(computed)}\n) AS {sql_type(type_)})",
        type=type_,
        columns=names,
        nullable=can_be_null(tree, nullable),
        grows=grows,
    )


def constant_failure(expression: Expression, fields: tuple[m.Field, ...]) -> str | None:
    """Return DuckDB's message if an expression fails whatever the fields hold, as with a wrong constant, else None.

    It is tried on nulls and on two plain values of each field: only a failure that has nothing to do with the values
    has the same message every time. One with CASE may be meant to fail for some values.
    """
    if _CHOOSES.search(expression.text):
        return None
    used = tuple(field for field in fields if field.name in expression.columns)
    messages: set[str] = set()
    for number in range(_SAMPLES):
        message = _failure(expression.sql, used, number)
        messages.add(message or "")
        if message is None or len(messages) > 1:
            return None
    return duckdb_reason(expression.text, messages.pop())


_SAMPLES = 3
_CHOOSES = re.compile(r"\bcase\b", re.IGNORECASE)


def _sample(type_: m.DataType, number: int) -> str:
    """Return a null, and two values, as text that casts to the type."""
    match type_:
        case m.StringType():
            texts = ("a", "1")
        case m.TimestampType():
            texts = ("1970-01-01 00:00:00+00", "2026-01-01 12:34:56+00")
        case m.DecimalType():
            texts = ("0", "0.5")  # decimal(2,2) holds no 1
        case _:
            texts = ("0", "1")
    return ("NULL", *(f"'{text}'" for text in texts))[number]


def _failure(sql: str, fields: tuple[m.Field, ...], number: int) -> str | None:
    import duckdb  # noqa: PLC0415 - as in `_describe`

    columns_ = ", ".join(
        f'{_sample(field.type, number)}::{sql_type(field.type)} AS "{field.name.replace(chr(34), chr(34) * 2)}"'
        for field in fields
    )
    of = f"FROM (SELECT {columns_})" if fields else ""
    try:
        database().cursor().execute(f"SELECT {sql} {of}").fetchall()
    except (duckdb.Error, UnicodeDecodeError) as exc:
        return duckdb_message(exc)
    return None


@contextmanager
def _named(text: str) -> Iterator[None]:
    """Name the expression in a PipelineError."""
    try:
        yield
    except PipelineError as exc:
        msg = f"{text!r} {exc.message}" if exc.message[0] != "'" else f"{text!r}: {exc.message}"
        raise PipelineError(msg) from exc


def _no_field(name: str, names: list[str]) -> str:
    close = next((other for other in names if other.lower() == name.lower()), None)
    close = close or next(iter(difflib.get_close_matches(name, names, n=1)), None)
    hint = (
        f"did you mean {close!r}?"
        if close
        else f"the fields are {', '.join(names)} (text is written in 'single quotes')"
    )
    return f"{name!r} is not a field; {hint}"


def _describe(text: str, fields: tuple[m.Field, ...]) -> tuple[str, int]:
    """Return the DuckDB type of an expression, and how much each byte and item of its values counts.

    Raise PipelineError if it is not a function of its record alone.
    """
    import duckdb  # noqa: PLC0415 - it is heavy, and a pipeline without expressions is checked without it

    columns_ = ", ".join(
        f'NULL::{sql_type(field.type)} AS "{field.name.replace(chr(34), chr(34) * 2)}"' for field in fields
    )
    query = f"SELECT ({text}\n) {f'FROM (SELECT {columns_})' if fields else ''}"
    try:
        described = database().cursor().execute(f"DESCRIBE {query}").fetchall()
    except (duckdb.Error, UnicodeDecodeError) as exc:
        msg = f"{text!r}: {duckdb_reason(text, duckdb_message(exc))}"
        raise PipelineError(msg) from exc
    with _named(text):
        return str(described[0][1]), checked_plan(query)


def duckdb_message(error: Exception) -> str:
    """Return what DuckDB says of an error, in a line."""
    # a message can have some bytes of a character only
    text = error.object.decode("utf-8", "replace") if isinstance(error, UnicodeDecodeError) else str(error)
    first = next(iter(text.strip().splitlines()), type(error).__name__)
    kind, colon, rest = first.partition(": ")
    message = rest if colon and kind.endswith("Error") else first
    limited = _LIMITED.search(message)
    return limited[1] if limited else message


_LIMITED = re.compile(rf"'{LIMIT}([^']*)'")


Node = dict[str, Any]

_STRICT_FUNCTIONS = frozenset(
    """
    + - * || ~~ !~~ abs ceil ceiling concat concat_ws contains date_diff date_part date_trunc ends_with epoch_ms
    epoch_us floor greatest hour instr least left length lower lpad ltrim md5 minute month prefix regexp_matches
    regexp_replace repeat replace reverse right round rpad rtrim second sign split_part starts_with strlen substr
    substring suffix time_bucket trim trunc upper year
    """.split()  # noqa: SIM905 - as a list it would be a page
)
"""Functions whose value is null only if one of their arguments is."""


def can_be_null(node: Node, nullable: frozenset[str]) -> bool:
    """Return whether the value of a tree can be null; `nullable` are the columns that can."""
    if node["class"] == "COLUMN_REF":
        return node["column_names"][0] in nullable
    if node["type"] == "OPERATOR_COALESCE":
        return all(can_be_null(child, nullable) for child in node["children"])
    operands = _OPERANDS.get(node["class"], _unknown)(node)
    return operands is None or any(can_be_null(operand, nullable) for operand in operands)


def _unknown(_: Node) -> list[Node] | None:
    return None


def _constant(node: Node) -> list[Node] | None:
    return None if node["literal"]["kind"] == "NULL_LITERAL" else []


def _comparison(node: Node) -> list[Node] | None:
    return [] if "DISTINCT" in node["type"] else [node["left"], node["right"]]


def _case(node: Node) -> list[Node] | None:
    return [node["else_expr"], *(check["then_expr"] for check in node["case_checks"])]


def _cast(node: Node) -> list[Node] | None:
    return None if node["try_cast"] else [node["child"]]


def _operator(node: Node) -> list[Node] | None:
    match node["type"]:
        case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
            return []
        case "OPERATOR_NOT" | "COMPARE_IN" | "COMPARE_NOT_IN":
            return list(node["children"])
        case _:
            return None


def _function(node: Node) -> list[Node] | None:
    if node["function_name"].lower() not in _STRICT_FUNCTIONS:
        return None
    return [argument["expression"] for argument in node.get("arguments", [])]


# by a tree's class, the operands of which one must be null for its value to be so; None: it may be anyhow
_OPERANDS: dict[str, Callable[[Node], list[Node] | None]] = {
    "CONSTANT": _constant,
    "COMPARISON": _comparison,
    "CONJUNCTION": lambda node: list(node["children"]),
    "BETWEEN": lambda node: [node["input"], node["lower"], node["upper"]],
    "CASE": _case,
    "CAST": _cast,
    "OPERATOR": _operator,
    "FUNCTION": _function,
}
