"""Computation by halves, which separates the rows for which a computation fails from all others.

A computation over many rows fails as a whole. If the cause is in the rows, each half is computed again, down to single
rows. So whether a row fails does not depend on the rows beside it, and not on how the log is cut into batches. This
requires that the result for a row is a function of that row alone.

Failures are expected (a value that an expression cannot convert) or not (a defect of windrow or of a library). A record
with an unexpected failure becomes a dead letter with the reason ``internal: STEP: ERROR``. Errors that the machine, a
server or the user's settings cause are never failures of rows: a dead letter must be the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from windrow.engine import duckdb_sql
from windrow.engine.duckdb_sql import EvaluationError, QueryError
from windrow.errors import HIDDEN_VALUES, INTERNAL, WindrowError, encodable

T = TypeVar("T")


class Sliceable(Protocol):
    """A table, batch or array of Arrow."""

    def __len__(self) -> int: ...

    def slice(self, offset: int = 0, length: int | None = None) -> Any:  # noqa: ANN401 - of the same type
        """Return some of the rows, without a copy."""
        ...


R = TypeVar("R", bound=Sliceable)

_FAULTS: Final = (
    WindrowError,
    MemoryError,
    OSError,
    ImportError,
    pa.ArrowCancelled,
    *duckdb_sql.MACHINE_ERRORS,
)
"""Errors of the machine, of servers and of settings; `QueryError` is the only `WindrowError` that rows cause."""
_MOST: Final = 200
"""Characters of an error in a reason."""
_VARYING: Final = re.compile(r"\b0x[0-9a-fA-F]+|(?:[A-Za-z]:)?(?:[\\/][\w.@+-]+){2,}")
"""Addresses and paths, which differ between processes and machines."""


def is_of_rows(error: Exception) -> bool:
    """Return True if an error can be caused by the rows of a computation."""
    return isinstance(error, QueryError) or not isinstance(error, _FAULTS)


def _half(rows: Sliceable) -> int:
    return len(rows) // 2


@dataclass(frozen=True)
class Failure:
    """The error with which a computation fails for a single row."""

    error: Exception


def compute_in_halves(
    compute: Callable[[R], T],
    rows: R,
    is_failure: Callable[[Exception], bool],
    middle: Callable[[R], int] = _half,
) -> Iterator[tuple[R, T | Failure]]:
    """Yield (rows, result) for parts of the rows, in order; the result for a single row may be a `Failure`.

    An error for which `is_failure` returns False is raised. The function `middle` returns the row at which rows are
    divided. Rows that it does not divide (it returns 0 or their number) fail like a single row.
    """
    stack = [rows]
    while stack:
        some = stack.pop()
        result: T | Failure
        try:
            result = compute(some)
        except Exception as exc:
            if not len(some) or not is_failure(exc):
                raise
            at = middle(some)
            if 0 < at < len(some):
                stack += [some.slice(at), some.slice(0, at)]
                continue
            result = Failure(exc)
        yield some, result


def evaluate_in_halves(evaluate: Callable[[pa.Table], T], rows: pa.Table) -> tuple[list[T], dict[int, str]]:
    """Return the values of the rows that can be evaluated, in parts, and map the index of each failed row to its error.

    Only an EvaluationError is a failure. An expression that cannot be planned, because of its constants, fails without
    rows too, and so for all rows.
    """
    try:
        return [evaluate(rows)], {}
    except EvaluationError:
        try:
            evaluate(rows.slice(0, 0))
        except EvaluationError as exc:
            return [], dict.fromkeys(range(rows.num_rows), str(exc))
    parts: list[T] = []
    failed: dict[int, str] = {}
    first = 0
    for some, result in compute_in_halves(evaluate, rows, lambda exc: isinstance(exc, EvaluationError)):
        if isinstance(result, Failure):
            failed[first] = str(result.error)
        else:
            parts.append(result)
        first += len(some)
    return parts, failed


def compute_rows(
    step: str,
    compute: Callable[[R], T],
    rows: R,
    dead: Callable[[R, str], T],
    middle: Callable[[R], int] = _half,
) -> list[T]:
    """Return the results of rows in parts, in order; usually there is one part.

    The function `dead` returns the result for a row that fails unexpectedly, given the reason of its dead letter, which
    contains the name of the `step`. A single row that fails is computed once more, with new connections.
    """

    def compute_alone(row: R) -> T:
        duckdb_sql.renew_connections()
        try:
            return compute(row)
        except Exception as exc:
            reason = internal_reason(step, exc)
            if reason is None:
                raise
            return dead(row, reason)

    return [
        compute_alone(some) if isinstance(result, Failure) else result
        for some, result in compute_in_halves(compute, rows, is_of_rows, middle)
    ]


def internal_reason(step: str, error: Exception) -> str | None:
    """Return the reason of the dead letter for a row that fails in a step; None if rows do not cause the error."""
    return f"{INTERNAL}: {step}: {_text(error)}" if is_of_rows(error) else None


def _text(error: Exception) -> str:
    """Return the type of an error and the first line of its message.

    The text must be a function of the row, so it contains no addresses and no paths.
    """
    cause = error.__cause__ if isinstance(error, QueryError) and error.__cause__ is not None else error
    lines = str(cause).strip().splitlines()
    text = _VARYING.sub("...", HIDDEN_VALUES.hide(": ".join([type(cause).__name__, *lines[:1]])))
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return encodable(text if len(text) <= _MOST else f"{text[:_MOST]}...")
