"""A backlog behind a slow sink is worked off, in memory that does not grow with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench.processes import Sample, flatness

ROOT = Path(__file__).parents[2]
HEAP, OUTSIDE = 4096, 1024
"""MiB that Java's heap may take (`windrow.runtime.spark.session`), and RocksDB and the rest beside it."""


@pytest.mark.long
@pytest.mark.service
def test_a_backlog_in_kafka_behind_a_slow_sink(tmp_path: Path) -> None:
    """1,500,000 events at 7,000 changes a second: some four minutes, most of them in a wait."""
    command = [sys.executable, str(ROOT / "bench" / "backlog.py"), "--cases", "kafka-throttled"]
    command += ["--events", "1500000", "--hours", "36", "--rate", "7000", "--out", str(tmp_path / "seen.jsonl")]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert "it caught up" in ran.stdout, ran.stdout + ran.stderr
    seen = json.loads((tmp_path / "seen.jsonl").read_text())
    steps = seen["steps"]
    assert sum(step["events"] for step in steps) >= 1_500_000
    behind = [step["behind"] for step in steps if step["behind"] is not None]
    assert behind == sorted(behind, reverse=True)
    # the first steps, of 500,000, took too long; the second was planned when that was seen
    assert steps[-2]["events"] < steps[0]["events"]
    # in so short a run Java's heap still grows to what it may take; Python's processes are at rest
    memory = [replace(Sample(**one), jvm=0.0) for one in seen["memory"]]
    assert flatness(memory)[0], ran.stdout
    assert max(one["jvm"] for one in seen["memory"]) < HEAP + OUTSIDE
