"""Ctrl-C, and the interrupt of a notebook: the first asks a run to stop, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


def raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt on a signal, with logging off: py4j would log a stack trace of the call it interrupts."""
    import logging  # noqa: PLC0415 - commands that end at once do without; where py4j runs, it is loaded

    del number, frame
    logging.disable()
    raise KeyboardInterrupt


@contextmanager
def stopping(tell: Callable[[str], None]) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Let the first Ctrl-C (or SIGTERM) ask the run to stop, which `tell` is called with, the second end it at once.

    In a thread other than the main one, which gets no signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda _: None
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_start(stop: Callable[[], None]) -> None:
        def ask(number: int, frame: FrameType | None) -> None:
            del frame
            stop()
            # before the message is printed: a quick second Ctrl-C must not print it again
            signal.signal(number, raise_interrupt)
            tell("stopping after this step (again to stop at once)")

        for number in kept:
            signal.signal(number, ask)

    try:
        yield on_start
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
