"""Failures of the user's Python code: functions, aggregates, triggers.

Whatever it raises becomes one error that says where it was called, and which no run retries: not only an exception of
windrow's own, or one that elsewhere means that a server does not answer, but also `SystemExit`, `GeneratorExit` and a
`KeyboardInterrupt` of its own `raise` statement, which would end the run without a word.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from windrow.errors import RunError, described, encodable, is_interrupt

_HERE: Final = Path(__file__).parent
"""The folder of what stands between a call and the user's code."""


def qualified_name(code: object) -> str:
    """Return how messages name a user's Python code: the module and name of a function, or of an object's class."""
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}.{named.__qualname__}"


def record_place(source: str, partition: int, offset: int) -> str:
    """Return how messages name the place of a record."""
    return f"at partition {partition}, offset {offset} of {source}"


def key_text(names: Iterable[str], values: Iterable[object]) -> str:
    """Return how messages name a key."""
    return f"key {', '.join(f'{name}={value!r}' for name, value in zip(names, values, strict=True))}"


def raise_user_code_error(exc: BaseException, what: str) -> NoReturn:
    """Raise RunError for what the user's code raised, where `what` says which code failed and where.

    The cause is shown with its stack, unless its text cannot be encoded: Spark's worker would lose the error. The
    KeyboardInterrupt of a signal is raised again.
    """
    if is_interrupt(exc):
        raise exc
    # the last line of the user's own: below it there is only ours
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if _HERE not in Path(frame.filename).parents]
    line = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    text = f"{what}: {described(exc)}{line}; what was committed stays; mend it and start again"
    raise RunError(encodable(text)) from exc if _can_be_shown(exc) else None


def _can_be_shown(exc: BaseException) -> bool:
    try:
        "".join(traceback.format_exception(exc)).encode()
    except Exception:  # noqa: BLE001 - whatever it is, a worker of Spark's could not show it either
        return False
    return True
