"""Defects that are put into the engine at random, by the content of records, so that every cut meets the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import duckdb
import pyarrow as pa
import pytest

from windrow.engine.decode.decoder import Decoder
from windrow.engine.decode.evaluation import Evaluator
from windrow.engine.operators.route import _FlatMap, _Route

ERRORS: Final[tuple[type[Exception], ...]] = (
    RuntimeError,
    SystemError,
    ValueError,
    pa.ArrowInvalid,
    duckdb.InternalException,
    duckdb.FatalException,
)
_FIELDS: Final = (("id", "user", "v"), ("user", "v"), ("u", "w"), ("n",), ())
"""Fields whose values are the same in the engine as in the oracle; the first that a record has are its content."""


@dataclass(frozen=True)
class Defects:
    """The records that fail in each step: one in so many (`every`), chosen by the step and the record's content."""

    seed: int
    every: int
    only: str | None = None
    """The one step in which records fail; None: in any."""

    def at(self, step: str, content: str) -> Exception | None:
        """Return the error with which a record fails in a step; its text has what differs between processes."""
        if self.only not in {None, step}:
            return None
        number = crc32(f"{self.seed}/{step}/{content}".encode())
        if number % self.every:
            return None
        error = ERRORS[number // self.every % len(ERRORS)]
        return error(f"no {content!r} at 0x{id(object()):x} in /tmp/of/{id(self)}\nStack Trace: {id(self)}")

    def fails(self, step: str, values: Mapping[str, Any]) -> bool:
        """Return True if a record with these fields fails in a step."""
        content = elements_of(values) if step == "flat_map" else content_of(values)
        return self.at(step, content) is not None

    def inject(self, patch: pytest.MonkeyPatch, content_of_bytes: Callable[[bytes], str]) -> None:
        """Have the engine fail for each batch with a record that fails in a step."""

        def check(step: str, contents: list[str]) -> None:
            for content in contents:
                error = self.at(step, content)
                if error is not None:
                    raise error

        def before(owner: type, name: str, contents: Callable[..., tuple[str, list[str]] | None]) -> None:
            original = getattr(owner, name)

            def failing(*given: Any) -> Any:  # noqa: ANN401 - of several functions
                found = contents(*given)
                if found is not None:
                    check(*found)
                return original(*given)

            patch.setattr(owner, name, failing)

        before(
            Decoder,
            "_decode",
            lambda _, raw: ("decode", [content_of_bytes(value) for value in raw.column("value").to_pylist()]),
        )
        before(Evaluator, "_compute", _evaluated)
        before(
            _FlatMap,
            "run",
            lambda stage, tables: ("flat_map", list(map(elements_of, tables[stage.inputs[0]].to_pylist()))),
        )
        before(_Route, "_select", lambda at, table: ("key", _contents(table)) if at.name in WINDOWS else None)
        for name in ("_split", "_pack"):
            before(_Route, name, lambda at, table: ("exchange", _contents(table)) if at.name in WINDOWS else None)


WINDOWS: Final = ("first", "second", "third", "beside")
"""Nodes whose records fail on their way to the operator."""


def content_of(values: Mapping[str, Any]) -> str:
    """Return the content of a record with these fields."""
    names = next(names for names in _FIELDS if values.keys() >= set(names))
    return repr([(name, values[name]) for name in names])


def elements_of(values: Mapping[str, Any]) -> str:
    """Return the content of a record that a flat map takes apart; the log's record has more fields than are decoded."""
    return str(len(values.get("items") or ()))


def _contents(table: pa.Table) -> list[str]:
    names = {name for names in _FIELDS for name in names}
    rows = table.select([name for name in table.column_names if name in names])
    return list(map(content_of, rows.to_pylist())) if rows.num_columns else [content_of({})] * table.num_rows


def _evaluated(evaluator: Any, fields: pa.Table) -> tuple[str, list[str]] | None:  # noqa: ANN401 - its internals
    step, columns = vars(evaluator)["_step"], vars(evaluator)["_columns"]
    is_of_node = step == "where" or str(step).startswith("split.")
    is_of_node |= step == "derive" and any(not column.name.startswith("__") for column in columns)
    return (step, _contents(fields)) if is_of_node else None
