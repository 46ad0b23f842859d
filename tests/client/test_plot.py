"""Plots: what they draw of a log and of results."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.dates import num2date
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from tests.client.purchases import spend, write_purchases
from tests.graphs import as_graph, graph_of
from tests.short_forms import Pipeline

import windrow as wr
from windrow.errors import InputError, SetupError
from windrow.model import Hopping

MINUTE = 60_000_000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder to work in, with the log of the guide; figures are closed."""
    monkeypatch.chdir(tmp_path)
    write_purchases(tmp_path / "data" / "spend")
    yield
    plt.close("all")


def times_of(axes: Axes, line: Line2D) -> list[dt.datetime]:
    found: list[dt.datetime] = num2date(axes.convert_yunits(line.get_ydata()))  # type: ignore[no-untyped-call]
    return found


def bars_of(axes: Axes) -> list[Rectangle]:
    return [one for one in axes.patches if isinstance(one, Rectangle)]


def test_event_time_by_offset() -> None:
    axes = wr.plot.event_time(spend())
    on_time, behind = (np.asarray(one.get_offsets())[:, 0].tolist() for one in axes.collections)
    assert (on_time, behind) == ([0, 1, 2, 3], [4])
    (watermark,) = axes.lines
    # the first record has none
    assert np.asarray(watermark.get_xdata()).tolist() == [1, 2, 3, 4]
    assert times_of(axes, watermark)[-1] == dt.datetime(2026, 1, 1, 10, 5, tzinfo=dt.UTC)
    assert axes.get_xlabel() == "offset in the partition"


def test_event_time_by_the_timestamps_of_the_log() -> None:
    for partition in range(2):
        lines = [
            {"user_id": "A", "event_time": f"2026-01-01T10:0{at}:00Z", "amount": 1, "_log_time": 1767261600000 + at}
            for at in range(partition, 6)
        ]
        Path(f"data/spend/partition-{partition}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    axes = wr.plot.event_time(spend(), ax=plt.subplots()[1])
    (low,) = axes.lines
    assert low.get_label() == "low watermark"
    # there is none before the second partition has its second record; then it is a minute, and the delay, behind
    times = [f"{one:%H:%M}" for one in times_of(axes, low)]
    assert times == ["10:00", "10:01", "10:02", "10:03"]
    assert "processing time" in axes.get_xlabel()


def test_a_histogram_of_lateness() -> None:
    axes = wr.plot.lateness(spend(), bins=3)
    assert sum(bar.get_height() for bar in bars_of(axes)) == 1
    assert axes.get_title() == "4 of 5 records are in order"
    assert [line.get_label() for line in axes.lines] == ["delay 1m"]
    Path("data/spend/partition-0.jsonl").write_text("")
    assert wr.plot.lateness(spend()).get_title() == "0 of 0 records are in order"


def test_the_windows_of_a_key() -> None:
    pipeline = wr.Pipeline(as_graph(replace(graph_of(spend(), Pipeline), window=Hopping(10 * MINUTE, 5 * MINUTE))))
    result = pipeline.run("memory")
    axes = wr.plot.windows(result, {"user_id": "A"})
    # they overlap
    assert len({bar.get_y() for bar in bars_of(axes)}) == 2
    assert sorted(text.get_text() for text in axes.texts) == ["8.00", "8.00"]
    assert {text.get_text() for text in wr.plot.windows(result, {"user_id": "A"}, value="events").texts} == {"3"}
    with pytest.raises(InputError, match="has no rows with this key"):
        wr.plot.windows(result, {"user_id": "nobody"})
    with pytest.raises(InputError, match="has no windows"):
        wr.plot.windows(result, table="dead")
    with pytest.raises(InputError, match="no column 'nothing'"):
        wr.plot.windows(result, value="nothing")


def test_what_cannot_be_plotted(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("data/spend/partition-0.jsonl").write_text("no JSON\n")
    with pytest.raises(InputError, match="has no valid records"):
        wr.plot.event_time(spend())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SetupError, match=r"windrow\[plot\]"):
        wr.plot.lateness(spend())
