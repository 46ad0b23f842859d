"""Analysis of an SQL expression over a record's fields: its type, its columns, and whether it can be null.

An expression counts as nullable unless its syntax tree proves that it is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from windrow import model as m
from windrow.errors import PipelineError, did_you_mean
from windrow.expressions import syntax
from windrow.expressions.bound import check_plan
from windrow.expressions.engine import database, quote, remedy, sql_type, type_of_sql
from windrow.expressions.macros import LIMIT
from windrow.expressions.sizes import bound
from windrow.expressions.syntax import Node


@dataclass(frozen=True)
class Expression:
    """An expression as it was written, and the result of its analysis.

    DuckDB computes `sql` from the `columns`, as a value of `type` that can be null if `nullable` is true. If `grows` is
    true, its memory can grow faster than the record, up to a limit for each record.
    """

    text: str
    sql: str
    type: m.DataType
    columns: tuple[str, ...]
    nullable: bool
    grows: bool = False


@lru_cache(maxsize=1024)
def analyse(
    text: str,
    fields: tuple[m.Field, ...],
    nullable: frozenset[str] = frozenset(),
    *,
    takes_arrays: bool = False,
    otherwise: m.DataType | None = None,
) -> Expression:
    """Analyse an expression over fields; the fields named in `nullable` can be null.

    An array field is an error unless `takes_arrays` is true. If no field can have the type that DuckDB computes, the
    value has the type of the field that the expression names, or `otherwise`. Raise PipelineError if the text is not
    one scalar expression over these fields, if its value can differ between runs, or if no field can hold its value.
    """
    by_name = {field.name: field for field in fields}
    tree = syntax.parse(text, frozenset(by_name))
    with _naming(text):
        names = syntax.columns(tree)
        syntax.refuse_impure(tree, frozenset(by_name))
        # before DuckDB folds constants
        computed, grows = bound(tree, fields)
    for name in names:
        if name not in by_name:
            known = f"; the fields are {', '.join(by_name)} (text is written in 'single quotes')"
            msg = f"{text!r}: {name!r} is not a field{did_you_mean(name, by_name) or known}"
            raise PipelineError(msg)
        if isinstance(by_name[name].type, m.ArrayType) and not takes_arrays:
            msg = f"{text!r}: {name!r} is an array, which expressions cannot use; use flat_map first"
            raise PipelineError(msg)
    given, weight = _describe(text, tuple(by_name[name] for name in names))
    if weight > 1:
        with _naming(text):
            computed, grows = bound(tree, fields, weight)
    computed = syntax.check_nulls(computed) or computed
    own = by_name[names[0]].type if tree["class"] == "COLUMN_REF" else None
    type_ = own if isinstance(own, m.JsonListType) else type_of_sql(given) or own or otherwise
    if type_ is None or isinstance(type_, m.ArrayType):
        msg = f"{text!r} has the SQL type {given}, which no field can have; {remedy(given)}"
        raise PipelineError(msg)
    return Expression(
        text=text,
        sql=f"CAST(({text if computed is tree else syntax.unparse(computed)}\n) AS {sql_type(type_)})",
        type=type_,
        columns=names,
        nullable=can_be_null(tree, nullable),
        grows=grows,
    )


def constant_failure(expression: Expression, fields: tuple[m.Field, ...]) -> str | None:
    """Return DuckDB's message if an expression fails for all values of its fields, or None.

    Such a failure is usually caused by a wrong constant. The expression is tried with nulls and with two plain values
    of each field. Only a failure that does not depend on the values has the same message each time. For an expression
    with CASE, None is returned, because it may fail for some values on purpose.
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
    return syntax.duckdb_reason(expression.text, messages.pop())


_SAMPLES = 3
_CHOOSES = re.compile(r"\bcase\b", re.IGNORECASE)


def _sample(type_: m.DataType, number: int) -> str:
    """Return null (number 0) or one of two sample values (1, 2) of a type as SQL, written as text to be cast."""
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

    row = _row(fields, (_sample(field.type, number) for field in fields))
    try:
        database().cursor().execute(f"SELECT {sql} {row}").fetchall()
    except (duckdb.Error, UnicodeDecodeError) as exc:
        return duckdb_message(exc)
    return None


