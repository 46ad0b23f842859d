"""A time limit for calls of HTTP clients, whose own timeouts begin again with each byte that arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class TimeLimit(Generic[T]):
    """Makes calls that take at most a given time, each in a thread of its own.

    The thread of a call that takes longer remains until its server closes the connection. No further call is made while
    there are `unfinished` such threads, so a server cannot take the threads and descriptors of this process.
    """

    def __init__(self, unfinished: int) -> None:
        self._free = threading.BoundedSemaphore(unfinished)

    def call(self, seconds: float, function: Callable[[], T]) -> T:
        """Return the result of the function, or raise its error; raise TimeoutError if it takes longer."""
        if not self._free.acquire(blocking=False):
            msg = "it is still sending the answers to earlier requests"
            raise TimeoutError(msg)
        found: Future[T] = Future()
        threading.Thread(target=self._run, args=(found, function), name="windrow-request", daemon=True).start()
        try:
            return found.result(seconds)
        except TimeoutError:
            if found.done():
                raise
            msg = f"there was no complete answer within {seconds:g} s"
            raise TimeoutError(msg) from None
        finally:
            del found  # an error in it refers to this frame, and so to a socket that nobody would close

    def _run(self, found: Future[T], function: Callable[[], T]) -> None:
        try:
            found.set_result(function())
        except BaseException as exc:  # noqa: BLE001 - raised by the caller
            found.set_exception(exc)
        finally:
            del found
            self._free.release()
