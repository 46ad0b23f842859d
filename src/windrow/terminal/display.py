"""Display of values: aligned text in a terminal, HTML tables in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from windrow.telemetry.numbers import printable


class Text(str):
    """Text that a Python prompt and a notebook display as lines, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self).rstrip("\n")


def cells(row: Iterable[Any]) -> list[str]:
    """Return the values of a row as text; null becomes an empty string."""
    return ["" if value is None else str(value).lower() if isinstance(value, bool) else str(value) for value in row]


def null_text(value: object) -> str:
    """Return a value as text, ``null`` for None."""
    return "null" if value is None else str(value)


def aligned(columns: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[bool]) -> Iterator[str]:
    """Yield a table as lines: a header, and a line for each row, with numbers aligned to the right."""
    from rich.cells import cell_len  # noqa: PLC0415 - `windrow status` starts without it

    lines = [[printable(text) for text in row] for row in (columns, *map(cells, rows))]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = []
        for text, width, is_number in zip(line, widths, numeric, strict=True):
            padding = " " * (width - cell_len(text))
            padded.append(padding + text if is_number else text + padding)
        yield "  ".join(padded).rstrip()


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], numeric: Sequence[bool]) -> str:
    """Return an HTML table with a header, and numbers aligned to the right."""
    sides = ["right" if is_number else "left" for is_number in numeric]

    def line(tag: str, texts: Iterable[str]) -> str:
        tagged = (
            f'<{tag} style="text-align: {side}">{_html(text)}</{tag}>' for text, side in zip(texts, sides, strict=True)
        )
        return f"<tr>{''.join(tagged)}</tr>"

    body = "\n".join(line("td", cells(row)) for row in rows)
    return f"<table>\n<thead>{line('th', columns)}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def html_lines(*lines: str) -> str:
    """Return an HTML paragraph for each line."""
    return "".join(f"<p>{_html(line)}</p>\n" for line in lines)


def _html(text: str) -> str:
    return escape(printable(text)).replace("\n", "<br>")