def _row(fields: tuple[m.Field, ...], values: Iterable[str]) -> str:
    """Return a FROM clause with one row of the given field values, or an empty string if there are no fields."""
    columns = ", ".join(
        f"{value}::{sql_type(field.type)} AS {quote(field.name)}" for field, value in zip(fields, values, strict=True)
    )
    return f"FROM (SELECT {columns})" if fields else ""


@contextmanager
def _naming(text: str) -> Iterator[None]:
    """Add the text of the expression to the message of a PipelineError."""
    try:
        yield
    except PipelineError as exc:
        msg = f"{text!r} {exc.message}" if exc.message[0] != "'" else f"{text!r}: {exc.message}"
        raise PipelineError(msg) from exc


def _describe(text: str, fields: tuple[m.Field, ...]) -> tuple[str, int]:
    """Return an expression's DuckDB type, and the weight of each byte and item of its values.

    Raise PipelineError if the expression depends on more than its record.
    """
    import duckdb  # noqa: PLC0415 - it is heavy, and a pipeline without expressions is checked without it

    query = f"SELECT ({text}\n) {_row(fields, ['NULL'] * len(fields))}"
    try:
        described = database().cursor().execute(f"DESCRIBE {query}").fetchall()
    except (duckdb.Error, UnicodeDecodeError) as exc:
        msg = f"{text!r}: {syntax.duckdb_reason(text, duckdb_message(exc))}"
        raise PipelineError(msg) from exc
    with _naming(text):
        return str(described[0][1]), check_plan(query)


def duckdb_message(error: Exception) -> str:
    """Return the message of a DuckDB error on one line, without the names that only windrow's SQL uses."""
    # a message can end within a character
    text = error.object.decode("utf-8", "replace") if isinstance(error, UnicodeDecodeError) else str(error)
    first = next(iter(text.strip().splitlines()), type(error).__name__)
    kind, colon, rest = first.partition(": ")
    message = rest if colon and kind.endswith("Error") else first
    limited = _LIMITED.search(message)
    return limited[1] if limited else _ARGUMENT.sub(r"an argument of \1()", message)


_LIMITED = re.compile(rf"'{LIMIT}([^']*)'")
_ARGUMENT = re.compile(r"from source column __v_*\d+_(\w+)")

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
    """Return True if the value of a syntax tree can be null; `nullable` has the columns that can be null."""
    if node["class"] == "COLUMN_REF":
        return node["column_names"][0] in nullable
    if node["type"] == "OPERATOR_COALESCE":
        return all(can_be_null(child, nullable) for child in node["children"])
    operands = _operands(node)
    return operands is None or any(can_be_null(operand, nullable) for operand in operands)


def _operands(node: Node) -> list[Node] | None:  # noqa: PLR0911 - a case for each class
    """Return the operands that make a value null if one of them is null.

    Return None if the value can be null even though none of them is.
    """
    match node["class"], node["type"]:
        case "CONSTANT", _:
            return None if node["literal"]["kind"] == "NULL_LITERAL" else []
        case "COMPARISON", type_:
            return [] if "DISTINCT" in type_ else [node["left"], node["right"]]
        case ("CONJUNCTION", _) | ("OPERATOR", "OPERATOR_NOT" | "COMPARE_IN" | "COMPARE_NOT_IN"):
            return list(node["children"])
        case "BETWEEN", _:
            return [node["input"], node["lower"], node["upper"]]
        case "CASE", _:
            return [node["else_expr"], *(check["then_expr"] for check in node["case_checks"])]
        case "CAST", _ if not node["try_cast"]:
            return [node["child"]]
        case "OPERATOR", "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
            return []
        case "FUNCTION", _ if node["function_name"].lower() in _STRICT_FUNCTIONS:
            return syntax.arguments_of(node)
        case _:
            return None
