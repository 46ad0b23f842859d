"""Ctrl-C at once."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


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
