"""Rows at one place are in the order of what they are made of, by the numbers in it."""

from random import Random

import pyarrow as pa

from windrow.engine import duckdb_sql
from windrow.engine.merged_order import ID_ORDER, in_log_order, in_merged_order
from windrow.engine.schema import ID, OFFSET, PARTITION, WATERMARK

IN_ORDER = [
    "A/1@2026-01-01T00:00:00+00:00",
    "A/01@2026-01-01T00:00:00+00:00",
    "s/0/2",
    "s/0/2#0001",
    "s/0/2+t/0/9",
    "s/0/2+t/0/10",
    "s/0/9#2",
    "s/0/9#10",
    "s/0/9#10#0001",
    "s/0/10",
    "s/0/9223372036854775807",
    "s/2/0",
    "s/10/0",
    "t",
]


def test_ids_are_compared_by_the_numbers_in_them() -> None:
    wanted = sorted(IN_ORDER, key=lambda one: (IN_ORDER.index(one) > 1, one[:2] == "A/" and one, IN_ORDER.index(one)))
    for seed in range(20):
        ids = Random(seed).sample(IN_ORDER, len(IN_ORDER))
        zeros = [0] * len(ids)
        records = pa.table(
            {
                WATERMARK: pa.array(zeros, pa.int64()),
                PARTITION: pa.array(zeros, pa.int32()),
                OFFSET: pa.array(zeros, pa.int64()),
                ID: pa.array(ids),
            }
        )
        for order in (in_merged_order, in_log_order):
            assert order(records).column(ID).to_pylist() == wanted
        sql = f"SELECT {ID} FROM records ORDER BY {', '.join(ID_ORDER)}"
        assert duckdb_sql.query(duckdb_sql.Connection(), sql, records=records).column(ID).to_pylist() == wanted
