"""Rows and values of a followed table that PostgreSQL has not logged: they came with a partition or a column.

They are older than its attachment or its last alteration: by their transactions or, within one, by the numbers of their
commands. What a savepoint of that transaction wrote has a later transaction, and is not found.
"""

from __future__ import annotations

from dataclasses import dataclass

from windrow.connectors.postgres.cdc.server import TableFacts, quoted, single_row
from windrow.connectors.postgres.client import Connection


@dataclass(frozen=True)
class Partition:
    """A partition that has rows itself, and its last attachment.

    `transaction` and `command` attached it, or a partition that it is part of. `is_made` is True if they created it as
    a partition, without rows. `version` identifies it until it is attached again.
    """

    oid: int
    name: str
    transaction: str
    command: int
    is_made: bool

    @property
    def version(self) -> str:
        return f"{self.oid}.{self.transaction}"


_PARTITIONS = """
WITH RECURSIVE links (relation, transaction, command, is_made) AS (
    SELECT $1::oid, NULL::xid, NULL::cid, NULL::bool
    UNION ALL
    SELECT i.inhrelid, newer.* FROM links JOIN pg_inherits i ON i.inhparent = relation, LATERAL (
        SELECT * FROM (VALUES (i.xmin, i.cmin, EXISTS (
            SELECT FROM pg_attribute a JOIN pg_attribute s ON s.attrelid = a.attrelid AND s.attname = 'tableoid'
            WHERE a.attrelid = i.inhrelid AND a.attnum > 0 AND a.attinhcount > 0 AND a.xmin = s.xmin AND a.cmin = s.cmin
        )), (links.transaction, links.command, links.is_made)) AS both_links (transaction, command, is_made)
        WHERE transaction IS NOT NULL ORDER BY age(transaction), command::text::bigint DESC LIMIT 1) AS newer
)
SELECT c.oid::bigint, c.oid::regclass::text, transaction::text, command::text::bigint, is_made
FROM links JOIN pg_class c ON c.oid = relation WHERE relation <> $1 AND c.relkind = 'r' ORDER BY c.oid"""
"""The partitions of a table, at every level.

An attachment alters each column, so a table with one that is inherited, and as it was when the table was created, was
created as a partition.
"""


def find_partitions(sql: Connection, table: TableFacts) -> list[Partition]:
    """Look up the partitions of a table."""
    if not table.is_partitioned:
        return []
    return [Partition(*row) for row in sql.execute(_PARTITIONS, (table.oid,)).fetchall()]


def has_older_rows(sql: Connection, table: TableFacts, partition: Partition, only: str | None) -> bool:
    """Return True if rows of a partition are older than its attachment; `only` is the row filter of the publication.

    An older transaction may also have written rows since, so a partition that was created as one has none.
    """
    if partition.is_made:
        return False
    # the role may have no privileges on the partition itself, and its bounds spare a scan of the others
    (bounds,) = single_row(sql, "SELECT pg_get_partition_constraintdef($1)", partition.oid)
    query = (
        f"SELECT EXISTS (SELECT FROM {table.quoted} WHERE tableoid = $1 AND ({bounds or 'true'}) "
        f"AND ({only or 'true'}) AND (age(xmin) > age($2::xid) OR xmin = $2::xid AND cmin::text::bigint < $3))"
    )
    (found,) = single_row(sql, query, partition.oid, partition.transaction, partition.command)
    return bool(found)


def has_older_values(sql: Connection, table: TableFacts, column: str) -> bool:
    """Return True if rows that are older than the last alteration of a column have a value in it.

    It then had a default for existing rows that was dropped since, or was generated.
    """
    query = (
        f"SELECT EXISTS (SELECT FROM {table.quoted} AS r, pg_attribute AS a WHERE a.attrelid = $1 AND a.attname = $2 "
        f"AND r.{quoted(column)} IS NOT NULL "
        "AND (age(r.xmin) > age(a.xmin) OR r.xmin = a.xmin AND r.cmin::text::bigint < a.cmin::text::bigint))"
    )
    (found,) = single_row(sql, query, table.oid, column)
    return bool(found)
