"""Windows as stories write them: by their start, as ``start/end``, or as ``global``."""

from __future__ import annotations

from windrow.api.yaml.node import YamlNode
from windrow.model import Global, Hopping, Pipeline, Session
from windrow.testing.transcript.times import format_time, parse_time

GLOBAL = "global"


def read_window(spot: YamlNode, pipeline: Pipeline) -> tuple[int, int]:
    """Read a window of the pipeline; raise PipelineError if it has no such window."""
    first, slash, second = spot.text().partition("/")
    if isinstance(pipeline.window, Global):
        if spot.text() != GLOBAL:
            msg = f"{spot.called} must be {GLOBAL!r}, as there is one window, not {spot.text()!r}"
            raise spot.error(msg)
        return _global()
    start = spot.parsed(lambda _: parse_time(first))
    end = spot.parsed(lambda _: parse_time(second)) if slash else None
    if isinstance(pipeline.window, Session):
        return _session(spot, pipeline.window, start, end)
    found = _window_from(pipeline, start)
    if found is None:
        msg = f"{spot.called}: no window starts at {first!r}"
        raise spot.error(msg)
    if end is not None and end != found:
        msg = f"{spot.called}: the window from {first!r} ends at {format_time(found)!r}, not at {second!r}"
        raise spot.error(msg)
    return start, found


def window_text(pipeline: Pipeline, window: tuple[int, int]) -> str:
    """Write a window as `read_window` reads it."""
    match pipeline.window:
        case Global():
            return GLOBAL
        case Session():
            return f'"{format_time(window[0])}/{format_time(window[1])}"'
        case _:
            return f'"{format_time(window[0])}"'


def _session(spot: YamlNode, window: Session, start: int, end: int | None) -> tuple[int, int]:
    if end is None:
        msg = f'{spot.called}: a session is written "start/end", as its start does not say its end'
        raise spot.error(msg)
    if end - start < window.gap:
        msg = f"{spot.called}: a session lasts at least as long as its gap"
        raise spot.error(msg)
    return start, end


def _global() -> tuple[int, int]:
    from windrow.core.windows import GLOBAL_END, GLOBAL_START  # noqa: PLC0415 - numpy, which reading does without

    return GLOBAL_START, GLOBAL_END


def _window_from(pipeline: Pipeline, start: int) -> int | None:
    """Return the end of the window that starts then, if one does."""
    import numpy as np  # noqa: PLC0415 - only for stories that have rows

    from windrow.core.windows import hops_of, window_ends, windows_of  # noqa: PLC0415 - as above

    window, at = pipeline.window, np.array([start])
    if isinstance(window, Global | Session):
        return None
    starts = hops_of(window, at).last if isinstance(window, Hopping) else windows_of(window, at).starts
    return int(window_ends(window, at)[0]) if starts[0] == start else None
