"""Failures of the user's Python code: functions, aggregates and triggers.

Any exception becomes an error that says where the code was called and that no run retries. This includes windrow's own
exceptions, exceptions that elsewhere mean that a server does not answer, and `SystemExit`, `GeneratorExit` and a
`KeyboardInterrupt` from a `raise` statement, which would otherwise end the run without a message.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from windrow.errors import RunError, described, encodable, is_interrupt

_HERE: Final = Path(__file__).parent
"""The folder of the modules between a call and the user's code."""
_SHOWN: Final = 80


def shorten_repr(value: object) -> str:
    """Return the representation of a value for messages, cut off after 80 characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def qualified_name(code: object) -> str:
    """Return the name of the user's code for messages: module and name of a function, or of an object's class."""
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}.{named.__qualname__}"


def record_place(source: str, partition: int, offset: int) -> str:
    """Return the place of a record for messages."""
    return f"at partition {partition}, offset {offset} of {source}"


def key_text(names: Iterable[str], values: Iterable[object]) -> str:
    """Return a key as text for messages."""
    return f"key {', '.join(f'{name}={value!r}' for name, value in zip(names, values, strict=True))}"


def raise_user_code_error(exc: BaseException, what: str) -> NoReturn:
    """Raise RunError for an exception in the user's code; `what` says which code failed and where.

    The cause is shown with its stack trace, unless its text cannot be encoded, because Spark's worker would then lose
    the error. A KeyboardInterrupt that was caused by a signal is raised again.
    """
    if is_interrupt(exc):
        raise exc
    # the last line of the user's code, not of windrow's
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if _HERE not in Path(frame.filename).parents]
    line = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    text = f"{what}: {described(exc)}{line}; what was committed stays; fix it and start again"
    raise RunError(encodable(text)) from exc if _can_be_shown(exc) else None


def _can_be_shown(exc: BaseException) -> bool:
    try:
        "".join(traceback.format_exception(exc)).encode()
    except Exception:  # noqa: BLE001 - whatever it is, a worker of Spark's could not show it either
        return False
    return True
