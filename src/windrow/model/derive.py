"""Fields that are computed of others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Derive:
    """A field made by an SQL expression over the decoded fields; like them it can be a key or be aggregated."""

    name: str
    sql: str
