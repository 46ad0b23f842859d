"""The guard of a run's exporters: their faults do not fail the run, nor delay its end for long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from windrow.model.references import mask_urls

LEAVE: Final = 2.0
"""Seconds that the end of a run waits for unsent data."""


class ExportGuard(logging.Handler):
    """Keeps the faults of an exporter from the run: `on_warning` is called with the first one, others are ignored.

    Within the block, warnings that the package `library` logs count as faults, and are not printed. `what` names the
    exported things in the plural, `check` the settings to check after a fault.
    """

    def __init__(self, what: str, library: str, check: str, on_warning: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._what = what
        self._check = check
        self._logger = logging.getLogger(library)
        self._on_warning = on_warning
        self._has_warned = threading.Event()
        self._is_leaving = False

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        self._logger.propagate = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        if not self._is_leaving:
            self._release()

    def emit(self, record: logging.LogRecord) -> None:
        """Turn a warning of the library into a fault."""
        self.warn(record.getMessage())

    def warn(self, why: str) -> None:
        """Warn, if this is the first fault."""
        if not self._has_warned.is_set():
            self._has_warned.set()
            why = mask_urls(" ".join(why.split()))
            self._on_warning(f"{self._what} of this run may be lost: {why}; check {self._check}")

    @contextmanager
    def harmless(self) -> Iterator[None]:
        """Warn of an exception in the block, and continue after it."""
        try:
            yield
        except Exception as exc:  # noqa: BLE001 - an exporter fails no run
            self.warn(f"{type(exc).__name__}: {exc}")

    def leave(self, finish: Callable[[], object], give_up: Callable[[], object] = lambda: None) -> None:
        """Send the rest by `finish`, in a thread of its own; warn and give up after `LEAVE` seconds."""

        def run() -> None:
            with self.harmless():
                finish()
            self._release()

        self._is_leaving = True
        thread = threading.Thread(target=run, name="windrow-export", daemon=True)
        thread.start()
        thread.join(LEAVE)
        if thread.is_alive():
            self.warn(f"what was left at its end was not taken within {LEAVE:g} s")
            with self.harmless():
                give_up()

    def _release(self) -> None:
        """Restore the logger of the library, once it has nothing more to log about this run."""
        self._logger.removeHandler(self)
        self._logger.propagate = True
