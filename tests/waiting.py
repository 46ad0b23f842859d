"""Waits of tests for threads and processes: each has a bound, and says what it waited for; and their clocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

SECONDS = 60.0
"""How long to wait for what takes a moment on a quiet machine."""


def wait_until(holds: Callable[[], object], what: str, seconds: float = SECONDS, pause: float = 0.01) -> None:
    """Poll a condition every `pause` seconds; fail with what was waited for if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(pause)


def join(thread: threading.Thread, seconds: float = SECONDS) -> None:
    """Wait for a thread to end; fail with its name if it does not in time."""
    thread.join(seconds)
    assert not thread.is_alive(), f"waited {seconds:g} s for the end of {thread.name}"


def time_with(**functions: Callable[..., Any]) -> SimpleNamespace:
    """Return what stands in for `time` in a module, with other functions, such as ``monotonic=lambda: 5.0``.

    The functions of `time` itself are those of the whole process: an event loop in another thread that sees another
    clock for a moment can sleep for hours.
    """
    return SimpleNamespace(**{**vars(time), **functions})
