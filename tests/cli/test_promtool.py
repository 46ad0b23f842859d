"""Prometheus' own tool finds nothing wrong with the metrics."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.test_listen import STEP

from windrow.cli.metrics import METRICS, RunMetrics


@pytest.fixture
def promtool(tmp_path: Path) -> Path:
    """The tool of Debian's package, which is fetched and not installed."""
    for command in (["apt-get", "download", "prometheus"], ["sh", "-c", "dpkg -x prometheus_*.deb ."]):
        subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path / "usr" / "bin" / "promtool"


@pytest.mark.long
def test_promtool_finds_nothing(promtool: Path) -> None:
    metrics = RunMetrics("user-spend")
    metrics.on_step(replace(STEP, state_rows=1))
    page, _ = metrics.page("")
    text = page.decode()
    assert [one.name for one in METRICS if f"# HELP {one.name} " not in text] == []
    found = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")
