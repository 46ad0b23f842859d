"""How values are shown: aligned text in a terminal, tables of HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from rich.cells import cell_len

from windrow.telemetry.numbers import printable


class Text(str):
    """Text that a Python prompt and a notebook show as it is, in several lines and without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self).rstrip("\n")


def cells(row: Iterable[Any]) -> list[str]:
    """Return the values of a row as text: null as nothing."""
    return ["" if value is None else str(value).lower() if isinstance(value, bool) else str(value) for value in row]


def aligned(columns: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[bool]) -> Iterator[str]:
    """Yield rows as lines below a line with the names of the columns, numbers aligned to the right."""
    lines = [[printable(text) for text in row] for row in (columns, *map(cells, rows))]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = []
        for text, width, is_number in zip(line, widths, numeric, strict=True):
            padding = " " * (width - cell_len(text))
            padded.append(padding + text if is_number else text + padding)
        yield "  ".join(padded).rstrip()


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], numeric: Sequence[bool]) -> str:
    """Return rows as a table of HTML, below the names of the columns."""
    sides = ["right" if is_number else "left" for is_number in numeric]
    head = "".join(
        f'<th style="text-align: {side}">{_html(text)}</th>' for text, side in zip(columns, sides, strict=True)
    )
    lines = [
        "".join(
            f'<td style="text-align: {side}">{_html(text)}</td>' for text, side in zip(cells(row), sides, strict=True)
        )
        for row in rows
    ]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def html_lines(*lines: str) -> str:
    """Return paragraphs of HTML."""
    return "".join(f"<p>{_html(line)}</p>\n" for line in lines)


def _html(text: str) -> str:
    return escape(printable(text)).replace("\n", "<br>")
