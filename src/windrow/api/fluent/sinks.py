"""What `to` takes."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Literal

from windrow.model import PostgresSink, SqliteSink


def sqlite(
    path: str | PathLike[str],
    *,
    table: str,
    key: Sequence[str] = (),
    decimals: Literal["numeric", "text"] = "numeric",
    changelog: bool = True,
) -> SqliteSink:
    """Write to tables of an SQLite file: `table`, and beside it its changelog, late output, dead letters and clocks.

    `key` is the table's primary key (left out: the window and the pipeline's key). SQLite's NUMERIC keeps 15 digits of
    a decimal; ``decimals="text"`` keeps all. With ``changelog=False`` the table of changes stays empty.
    """
    return SqliteSink(fspath(path), table, _names(key), decimals, changelog)


def postgres(url: str, *, table: str, key: Sequence[str] = (), changelog: bool = True) -> PostgresSink:
    """Write to tables of a PostgreSQL database; what `url` leaves out comes from libpq's environment (PGPASSWORD ...).

    The table is in the schema that the url's search_path names first; `key` is its primary key (left out: window and
    pipeline's key). With ``changelog=False`` the table of changes stays empty.
    """
    return PostgresSink(url, table, _names(key), changelog)


def _names(key: Sequence[str]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)
