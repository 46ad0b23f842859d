"""Signals that end a run: the first asks it to stop, and a second ends it at once.

The first can be Ctrl-C (SIGINT), SIGTERM or SIGHUP, which is sent when a terminal closes. The second is Ctrl-C or
SIGTERM, whatever the first was. A later SIGHUP is ignored, because the kernel and the shell both send one when a
terminal closes.
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
"""The signals that end a run at once after it has been asked to stop."""
SIGNALS = (*_AGAIN, signal.SIGHUP)
_STOPPING = "stopping after this step (again to stop at once)"
_CLOSED = "the terminal was closed: stopping after this step"
_IGNORED_HANG_UP = (signal.SIGHUP, signal.SIG_IGN)
_KILLED = 128
"""The exit code of a program that was ended by a signal is this plus the signal's number."""


def raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt on a signal, with logging off: py4j would log a stack trace of the interrupted call."""
    import logging  # noqa: PLC0415 - short commands do without; where py4j runs, it is loaded

    logging.disable()
    # not raised here, so that its traceback differs from one of the user's code
    signal.default_int_handler(number, frame)


@contextmanager
def stopping(tell: Callable[[str], None], *, passes_on: bool = False) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Let the first signal ask the run to stop, which is reported through `tell`, and let the second end it at once.

    If SIGHUP is ignored, as under nohup, it stays ignored. With `passes_on`, the program's own handler of the signal is
    called when the run has ended. If it has none, SIGTERM and SIGHUP raise SystemExit, and Ctrl-C ends only the run.
    Only the main thread receives signals. In any other thread, no handler is changed, and the run stops when the
    interpreter exits.
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
            tell(f"failed: {exc}")  # the program may end before the error is raised
        raise
    finally:
        signals.restore()
        for number, frame in signals.came if passes_on else ():
            _pass_on(number, frame, signals.kept[number])


class _Signals:
    """The signals received during a run (`came`), and the handlers that were set before it (`kept`)."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.came: list[tuple[int, FrameType | None]] = []
        self.kept: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
        self._handled = [number for number, kept in self.kept.items() if (number, kept) != _IGNORED_HANG_UP]
        self._tell = tell
        self._stop: Callable[[], None] = lambda: None

    def on_start(self, stop: Callable[[], None]) -> None:
        """Call `stop` at the first signal, or now if a signal was received during an earlier part of the run."""
        self._stop = stop
        if self.came:
            stop()
            return
        for number in self._handled:
            signal.signal(number, self._ask)

    def restore(self) -> None:
        for number, handler in self.kept.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.came.append((number, frame))
        # before the message is printed: a quick second signal must not print it again
        for other in self._handled:
            signal.signal(other, self._end if other in _AGAIN else signal.SIG_IGN)
        self._stop()
        if number == signal.SIGHUP:
            _leave_terminal()
        with suppress(OSError):  # the terminal may be gone
            self._tell(_CLOSED if number == signal.SIGHUP else _STOPPING)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.came.append((number, frame))
        raise_interrupt(number, frame)


def _pass_on(number: int, frame: FrameType | None, handler: object) -> None:
    """Call the program's own handler of a signal; if it has none, raise SystemExit, except after Ctrl-C."""
    if handler in (signal.SIG_IGN, signal.default_int_handler):  # a tuple, as a handler may not be hashable
        return
    if callable(handler):
        handler(number, frame)
    else:
        raise SystemExit(_KILLED + number)


def end_in_order(is_active: Callable[[], bool]) -> None:
    """Let SIGTERM and SIGHUP raise SystemExit while `is_active` returns True, unless the program has its own handlers.

    The interpreter then waits for background runs before it exits. A second SIGTERM ends the process at once. Outside
    the main thread, this function does nothing.
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
    """Discard further output to a closed terminal, because each write to it would fail."""
    for number in (1, 2):
        try:
            termios.tcgetattr(number)
        except termios.error as exc:
            if exc.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)


_IN_THREADS: dict[threading.Event, Callable[[], None]] = {}
"""The functions that stop runs in other threads; the key is an event that is set when the run has ended."""


@contextmanager
def _until_the_end() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Stop a run when the interpreter exits, and wait until it has ended."""
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
    # its exit function must run after that of runs, as in `windrow.client.background`
    import concurrent.futures.thread  # noqa: F401, PLC0415 - only where a run has a thread of its own

    def stop_all() -> None:
        for ended, stop in list(_IN_THREADS.items()):
            stop()
            ended.wait()

    threading._register_atexit(stop_all)  # type: ignore[attr-defined] # noqa: SLF001 - as there
