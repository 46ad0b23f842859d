"""The SQL dialect of pipelines for sqlglot: DuckDB's SQL with Flink's windows, watermarks and settings.

sqlglot records the positions of names. This dialect also records those of expressions, so that they can be passed on
exactly as written. `Script` maps each part to its place in the text, and refuses parts that are not translated.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import TokenType

from windrow.errors import PipelineError, Place

SPAN, CALL_END, STATEMENT = "span", "call_end", "statement"
"""Keys of a node's `meta`: its start and end; the end of the brackets of a call; the start of a statement."""


class WindowTable(exp.Expression):
    """A window in FROM: ``TUMBLE(TABLE this PARTITION BY partition, DESCRIPTOR(descriptor), expressions)``."""

    arg_types = {"this": True, "kind": True, "partition": False, "descriptor": True, "expressions": True}  # noqa: RUF012


class Setting(exp.Expression):
    """A setting: ``SET 'this' = 'expression'``."""

    arg_types = {"this": True, "expression": True}  # noqa: RUF012


_WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")


class _Dialect(DuckDB):
    """DuckDB's SQL, which windrow uses for expressions, with the clauses that Flink adds for streams."""

    class Tokenizer(DuckDB.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - sqlglot's form

    class Parser(DuckDBParser):
        FUNCTION_PARSERS = {  # noqa: RUF012 - sqlglot's form
            **DuckDBParser.FUNCTION_PARSERS,
            **{kind: lambda self, kind=kind: self._window_table(kind) for kind in _WINDOWS},
        }
        CONSTRAINT_PARSERS = {  # noqa: RUF012 - sqlglot's form
            **DuckDBParser.CONSTRAINT_PARSERS,
            "WATERMARK": lambda self: self._watermark(),
        }
        FUNC_TOKENS = {*DuckDBParser.FUNC_TOKENS, TokenType.SESSION}  # noqa: RUF012 - sqlglot's form
        SCHEMA_UNNAMED_CONSTRAINTS = {  # noqa: RUF012 - sqlglot's form
            *DuckDBParser.SCHEMA_UNNAMED_CONSTRAINTS,
            "WATERMARK",
        }

        def _parse_statement(self) -> Any:  # noqa: ANN401 - sqlglot's
            start = self._curr
            made = super()._parse_statement()
            if start and isinstance(made, exp.Expr):
                made.meta[STATEMENT] = start.start
            return made

        def _warn_unsupported(self) -> None:
            """Do not log anything, because `_parse_as_command` raises an error."""

        def _window_table(self, kind: str) -> exp.Expr:
            start = self._prev
            if not self._match_text_seq("TABLE"):
                self.raise_error(f"{kind} must begin with TABLE and a name")
            table = self._parse_table_parts()
            partition = None
            if self._match(TokenType.PARTITION_BY):
                wrapped = self._match(TokenType.L_PAREN, advance=False)
                partition = self._parse_wrapped_csv(self._parse_column) if wrapped else [self._parse_column()]
            if not (self._match(TokenType.COMMA) and self._match_text_seq("DESCRIPTOR")):
                self.raise_error(f"{kind} needs DESCRIPTOR with the event time after its table")
            descriptor = self._parse_wrapped(self._parse_column)
            sizes = []
            while self._match(TokenType.COMMA):
                sizes.append(self._parse_disjunction())
            made = WindowTable(this=table, kind=kind, partition=partition, descriptor=descriptor, expressions=sizes)
            made.meta[SPAN] = (start.start, self._prev.end + 1)
            return made

        def _watermark(self) -> exp.Expr:
            if not self._match_text_seq("FOR"):
                self.raise_error("WATERMARK must be followed by FOR and the event time")
            field = self._parse_id_var()
            self._match(TokenType.ALIAS)
            return exp.WatermarkColumnConstraint(this=field, expression=self._parse_disjunction())

        def _parse_set(self, unset: bool = False, tag: bool = False) -> Any:  # noqa: ANN401, ARG002, FBT001, FBT002 - sqlglot's
            name = self._parse_string()
            value = self._parse_string() if name is not None and self._match(TokenType.EQ) else None
            if value is None:
                self.raise_error("a setting is SET 'name' = 'value'")
            return Setting(this=name, expression=value)

        def _parse_string(self) -> Any:  # noqa: ANN401 - sqlglot's
            return self._spanned(super()._parse_string)

        def _parse_disjunction(self) -> Any:  # noqa: ANN401 - sqlglot's
            return self._spanned(super()._parse_disjunction)

        def _parse_equality(self, parse_is: bool = True) -> Any:  # noqa: ANN401, FBT001, FBT002 - sqlglot's
            return self._spanned(partial(super()._parse_equality, parse_is))

        def _spanned(self, parse: Any) -> Any:  # noqa: ANN401 - sqlglot's
            start = self._curr
            node = parse()
            if start and isinstance(node, exp.Expr):
                node.meta[SPAN] = (start.start, self._prev.end + 1)
            return node

        def _parse_window(self, this: Any, alias: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - sqlglot's
            if isinstance(this, exp.Expr):
                this.meta[CALL_END] = self._prev.end + 1
            return super()._parse_window(this, alias)

        def _parse_as_command(self, start: Any) -> Any:  # noqa: ANN401 - sqlglot's
            self.raise_error("this statement is not supported", start)


_OF_SQLGLOT = re.compile(r" but got <.*|Required keyword: .*", re.DOTALL)
_OPEN_QUOTE = re.compile(r"Missing .+ from \d+:(\d+)")


@dataclass(frozen=True)
class Script:
    """The text and the name of an SQL file."""

    text: str
    file: str

    def parse(self) -> list[exp.Expr]:
        """Return the syntax trees of the statements; raise PipelineError, with line and column, for invalid SQL."""
        try:
            tokens = _Dialect().tokenize(self.text)
            parsed = _Dialect().parser().parse(tokens, self.text)
        except ParseError as exc:
            error = exc.errors[0]
            column = max(1, error["col"] - len(error["highlight"] or " ") + 1)
            # a text is not quoted: it may be a password
            known = "" if error["highlight"].startswith("'") else error["highlight"]
            near = f" at {known!r}" if known else ""
            what = _OF_SQLGLOT.sub("", error["description"].rstrip(".")) or "something is missing"
            msg = f"the SQL cannot be read: {what}{near}"
            raise PipelineError(msg, Place(self.file, error["line"], column)) from exc
        except TokenError as exc:
            found = _OPEN_QUOTE.search(str(exc.__cause__))
            place = self.place(int(found[1]) if found else 0)
            msg = "the SQL cannot be read: a quote or comment is not closed"
            raise PipelineError(msg, place) from exc
        except RecursionError as exc:
            msg = "the SQL is nested too deeply"
            raise PipelineError(msg, Place(self.file, 1, 1)) from exc
        for token in tokens:
            if any(comment.startswith("+") for comment in token.comments):
                msg = "hints /*+ ... */ are not supported; give options in WITH ('name' = 'value')"
                raise PipelineError(msg, self.place(token.start))
        return [tree for tree in parsed if tree is not None and not isinstance(tree, exp.Semicolon)]

    @cached_property
    def _lines(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def line_and_column(self, at: int) -> tuple[int, int]:
        """Return the line and column of a position, both counted from 0."""
        line = bisect.bisect_right(self._lines, at) - 1
        return line, at - self._lines[line]

    def place(self, at: int) -> Place:
        """Return the file, line and column of a position."""
        line, column = self.line_and_column(at)
        return Place(self.file, line + 1, column + 1)

    def start(self, node: exp.Expr) -> int:
        """Return where a node starts: the least known position of its parts, or else the start of its parent."""
        found = [at for part in node.walk() if (at := _start(part)) is not None]
        return min(found) if found else self.start(node.parent) if node.parent else 0

    def refuse(self, node: exp.Expr, message: str) -> NoReturn:
        """Raise PipelineError with a message about a node, and its place."""
        raise PipelineError(message, self.place(self.start(node)))

    def parts(self, node: exp.Expr, of: str, *known: str) -> list[Any]:
        """Return the `known` arguments of a node, or None for missing ones; refuse the node if it has others."""
        for name, value in node.args.items():
            if name not in known and not _is_empty(value):
                near = value[0] if isinstance(value, list) else value
                where = near if isinstance(near, exp.Expr) else node
                self.refuse(
                    where,
                    f"{of} cannot have {_CLAUSES.get(name, name.rstrip('_').replace('_', ' ').upper())} here; "
                    f"{_INSTEAD.get(name, 'remove it')}",
                )
        return [node.args.get(name) or None for name in known]

    def source_text(self, node: exp.Expr) -> str:
        """Return the text of a node as written."""
        start, end = node.meta[SPAN]
        return self.text[start:end]


_CLAUSES = {
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "distinct": "DISTINCT",
    "joins": "a join",
    "laterals": "LATERAL",
    "pivots": "PIVOT",
    "sample": "a sample",
    "with_": "WITH",
    "hint": "a hint",
    "windows": "WINDOW",
    "qualify": "QUALIFY",
    "version": "FOR SYSTEM_TIME AS OF",
    "exists": "IF NOT EXISTS",
    "replace": "OR REPLACE",
    "using": "USING",
    "grouping_sets": "GROUPING SETS",
    "cube": "CUBE",
    "rollup": "ROLLUP",
    "overwrite": "OVERWRITE",
    "conflict": "ON CONFLICT",
    "returning": "RETURNING",
    "db": "a database",
    "catalog": "a catalog",
}
_INSTEAD = {
    "order": "a stream has no end at which it could be sorted; sort the rows when you read the table",
    "limit": "a stream has no end; in YAML, the aggregate top_k_by keeps the greatest values",
    "distinct": "for copies of a record, use ROW_NUMBER() OVER (PARTITION BY id ORDER BY PROCTIME()) = 1",
    "sample": "in YAML, sample takes every nth record of each key",
    "laterals": "for the elements of an array, use flat_map: ARRAY in YAML",
}


def _is_empty(value: Any) -> bool:  # noqa: ANN401 - an argument of a node
    return value in (None, False, [], "") or isinstance(value, exp.IndexParameters)


def _start(node: exp.Expr) -> int | None:
    if SPAN in node.meta:
        return int(node.meta[SPAN][0])
    start = node.meta.get("start")
    return None if start is None else int(start)
