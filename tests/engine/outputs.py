"""What a run of a pipeline with one sink gave, and its parts that no cut and no order of partitions may change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from tests.graphs import Runnable, as_graph

from windrow.engine.changelog import StepOutput
from windrow.engine.tick import PlayStep
from windrow.model import Late
from windrow.runtime import memory


def unchanging(output: StepOutput, late: Late) -> dict[str, Any]:
    """On-time panes, late output, dead letters and the final table; with `late` each also each key's changes.

    Keys must live in one partition each.
    """
    changes = output.changes.to_pylist()
    by_key: dict[Any, list[Any]] = {}
    for change in changes:
        key = [value for name, value in change.items() if name in {"window_start", "user", "user_id"}]
        by_key.setdefault(tuple(key), []).append(tuple(change.values()))
    return {
        "on time": sorted(str(change) for change in changes if change["pane"] == "on_time"),
        "late": sorted(map(str, output.late.to_pylist())),
        "dead": sorted(map(str, output.dead.to_pylist())),
        "final": {key: (rows[-1][0] != "delete", *rows[-1][3:]) for key, rows in by_key.items()},
        "changelog": by_key if late == "each" else None,
    }


def only(outputs: Iterable[Mapping[str, StepOutput]]) -> list[StepOutput]:
    """Return the output of each step, of a pipeline with one sink."""
    return [output[""] for output in outputs]


def play(pipeline: Runnable, steps: Sequence[PlayStep], at_end: Literal["fire", "hold"]) -> list[StepOutput]:
    """Play a log that is given in steps on the memory host."""
    return only(memory.play(as_graph(pipeline), steps, at_end))
