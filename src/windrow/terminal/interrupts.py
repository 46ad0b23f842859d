"""Signals that end a run: the first asks it to stop, a second one ends it at once.

Ctrl-C (SIGINT), SIGTERM and SIGHUP, by which a terminal that is closed ends what runs in it, count alike as the first.
The second is any Ctrl-C or SIGTERM, whichever came first. A SIGHUP that comes later adds nothing: the kernel and the
shell both send one as a terminal closes.
"""

from __future__ import annotations

import errno
import os
import signal
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import FrameType
from typing import Any, NoReturn

_AGAIN = (signal.SIGINT, signal.SIGTERM)
"""The signals by which a run is ended at once that was asked to stop before."""
SIGNALS = (*_AGAIN, signal.SIGHUP)
_STOPPING = "stopping after this step (again to stop at once)"
_CLOSED = "the terminal was closed: stopping after this step"
_KILLED = 128
"""The exit code of a program that a signal ended is this and the signal's number."""


def raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt on a signal, with logging off: py4j would log a stack trace of the call it interrupts."""
    import logging  # noqa: PLC0415 - commands that end at once do without; where py4j runs, it is loaded

    logging.disable()
    # no `raise` of ours: by that it is told from one of the user's code
    signal.default_int_handler(number, frame)


@contextmanager
def stopping(tell: Callable[[str], None], *, passes_on: bool = False) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Let the first signal ask the run to stop, which `tell` is called with, and the second end it at once.

    A hang-up that is ignored, as by nohup, stays so. With `passes_on` a signal goes, when the run has ended, to the
    handler that the program had for it: without one of its own, SIGTERM and SIGHUP end the program by SystemExit, and
    Ctrl-C has ended the run alone. Signals come to the main thread: in another one no handler is changed, and the run
    stops when the interpreter ends.
    """
    if threading.current_thread() is not threading.main_thread():
        with _until_the_end() as on_start:
            yield on_start
        return
    signals = _Signals(tell)
    try:
        yield signals.on_start
    except Exception as exc:
        if passes_on and signals.came:
            tell(f"failed: {exc}")  # the program may end before it is raised
        raise
    finally:
        signals.restore()
        for number, frame in signals.came if passes_on else ():
            _pass_on(number, frame, signals.kept[number])


class _Signals:
    """The signals that `came` while a run was on its way, and the handlers that were there before it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.came: list[tuple[int, FrameType | None]] = []
        self.kept: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
        self._handled = [one for one in SIGNALS if one != signal.SIGHUP or self.kept[one] != signal.SIG_IGN]
        self._tell = tell
        self._stop: Callable[[], None] = lambda: None

    def on_start(self, stop: Callable[[], None]) -> None:
        """Call `stop` at the first signal, or now if that has come: to a part of the run before this one."""
        self._stop = stop
        if self.came:
            stop()
            return
        for number in self._handled:
            signal.signal(number, self._ask)

    def restore(self) -> None:
        """Restore the handlers."""
        for number, handler in self.kept.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.came.append((number, frame))
        # before the message is printed: a quick second signal must not print it again
        for one in self._handled:
            signal.signal(one, self._end if one in _AGAIN else signal.SIG_IGN)
        self._stop()
        if number == signal.SIGHUP:
            _leave_terminal()
        with suppress(OSError):  # who has no terminal any more is not told
            self._tell(_CLOSED if number == signal.SIGHUP else _STOPPING)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.came.append((number, frame))
        raise_interrupt(number, frame)


def _pass_on(number: int, frame: FrameType | None, handler: object) -> None:
    """Do with a signal what a program does with it: call its handler, or end it in order where it has none."""
    if handler in (signal.SIG_IGN, signal.default_int_handler):  # of which one may have no hash
        return
    if callable(handler):
        handler(number, frame)
    else:
        raise SystemExit(_KILLED + number)


def end_in_order(is_active: Callable[[], bool]) -> None:
    """Let SIGTERM and SIGHUP end the program by SystemExit while `is_active`, where it has no handler of its own.

    The end of the interpreter then waits for runs in the background. A second SIGTERM ends the process at once. Nothing
    is changed if this is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, signal.SIG_DFL)
        if not is_active():
            os.kill(os.getpid(), number)
            return
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _leave_terminal()
        raise SystemExit(_KILLED + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)


def _leave_terminal() -> None:
    """Write to nowhere in place of a terminal that was closed, to which each write fails."""
    for number in (1, 2):
        try:
            termios.tcgetattr(number)
        except termios.error as exc:
            if exc.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)


_IN_THREADS: dict[threading.Event, Callable[[], None]] = {}
"""How runs in other threads are asked to stop, each with what is set when it has ended."""


@contextmanager
def _until_the_end() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Have a run stop when the interpreter ends, which waits for it."""
    _stop_threads_at_exit()
    ended = threading.Event()

    def on_start(stop: Callable[[], None]) -> None:
        _IN_THREADS[ended] = stop

    try:
        yield on_start
    finally:
        _IN_THREADS.pop(ended, None)
        ended.set()


@lru_cache(maxsize=1)
def _stop_threads_at_exit() -> None:
    # whose end is to come after that of runs, as in `windrow.client.background`
    import concurrent.futures.thread  # noqa: F401, PLC0415 - only where a run has a thread of its own

    def stop_all() -> None:
        for ended, stop in list(_IN_THREADS.items()):
            stop()
            ended.wait()

    threading._register_atexit(stop_all)  # type: ignore[attr-defined] # noqa: SLF001 - as there
