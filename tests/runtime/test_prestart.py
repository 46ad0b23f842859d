"""What a session loads before the first step."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import java_gateway
from pyspark.sql import SparkSession

from windrow.runtime.spark.session import JOBS, _end_thread, _java_of_this_start, _load


def test_it_is_loaded_without_a_fault_and_changes_no_setting(spark: SparkSession) -> None:
    """A run leaves faults of it aside, so they would be seen here only."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with ThreadPoolExecutor(1) as thread:  # the names of jobs are a thread's
        thread.submit(partial(_load, spark, has_state=True)).result()
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(JOBS)
    assert len(jobs) >= 2  # Python processes, and state


def test_it_ends_before_the_interpreter_does() -> None:
    """A thread that is within Arrow as the interpreter ends would abort the process: of a run that fails at once."""
    cancelled = threading.Event()
    thread = threading.Thread(target=cancelled.wait, daemon=True)
    thread.start()

    def cancel(group: str) -> None:
        assert group == JOBS
        cancelled.set()

    _end_thread(thread, cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=cancel))))
    assert not thread.is_alive()


def test_what_declares_the_state_loads_no_library() -> None:
    """Spark waits for a process that does no more than that."""
    names = "{'pandas', 'pyarrow', 'numpy', 'duckdb'}"
    code = f"import sys, windrow.runtime.spark.key_groups; print(*{names} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"


def test_java_does_not_outlive_a_start_that_is_broken_off() -> None:
    """Before it has written where it listens, Java would wait for ever."""
    module: Any = java_gateway
    popen, started = module.Popen, []

    def broken_off() -> None:
        with _java_of_this_start():
            started.append(module.Popen(["sleep", "60"]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert [java.returncode for java in started] == [-9]
    assert module.Popen is popen
