"""In a program or notebook that has started Spark: runs use it, and the settings of its session stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.client.purchases import spend, write_purchases

from windrow.runtime.settings import MEANING

OTHER = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}
"""Settings of a session with which results would be others, or none."""


@pytest.fixture
def users(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of somebody else, which is the active one."""
    session = spark.newSession()
    for name, value in OTHER.items():
        session.conf.set(name, value)
    activate(session)
    try:
        yield session
    finally:
        activate(spark)


def activate(session: SparkSession) -> None:
    """Do what Spark does for the session that it has started."""
    jvm: Any = session._jvm  # noqa: SLF001 - no other way
    jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
    SparkSession._activeSession = session  # noqa: SLF001


def test_runs_leave_the_settings_of_a_session_and_do_without_them(
    users: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # relative paths are of the folder that this process is in now, and not Spark's
    monkeypatch.chdir(tmp_path)
    write_purchases(tmp_path / "data" / "spend")
    assert MEANING["spark.sql.session.timeZone"] != OTHER["spark.sql.session.timeZone"]
    pipeline = spend()
    result = pipeline.run()
    assert result.ended == "end"
    assert (tmp_path / ".windrow" / "spend" / "spark" / "commits").is_dir()
    assert result.diff(spend(database="memory.db").run("memory"), panes=True).same
    assert {name: users.conf.get(name) for name in OTHER} == OTHER
    assert SparkSession.getActiveSession() is users
    frame = result.to_spark()
    assert frame.sparkSession is users
    assert sorted(row["total"] for row in frame.collect()) == [1, 3, 8]
