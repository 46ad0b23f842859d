"""Isolation of a run from its exporters: an exporter fault neither fails the run nor delays its end for long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from windrow.model.references import mask_urls

LEAVE: Final = 2.0
"""Seconds to wait for unsent data at the end of a run."""


class ExportGuard(logging.Handler):
    """Shields a run from the faults of an exporter: the first fault calls `on_warning`, later ones are ignored.

    Within the block, warnings logged by the package `library` count as faults and are not printed. `what` is what is
    exported, as a plural noun; `check` says which settings to check after a fault. Both appear in the warning.
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
        """Treat a warning logged by the library as a fault."""
        self.warn(record.getMessage())

    def warn(self, why: str) -> None:
        """Call `on_warning` if this is the first fault."""
        if not self._has_warned.is_set():
            self._has_warned.set()
            why = mask_urls(" ".join(why.split()))
            self._on_warning(f"{self._what} of this run may be lost: {why}; check {self._check}")

    @contextmanager
    def harmless(self) -> Iterator[None]:
        """Turn an exception raised in the block into a warning, and continue after the block."""
        try:
            yield
        except Exception as exc:  # noqa: BLE001 - an exporter fails no run
            self.warn(f"{type(exc).__name__}: {exc}")

    def leave(self, finish: Callable[[], object], give_up: Callable[[], object] = lambda: None) -> None:
        """Send unsent data by calling `finish` in a thread. After `LEAVE` seconds, warn and call `give_up`."""

        def run() -> None:
            with self.harmless():
                finish()
            self._release()

        self._is_leaving = True
        thread = threading.Thread(target=run, name="windrow-export", daemon=True)
        thread.start()
        thread.join(LEAVE)
        if thread.is_alive():
            self.warn(f"unsent data was not accepted within {LEAVE:g} s after the end of the run")
            with self.harmless():
                give_up()

    def _release(self) -> None:
        """Restore the library's logger. Called once the library has nothing more to log about this run."""
        self._logger.removeHandler(self)
        self._logger.propagate = True
