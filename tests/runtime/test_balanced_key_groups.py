from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from windrow.runtime.spark.stages import balanced_key_groups


@pytest.mark.parametrize("groups", [1, 8, 64, 6000])
def test_each_key_group_has_a_number_of_its_own_which_stays(groups: int) -> None:
    assert len(set(balanced_key_groups(groups))) == groups
    assert balanced_key_groups(groups)[:5] == (22362, 14516, 848, 16776, 10632)[:groups]


def test_spark_puts_as_many_groups_into_each_task(spark: SparkSession) -> None:
    rows = spark.createDataFrame(list(enumerate(balanced_key_groups(40))), "key_group int, slot int")
    for tasks in (2, 3, 4, 5, 8, 10, 16):
        placed = rows.repartition(tasks, "slot").select("key_group", f.spark_partition_id().alias("task")).collect()
        assert {row.key_group: row.task for row in placed} == {group: group % tasks for group in range(40)}
