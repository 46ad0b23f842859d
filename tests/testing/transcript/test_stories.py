"""The golden stories, on every host and in many cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.testing.transcript.report import lines
from windrow.testing.transcript.run import run_story

STORIES = sorted((Path(__file__).parents[2] / "transcripts").glob("*.yaml"))

LARGE = 5_000
"""Bytes of a story."""
SAMPLE = ["worked_example", "session_two_partitions", "graph_two_sources", "early_every", "idle_hold"]
"""Few, as each costs seconds on Spark; `tests/net` plays a broader sample there."""


def names(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", STORIES, ids=names)
def test_memory_host_goes_as_told_in_every_cut(path: Path) -> None:
    # one story has hundreds of records, as many as an adaptive delay needs to begin
    result = run_story(path, host="memory", rebatch=1 if path.stat().st_size < LARGE else 0)
    assert result.ok, "\n".join(lines(result))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("host", ["memory", "batch", "stream"])
def test_step_is_run_again_after_a_crash(host: str) -> None:
    result = run_story(STORIES[0].parents[2] / "docs" / "concepts" / "crash.yaml", host=host, rebatch=1)
    assert result.ok, "\n".join(lines(result))


@pytest.mark.long
@pytest.mark.parametrize("path", STORIES, ids=names)
def test_memory_host_goes_as_told_in_twenty_cuts(path: Path) -> None:
    result = run_story(path, host="memory", rebatch=20)
    assert result.ok, "\n".join(lines(result))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("name", "host"), [*((name, "stream") for name in SAMPLE), *((name, "batch") for name in SAMPLE[::2])]
)
def test_spark_hosts_go_as_told(name: str, host: str) -> None:
    path = STORIES[0].parent / f"{name}.yaml"
    result = run_story(path, host=host)
    assert result.ok, "\n".join(lines(result))


@pytest.mark.long
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("path", STORIES, ids=names)
@pytest.mark.parametrize("host", ["stream", "batch"])
def test_spark_hosts_go_as_told_in_every_cut(path: Path, host: str) -> None:
    # as told, in one random cut, in one step and one record a step
    result = run_story(path, host=host, rebatch=0 if path.stat().st_size > LARGE else 1)
    assert result.ok, "\n".join(lines(result))
