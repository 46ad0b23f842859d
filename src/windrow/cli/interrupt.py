"""Ctrl-C: at once, or after the step at hand."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal by KeyboardInterrupt, which py4j must not log with the stack of the call that it breaks off."""
    del number, frame
    logging.disable()
    raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end what is within, with nothing said about it."""
    kept = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)


@contextmanager
def stopping() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Let the first Ctrl-C (or SIGTERM) ask the run to stop, and the second one end it at once."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_start(stop: Callable[[], None]) -> None:
        def ask(number: int, frame: FrameType | None) -> None:
            del frame
            stop()
            # before it is said: who is quick is not to break into the same words
            signal.signal(number, interrupt)
            click.echo("stopping after this step (again to stop at once)", err=True)

        for number in kept:
            signal.signal(number, ask)

    try:
        yield on_start
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
